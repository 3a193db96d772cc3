#include "backend/cpu/packing.h"

#include "backend/cpu/isa/kernels.h"
#include "base/check.h"
#include "base/checked.h"
#include "program/check.h"
#include "quant/blocks.h"
#include "quant/formats.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <span>
#ifdef __linux__
#include <sys/mman.h>
#endif

namespace honeycrisp::backend::cpu {
namespace {

constexpr uint64_t kHugePage = uint64_t{2} << 20;
constexpr uint64_t kPrefetched = 8192;  // bytes behind the last panel that the kernels may ask for, never use

// ---- codes of a group of 32 inputs, as the file has them

using Codes = uint8_t[kGroup];

// The 16 bytes' low nibbles, then their high nibbles.
void nibbles(const uint8_t* bytes, Codes& out) {
  for (int i = 0; i < 16; ++i) {
    out[i] = bytes[i] & 15;
    out[i + 16] = bytes[i] >> 4;
  }
}
void fifth_bits(const uint8_t* high, Codes& out) {
  for (int i = 0; i < 32; ++i) out[i] = uint8_t(out[i] | (high[i / 8] >> (i % 8) & 1) << 4);
}

void codes(const quant::BlockQ4_0& b, uint32_t, Codes& out) { nibbles(b.codes, out); }
void codes(const quant::BlockQ4_1& b, uint32_t, Codes& out) { nibbles(b.codes, out); }
void codes(const quant::BlockIQ4_NL& b, uint32_t, Codes& out) { nibbles(b.codes, out); }
void codes(const quant::BlockMXFP4& b, uint32_t, Codes& out) { nibbles(b.codes, out); }
void codes(const quant::BlockIQ4_XS& b, uint32_t group, Codes& out) { nibbles(b.codes + 16 * group, out); }
void codes(const quant::BlockQ5_0& b, uint32_t, Codes& out) {
  nibbles(b.codes, out);
  fifth_bits(b.high, out);
}
void codes(const quant::BlockQ5_1& b, uint32_t, Codes& out) {
  nibbles(b.codes, out);
  fifth_bits(b.high, out);
}
void codes(const quant::BlockQ8_0& b, uint32_t, Codes& out) {
  for (int i = 0; i < 32; ++i) out[i] = uint8_t(b.codes[i]) ^ 0x80;  // + 128
}
void codes(const quant::BlockQ2_K& b, uint32_t group, Codes& out) {
  for (int i = 0; i < 32; ++i) out[i] = b.codes[32 * (group / 4) + i] >> (2 * (group % 4)) & 3;
}
void codes(const quant::BlockQ3_K& b, uint32_t group, Codes& out) {
  for (int i = 0; i < 32; ++i)
    out[i] = uint8_t((b.codes[32 * (group / 4) + i] >> (2 * (group % 4)) & 3) | (b.high[i] >> group & 1) << 2);
}
void codes(const quant::BlockQ4_K& b, uint32_t group, Codes& out) {
  for (int i = 0; i < 32; ++i) out[i] = b.codes[32 * (group / 2) + i] >> (4 * (group % 2)) & 15;
}
void codes(const quant::BlockQ5_K& b, uint32_t group, Codes& out) {
  for (int i = 0; i < 32; ++i)
    out[i] = uint8_t((b.codes[32 * (group / 2) + i] >> (4 * (group % 2)) & 15) | (b.high[i] >> group & 1) << 4);
}
void codes(const quant::BlockQ6_K& b, uint32_t group, Codes& out) {
  const uint32_t h = group / 4, s = group % 4;
  for (int i = 0; i < 32; ++i) {
    const int low = b.codes[64 * h + 32 * (s % 2) + i] >> (4 * (s / 2)) & 15, high = b.high[32 * h + i] >> (2 * s) & 3;
    out[i] = uint8_t(low | high << 4);
  }
}

// ---- scales: fields of a block that are laid side by side, in the order in which isa/formats.inl reads them

struct Field {
  uint32_t offset, bytes, count;  // in the block
};
template <class Block>
struct Scales;
#define HC_SCALES(Name, ...)                          \
  template <>                                         \
  struct Scales<quant::Block##Name> {                 \
    using Block = quant::Block##Name;                 \
    static constexpr Field kFields[] = {__VA_ARGS__}; \
  };
#define HC_HALF(member) {offsetof(Block, member), 2, 1}
#define HC_BYTES(member) {offsetof(Block, member), 1, sizeof(Block::member)}
HC_SCALES(Q4_0, HC_HALF(d))
HC_SCALES(Q4_1, HC_HALF(d), HC_HALF(m))
HC_SCALES(Q5_0, HC_HALF(d))
HC_SCALES(Q5_1, HC_HALF(d), HC_HALF(m))
HC_SCALES(Q8_0, HC_HALF(d))
HC_SCALES(Q2_K, HC_HALF(d), HC_HALF(dmin), HC_BYTES(scales))
HC_SCALES(Q3_K, HC_HALF(d), HC_BYTES(scales))
HC_SCALES(Q4_K, HC_HALF(d), HC_HALF(dmin), HC_BYTES(scales))
HC_SCALES(Q5_K, HC_HALF(d), HC_HALF(dmin), HC_BYTES(scales))
HC_SCALES(Q6_K, HC_HALF(d), HC_BYTES(scales))
HC_SCALES(IQ4_NL, HC_HALF(d))
HC_SCALES(IQ4_XS, HC_HALF(d), HC_HALF(scales_high), HC_BYTES(scales_low))
HC_SCALES(MXFP4, HC_BYTES(exponent))
#undef HC_SCALES
#undef HC_HALF
#undef HC_BYTES

template <class Block>
uint8_t* put_scales(const Block* const* blocks, uint8_t* out) {
  for (const Field& field : Scales<Block>::kFields)
    for (uint32_t i = 0; i < field.count; ++i)
      for (uint32_t r = 0; r < kLanes; ++r, out += field.bytes)
        std::memcpy(out, reinterpret_cast<const uint8_t*>(blocks[r]) + field.offset + i * field.bytes, field.bytes);
  return out;
}

// Byte c of output r in vector `plane` of a group.
uint8_t& at(uint8_t* group, uint32_t plane, uint32_t r, uint32_t c) { return group[64 * plane + 4 * r + c]; }

// The codes of one output into a group of zeros.
void put_codes(const Codes& codes, CodePlanes planes, uint32_t r, uint8_t* group) {
  const bool has_nibbles = planes == kNibbles || planes == kNibblesBit || planes == kNibblesCrumbs;
  const bool has_crumbs = planes == kCrumbs || planes == kCrumbsBit || planes == kNibblesCrumbs;
  const uint32_t crumbs = planes == kNibblesCrumbs ? 4 : 0, bit_plane = planes == kCrumbsBit ? 2 : 4;
  for (uint32_t k = 0; k < kGroup; ++k) {
    const uint32_t g = k / 4, c = k % 4, code = codes[k];
    if (planes == kBytes) at(group, g, r, c) = uint8_t(code);
    if (has_nibbles) at(group, g % 4, r, c) |= uint8_t((code & 15) << (4 * (g / 4)));
    if (has_crumbs) at(group, crumbs + g / 4, r, c) |= uint8_t((code >> crumbs & 3) << (2 * (g % 4)));
    if (planes == kNibblesBit) at(group, bit_plane, r, c) |= uint8_t((code >> 4 & 1) << g);
    if (planes == kCrumbsBit) at(group, bit_plane, r, c) |= uint8_t((code >> 2 & 1) << g);
  }
}

template <class Block>
void pack_blocks(const std::byte* rows, uint64_t row_bytes, uint32_t n_rows, uint32_t n_blocks, uint32_t n_groups,
                 CodePlanes planes, uint8_t* out) {
  for (uint32_t b = 0; b < n_blocks; ++b) {
    const Block zero{};
    const Block* blocks[kLanes];
    for (uint32_t r = 0; r < kLanes; ++r)
      blocks[r] = r < n_rows ? reinterpret_cast<const Block*>(rows + r * row_bytes) + b : &zero;
    out = put_scales(blocks, out);
    for (uint32_t group = 0; group < n_groups; ++group, out += planes) {
      std::memset(out, 0, planes);
      for (uint32_t r = 0; r < kLanes; ++r) {
        Codes c;
        codes(*blocks[r], group, c);
        put_codes(c, planes, r, out);
      }
    }
  }
}

struct PanelFormat {
  quant::Format format;
  uint32_t groups, scale_bytes;
  CodePlanes planes;
  void (*pack)(const std::byte*, uint64_t, uint32_t, uint32_t, uint32_t, CodePlanes, uint8_t*);
};
constexpr PanelFormat kPanelFormats[] = {
#define HC_X(name, groups, planes, scale_bytes) \
  {quant::Format::k##name, groups, scale_bytes, planes, pack_blocks<quant::Block##name>},
    HC_CPU_INTEGER_FORMATS(HC_X)
#undef HC_X
};
// Packing rearranges the bits of the file and adds none.
#define HC_X(name, groups, planes, scale_bytes) \
  static_assert(scale_bytes + groups * planes == kLanes * sizeof(quant::Block##name), #name);
HC_CPU_INTEGER_FORMATS(HC_X)
#undef HC_X

const PanelFormat* find_format(quant::Format format) {
  for (const PanelFormat& f : kPanelFormats)
    if (f.format == format) return &f;
  return nullptr;
}

// Calls visit(matrix) for each matrix that an op multiplies with.
template <class Visit>
void for_matrices(const program::Op& op, Visit visit) {
  if (const auto* p = std::get_if<program::Project>(&op))
    for (const program::Matrix& m : p->matrices) visit(m);
  if (const auto* l = std::get_if<program::Logits>(&op)) visit(l->table);
  if (const auto* m = std::get_if<program::MixExperts>(&op)) {
    for (const program::Matrix& each : {m->router.matrix, m->gate, m->up, m->down}) visit(each);
    if (m->shared) {
      for (const program::Matrix& each : {m->shared->gate, m->shared->up, m->shared->down}) visit(each);
      if (m->shared->scale) visit(*m->shared->scale);
    }
  }
}

}  // namespace

bool is_packed(quant::Format format) { return find_format(format) != nullptr; }

uint64_t panel_bytes(quant::Format format, uint32_t cols) { return kLanes * quant::row_bytes(format, cols); }

void pack_panel(quant::Format format, const std::byte* rows, uint64_t row_bytes, uint32_t n_rows, uint32_t cols,
                uint8_t* panel) {
  const PanelFormat* f = find_format(format);
  HC_CHECK(f != nullptr && n_rows <= kLanes);
  f->pack(rows, row_bytes, n_rows, cols / (f->groups * kGroup), f->groups, f->planes, panel);
}

void PackedWeights::Free::operator()(uint8_t* p) const { std::free(p); }

Result<void> PackedWeights::add(const program::Program& program, const program::Matrix& matrix, ThreadPool& pool) {
  const program::Weight& w = program.weight(matrix);
  const uint64_t panels = ceil_div<uint64_t>(matrix.rows, kLanes), one = panel_bytes(w.format, w.cols);
  const auto slice = checked_mul(panels, one);
  const auto bytes = slice ? checked_mul<uint64_t>(*slice, w.slices) : std::nullopt;
  if (!bytes || *bytes > SIZE_MAX / 2) return invalid("weight {} would not fit the address space", w.name);
  const uint64_t padded = round_up(*bytes + kPrefetched, kHugePage);
  Memory memory(static_cast<uint8_t*>(std::aligned_alloc(*bytes < kHugePage ? 4096 : kHugePage, padded)));
  if (!memory)
    return fail(ErrorCode::kOutOfMemory, "{} bytes for the packed weight {} cannot be allocated", *bytes, w.name);
#ifdef __linux__
  if (*bytes >= kHugePage) (void)madvise(memory.get(), padded, MADV_HUGEPAGE);  // a wish: small pages cost 15 %
#endif

  struct Work {
    const program::Weight& weight;
    const program::Matrix& matrix;
    uint8_t* out;
    uint64_t panels, one;
    std::atomic<uint64_t> next{0};
  } work{w, matrix, memory.get(), panels, one};
  pool.run(
      [](void* context, uint32_t) {
        Work& job = *static_cast<Work*>(context);
        const uint64_t total = job.panels * job.weight.slices, row_bytes = job.weight.row_bytes();
        for (uint64_t i; (i = job.next.fetch_add(1, std::memory_order_relaxed)) < total;) {
          const uint64_t of_slice = i / job.panels, first = i % job.panels * kLanes;
          const std::byte* rows =
              job.weight.data + (of_slice * job.weight.rows + job.matrix.first_row + first) * row_bytes;
          pack_panel(job.weight.format, rows, row_bytes, uint32_t(std::min<uint64_t>(kLanes, job.matrix.rows - first)),
                     job.weight.cols, job.out + i * job.one);
        }
      },
      &work);
  matrices_[key(matrix)] = {memory.get(), one, *slice};
  memory_.push_back(std::move(memory));
  memory_bytes_ += *bytes;
  return {};
}

Result<PackedWeights> PackedWeights::make(const program::Program& program, const CompileOptions& options,
                                          ThreadPool& pool) {
  PackedWeights packed;
  const uint64_t total = program::resident_bytes(program);
  uint64_t done = 0;
  for (const program::Step& step : program.steps) {
    Result<void> added;
    for_matrices(step.op, [&](const program::Matrix& m) {
      const program::Weight& w = program.weight(m);
      if (!added || !is_packed(w.format) || packed.find(m) != nullptr) return;
      added = packed.add(program, m, pool);
      if (!added) return;
      const uint64_t first = m.first_row * w.row_bytes(), bytes = m.rows * w.row_bytes();
      for (uint32_t slice = 0; slice < w.slices; ++slice)
        if (options.release_source) options.release_source(w.data + slice * w.rows * w.row_bytes() + first, bytes);
      done += bytes * w.slices;
      if (options.progress) options.progress(std::min(done, total), total);
    });
    HC_TRY(added);
  }
  if (options.progress) options.progress(total, total);
  return packed;
}

const PackedMatrix* PackedWeights::find(const program::Matrix& matrix) const {
  const auto found = matrices_.find(key(matrix));
  return found == matrices_.end() ? nullptr : &found->second;
}

}  // namespace honeycrisp::backend::cpu
