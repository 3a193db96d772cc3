#include "backend/metal/soft/checker.h"

#include "backend/metal/soft/symbolize.h"
#include "base/check.h"

#include <algorithm>
#include <bit>
#include <fmt/format.h>
#include <source_location>
#include <sys/mman.h>

namespace honeycrisp::backend::metal::soft {
namespace {

constexpr size_t kRemembered = 1 << 16;  // dispatches; accesses of older ones count as long done

uint32_t thread_index(const Group* g) { return g->simd->index * kLanes + g->simd->lane; }

const char* verb(AccessKind k) {
  return k == AccessKind::kRead ? "reads" : k == AccessKind::kWrite ? "writes" : "accesses atomically";
}

void set_coordinates(uint32_t out[3], uint32_t index, uint32_t x, uint32_t y) {
  out[0] = index % x;
  out[1] = index / x % y;
  out[2] = index / x / y;
}

}  // namespace

// ---- faults that any device notices ----

Place FaultReporter::place(const Group* g, std::string access) const {
  Place p;
  p.kernel = dispatch_->pipeline->function.kernel->name;
  std::copy(g->position, g->position + 3, p.threadgroup);
  set_coordinates(p.thread, thread_index(g), g->size[0], g->size[1]);
  p.access = std::move(access);
  return p;
}

void FaultReporter::at_site(Place& p, const void* site) {
  if (!site) return;
  const auto location = std::bit_cast<std::source_location>(site);
  const std::string file = location.file_name();
  p.file = file.substr(file.rfind('/') + 1);
  p.line = int(location.line());
}

void FaultReporter::bad_index(Group* g, const char* file, uint32_t line, uint64_t index) {
  Place p = place(g, fmt::format("uses index {}", int64_t(index)));
  p.file = std::string(file).substr(std::string(file).rfind('/') + 1);
  p.line = int(line);
  log_.add({Fault::kBadIndex, "an index outside of its array", std::move(p), std::nullopt});
}

void FaultReporter::misaligned(Group* g, const char* file, uint32_t line, const void* address, uint32_t alignment) {
  Place p = place(g, fmt::format("uses address ...{:03x} for a type of alignment {}",
                                 reinterpret_cast<uintptr_t>(address) & 0xfff, alignment));
  p.file = std::string(file).substr(std::string(file).rfind('/') + 1);
  p.line = int(line);
  log_.add({Fault::kMisaligned, "an address that its type does not allow", std::move(p), std::nullopt});
}

void FaultReporter::simd_diverged(Group* g, const void* site, const void* other) {
  Place here = place(g, "arrives"), there = place(g, "waits");
  at_site(here, site);
  at_site(there, other);
  log_.add({Fault::kSimdDivergence, "lanes of a simdgroup meet at different simd functions or barriers",
            std::move(here), std::move(there)});
}

void FaultReporter::barrier_diverged(Group* g, const void* site, const void* other) {
  Place here = place(g, "arrives"), there = place(g, "waits");
  at_site(here, site);
  at_site(there, other);
  log_.add({Fault::kBarrierDivergence, "threads of a threadgroup meet at different barriers", std::move(here),
            std::move(there)});
}

void FaultReporter::barrier_missed(Group* g, const void* site, uint32_t missing) {
  Place p = place(g, "waits");
  at_site(p, site);
  log_.add({Fault::kBarrierMissed, fmt::format("{} threads ended without reaching a threadgroup barrier", missing),
            std::move(p), std::nullopt});
}

void FaultReporter::inactive_lane(Group* g, uint32_t lane, const void* site) {
  Place p = place(g);
  at_site(p, site);
  log_.add({Fault::kInactiveLane,
            fmt::format("the value of lane {} is needed, which has ended or does not exist", lane), std::move(p),
            std::nullopt});
}

void FaultReporter::threadgroup_memory_exceeded(Group* g, uint32_t bytes) {
  log_.add({Fault::kThreadgroupMemory,
            fmt::format("{} bytes of threadgroup memory are needed, {} are there", bytes, kThreadgroupBytes), place(g),
            std::nullopt});
}

// ---- the record of accesses ----

Checker::Shadow::~Shadow() {
  if (cells) munmap(cells, 4 * words * sizeof(Cell));
  if (split) munmap(split, words);
}

bool Checker::Shadow::map(size_t bytes) {
  words = (bytes + 3) / 4;
  const auto zeros = [](size_t n) -> void* {  // pages that are never touched cost nothing
    void* p = mmap(nullptr, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? nullptr : p;
  };
  cells = static_cast<Cell*>(zeros(4 * words * sizeof(Cell)));
  split = static_cast<unsigned char*>(zeros(words));
  return cells && split;
}

Checker::Checker(ReportLog& log) : FaultReporter(log) {
  HC_CHECK(threadgroup_shadow_.map(2 * kThreadgroupBytes), "no memory for the record of threadgroup memory");
}
Checker::~Checker() = default;

void Checker::begin_commands(const std::vector<Dispatch>& dispatches) {
  std::erase_if(shadows_, [](const auto& s) { return s.second.first.expired(); });
  written_.clear();
  for (const Dispatch& d : dispatches) {
    const KernelInfo& k = *d.pipeline->function.kernel;
    for (uint32_t i = 0; i < k.parameter_count; ++i) {
      const Parameter& p = k.parameters[i];
      if (p.attribute != Attribute::kBuffer || !(d.pipeline->required >> i & 1)) continue;
      const Binding& b = d.bindings[p.index];
      if (!b.buffer || (!p.writable && b.buffer->hazards() == Hazards::kTracked)) continue;
      if (p.writable) written_[b.buffer.get()].push_back({d.encoder.get(), b.interval});
      auto& [owner, shadow] = shadows_[b.buffer.get()];
      if (shadow) continue;
      owner = b.buffer;
      shadow = std::make_unique<Shadow>();
      HC_CHECK(shadow->map(b.buffer->length()), "no address space for the record of a buffer of {} bytes",
               b.buffer->length());
    }
  }
}

void Checker::begin_dispatch(const Dispatch& d, const Invocation& call, unsigned char* threadgroup_memory) {
  set_dispatch(d);
  if (past_.size() == kRemembered) {
    past_.pop_front();
    ++past_first_;
  }
  past_.push_back({d.pipeline, d.encoder, d.groups, d.threads_per_threadgroup});
  ++number_;
  threadgroup_memory_ = threadgroup_memory;
  regions_.clear();
  last_ = 0;
  const KernelInfo& k = *d.pipeline->function.kernel;
  for (uint32_t i = 0; i < k.parameter_count; ++i) {
    const Parameter& p = k.parameters[i];
    if (!(d.pipeline->required >> i & 1)) continue;
    if (p.attribute == Attribute::kThreadgroup) {
      const uint32_t offset = call.threadgroup_offsets[p.index];
      unsigned char* at = threadgroup_memory + offset;
      regions_.push_back(
          {at, at + d.threadgroup_bytes[p.index], &threadgroup_shadow_, offset, true, kThreadgroup, false, 0, &p});
    }
    if (p.attribute != Attribute::kBuffer && p.attribute != Attribute::kConstantBuffer) continue;
    const Binding& b = d.bindings[p.index];
    auto* at = static_cast<unsigned char*>(call.buffers[p.index]);
    const size_t length = p.reference ? std::min<size_t>(b.length, p.bytes) : b.length;
    Shadow* shadow = nullptr;
    bool untracked = false;
    if (b.buffer) {
      untracked = b.buffer->hazards() == Hazards::kUntracked;
      const auto s = shadows_.find(b.buffer.get());
      const auto w = written_.find(b.buffer.get());
      const bool written = w != written_.end() && std::find(w->second.begin(), w->second.end(),
                                                            std::pair<const EncoderOrder*, uint32_t>(
                                                                d.encoder.get(), b.interval)) != w->second.end();
      if (s != shadows_.end() && (written || untracked)) shadow = s->second.second.get();
    }
    regions_.push_back({at, at + length, shadow, b.offset, p.writable, kDevice, untracked, b.interval, &p});
  }
  constants_.clear();
  const Unit& unit = *d.pipeline->function.unit;
  for (uint32_t i = 0; i < unit.constant_count; ++i) {
    constants_.push_back({static_cast<unsigned char*>(unit.constants[i].address()), unit.constants[i].bytes});
    if (unit.constants[i].defined)
      constants_.push_back({reinterpret_cast<unsigned char*>(unit.constants[i].defined()), 1});
  }
}

void Checker::placed(Group*, uint32_t offset, uint32_t bytes) {
  unsigned char* at = threadgroup_memory_ + offset;
  regions_.push_back({at, at + bytes, &threadgroup_shadow_, offset, true, kThreadgroup, false, 0, nullptr});
}

void Checker::group_barrier(Group* g, uint32_t flags) {
  g->epoch[kDevice] += flags & kFlagDevice ? 1 : 0;
  g->epoch[kThreadgroup] += flags & kFlagThreadgroup ? 1 : 0;
}

const Checker::Region* Checker::find(const unsigned char* begin, const unsigned char* end, AccessKind kind) {
  const auto fits = [&](const Region& r) { return begin >= r.begin && end <= r.end; };
  if (last_ < regions_.size() && fits(regions_[last_]) && (kind == AccessKind::kRead || regions_[last_].writable))
    return &regions_[last_];
  const Region* found = nullptr;  // memory that two bindings share: one that allows the access is preferred
  for (size_t i = 0; i < regions_.size(); ++i) {
    if (!fits(regions_[i])) continue;
    if (!found || (regions_[i].writable && !found->writable)) {
      found = &regions_[i];
      last_ = i;
    }
  }
  return found;
}

bool Checker::is_constant(const void* p) const {
  if (dispatch_->pipeline->library->contains(p)) return true;
  const auto* at = static_cast<const unsigned char*>(p);
  return std::any_of(constants_.begin(), constants_.end(),
                     [&](const auto& c) { return at >= c.first && at < c.first + c.second; });
}

uint32_t Checker::relative(const void* pc) const {
  return uint32_t(static_cast<const char*>(pc) - static_cast<const char*>(dispatch_->pipeline->library->begin()));
}

bool Checker::access(Group* g, const void* address, size_t bytes, AccessKind kind, const void* pc) {
  const auto* at = static_cast<const unsigned char*>(address);
  const Region* r = find(at, at + bytes, kind);
  if (!r) {
    if (kind == AccessKind::kRead && is_constant(address)) return true;
    out_of_bounds(g, at, bytes, kind, pc);
    return false;
  }
  if (kind != AccessKind::kRead && !r->writable) {
    if (first_time(Fault::kReadOnly, relative(pc), 0)) {
      const Side now{number_, 0, group_, 0, 0, relative(pc), uint16_t(thread_index(g)), 0, false};
      log_.add({Fault::kReadOnly, "a write through a binding that only reads",
                place_of(now, describe(*r, at, bytes, verb(kind))), std::nullopt});
    }
    return false;
  }
  if (!r->shadow) return true;
  Shadow& shadow = *r->shadow;
  const Memory m = r->memory;
  const Side now{number_,
                 m == kThreadgroup ? run_ : r->interval,
                 group_,
                 g->epoch[m],
                 g->simd->epoch[m],
                 relative(pc),
                 uint16_t(thread_index(g)),
                 0,
                 kind >= AccessKind::kAtomic};
  Fault fault{};
  for (size_t byte = r->offset + size_t(at - r->begin), end = byte + bytes; byte < end;) {
    Cell* cell = &shadow.cell(byte);
    unsigned char& split = shadow.split[byte / 4];
    if (!split && byte % 4 == 0 && end - byte >= 4) {
      byte += 4;
    } else {
      if (!split) {
        split = 1;
        for (size_t i = 1; i < 4; ++i) shadow.cell(byte / 4 * 4 + i) = shadow.cell(byte / 4 * 4);
      }
      ++byte;
    }
    const bool written = current(cell->written, *r);
    if (!written && m == kThreadgroup && (kind == AccessKind::kRead || kind == AccessKind::kAtomic)) {
      if (first_time(Fault::kUninitialised, now.pc, 0))
        log_.add({Fault::kUninitialised, "threadgroup memory is read before the threadgroup has written it",
                  place_of(now, describe(*r, at, bytes, verb(kind))), std::nullopt});
      return true;
    }
    if (written && conflict(cell->written, now, *r, fault)) {
      race(fault, *r, now, cell->written, cell->written.atomic ? AccessKind::kAtomic : AccessKind::kWrite, bytes,
           address);
      return true;
    }
    if (kind == AccessKind::kRead) {
      fold(cell->read, now, *r);
      continue;
    }
    if (current(cell->read, *r) && conflict(cell->read, now, *r, fault)) {
      race(fault, *r, now, cell->read, AccessKind::kRead, bytes, address);
      return true;
    }
    if (now.atomic)
      fold(cell->written, now, *r);
    else
      cell->written = now;
  }
  return true;
}

const Checker::Past* Checker::past(uint32_t dispatch) const {
  return dispatch >= past_first_ && dispatch - past_first_ < past_.size() ? &past_[dispatch - past_first_] : nullptr;
}

/// Whether another dispatch's access comes before this one's for certain.
bool Checker::ordered(const Side& before, const Side& now, bool untracked) const {
  const Past* p = past(before.dispatch);
  if (!p) return true;
  const EncoderOrder &theirs = *p->encoder, &ours = *dispatch_->encoder;
  if (theirs.id == ours.id) return before.interval != now.interval;
  return !untracked || theirs.commit <= ours.completed ||
         std::binary_search(ours.known.begin(), ours.known.end(), theirs.id);
}

bool Checker::conflict(const Side& before, const Side& now, const Region& r, Fault& fault) const {
  if (before.atomic && now.atomic) return false;
  if (r.memory == kDevice) {
    if (before.dispatch != now.dispatch) {
      if (ordered(before, now, r.untracked)) return false;
      const Past* p = past(before.dispatch);
      fault = p && p->encoder->id == dispatch_->encoder->id ? Fault::kMissingBarrier : Fault::kMissingFence;
      return true;
    }
    if (before.flags & kDispatches) {
      fault = Fault::kMissingBarrier;
      return true;
    }
    if (before.group != now.group || before.flags & kGroups) {
      fault = Fault::kGridRace;
      return true;
    }
  }
  fault = r.memory == kDevice ? Fault::kDeviceRace : Fault::kThreadgroupRace;
  if (before.epoch != now.epoch) return false;
  if (before.flags & kSimdgroups || before.thread / kLanes != now.thread / kLanes) return true;
  if (before.simd_epoch != now.simd_epoch) return false;
  return before.flags & kOtherLanes || before.thread != now.thread;
}

/// Adds an access that conflicts with nothing to those that were before.
void Checker::fold(Side& before, const Side& now, const Region& r) const {
  uint8_t flags = 0;
  if (current(before, r)) {
    const bool device = r.memory == kDevice;
    if (device && before.dispatch != now.dispatch) {
      flags = ordered(before, now, r.untracked) ? 0 : kDispatches;
    } else if (device && before.group != now.group) {
      flags = uint8_t((before.flags & kDispatches) | kGroups);
    } else {
      flags = before.flags & (kDispatches | kGroups);
      if (before.epoch == now.epoch) {
        flags |= before.flags & kSimdgroups;
        if (before.thread / kLanes != now.thread / kLanes)
          flags |= kSimdgroups;
        else if (before.simd_epoch == now.simd_epoch)
          flags |= (before.flags & kOtherLanes) | (before.thread != now.thread ? kOtherLanes : 0);
      }
    }
  }
  before = now;
  before.flags = flags;
}

bool Checker::first_time(Fault fault, uint32_t pc, uint32_t other) {
  if (reported_generation_ != log_.generation()) {
    reported_.clear();
    reported_generation_ = log_.generation();
  }
  const uint64_t kernel = reinterpret_cast<uintptr_t>(dispatch_->pipeline->function.kernel);
  const uint64_t key = ((kernel * 31 + uint64_t(fault)) * 0x9e3779b97f4a7c15u + pc) * 0x9e3779b97f4a7c15u + other;
  if (reported_.insert(key).second) return true;
  log_.count();
  return false;
}

std::string Checker::describe(const Region& r, const unsigned char* at, size_t bytes, const char* what) const {
  std::string of = "a threadgroup variable";
  if (r.parameter && r.memory == kThreadgroup)
    of = fmt::format("threadgroup({}) {}", r.parameter->index, r.parameter->name);
  if (r.parameter && r.memory == kDevice) of = fmt::format("buffer({}) {}", r.parameter->index, r.parameter->name);
  return fmt::format("{} {} bytes at {} of {}", what, bytes, at - r.begin, of);
}

Place Checker::place_of(const Side& s, std::string access) const {
  Place p;
  p.access = std::move(access);
  const Past* d = past(s.dispatch);
  if (!d) return p;
  p.kernel = d->pipeline->function.kernel->name;
  set_coordinates(p.threadgroup, s.group, d->groups.x, d->groups.y);
  set_coordinates(p.thread, s.thread, d->threads.x, d->threads.y);
  const SourceLine line = source_line(d->pipeline->library->path(), s.pc - 1);
  p.file = line.file;
  p.line = line.line;
  return p;
}

void Checker::race(Fault fault, const Region& r, const Side& now, const Side& before, AccessKind before_kind,
                   size_t bytes, const void* address) {
  if (!first_time(fault, now.pc, before.pc)) return;
  static constexpr const char* kWhy[] = {"",
                                         "",
                                         "",
                                         "",
                                         "",
                                         "two threads of a threadgroup, no threadgroup barrier between",
                                         "two threads of a threadgroup, no barrier with mem_device between",
                                         "two threadgroups of one dispatch, which nothing orders",
                                         "two dispatches of a concurrent encoder, no memory barrier between",
                                         "two encoders, an untracked buffer, no fence between"};
  const auto* at = static_cast<const unsigned char*>(address);
  log_.add({fault, kWhy[size_t(fault)],
            place_of(now, describe(r, at, bytes,
                                   now.atomic                         ? "accesses atomically"
                                   : before_kind == AccessKind::kRead ? "writes"
                                                                      : "accesses")),
            place_of(before, fmt::format("{} it before", verb(before_kind)))});
}

void Checker::out_of_bounds(Group* g, const unsigned char* at, size_t bytes, AccessKind kind, const void* pc) {
  if (!first_time(Fault::kOutOfBounds, relative(pc), 0)) return;
  constexpr ptrdiff_t kNear = 1 << 20;
  const Region* nearest = nullptr;
  ptrdiff_t distance = kNear;
  for (const Region& r : regions_) {
    const ptrdiff_t d = at < r.begin ? r.begin - at : at - r.end + 1;
    if (d < distance) {
      distance = d;
      nearest = &r;
    }
  }
  std::string access =
      fmt::format("{} {} bytes at {}, which is near no binding", verb(kind), bytes, static_cast<const void*>(at));
  if (nearest)
    access =
        fmt::format("{}, which has {} bytes", describe(*nearest, at, bytes, verb(kind)), nearest->end - nearest->begin);
  const Side now{number_, 0, group_, 0, 0, relative(pc), uint16_t(thread_index(g)), 0, false};
  log_.add({Fault::kOutOfBounds, "an access outside of everything that is bound", place_of(now, std::move(access)),
            std::nullopt});
}

}  // namespace honeycrisp::backend::metal::soft
