// Watchers of running threadgroups. FaultReporter turns what any device notices into reports; Checker also sees every
// access to memory and keeps, for each word that something may write, who wrote and who read it last: the verdict comes
// from that record and from the barriers between, not from the order in which threads happened to run.
#pragma once

#include "backend/metal/soft/commands.h"
#include "backend/metal/soft/report.h"
#include "backend/metal/soft/worker.h"

#include <array>
#include <deque>
#include <map>
#include <memory>
#include <unordered_set>
#include <vector>

namespace honeycrisp::backend::metal::soft {

class FaultReporter : public Watcher {
 public:
  explicit FaultReporter(ReportLog& log) : log_(log) {}
  void set_dispatch(const Dispatch& d) { dispatch_ = &d; }

  bool access(Group*, const void*, size_t, AccessKind, const void*) override { return true; }
  void placed(Group*, uint32_t, uint32_t) override {}
  void group_barrier(Group*, uint32_t) override {}
  void bad_index(Group*, const char* file, uint32_t line, uint64_t index) override;
  void misaligned(Group*, const char* file, uint32_t line, const void* address, uint32_t alignment) override;
  void simd_diverged(Group*, const void* site, const void* other) override;
  void barrier_diverged(Group*, const void* site, const void* other) override;
  void barrier_missed(Group*, const void* site, uint32_t missing) override;
  void inactive_lane(Group*, uint32_t lane, const void* site) override;
  void threadgroup_memory_exceeded(Group*, uint32_t bytes) override;

 protected:
  Place place(const Group*, std::string access = {}) const;
  static void at_site(Place&, const void* site);

  ReportLog& log_;
  const Dispatch* dispatch_ = nullptr;
};

class Checker final : public FaultReporter {
 public:
  static constexpr uint32_t kGap = 64;  // bytes between threadgroup variables that belong to none

  explicit Checker(ReportLog& log);
  ~Checker() override;

  /// The dispatches of a command buffer, before the first of them runs: says which buffers need a record.
  void begin_commands(const std::vector<Dispatch>&);
  void begin_dispatch(const Dispatch&, const Invocation&, unsigned char* threadgroup_memory);
  void begin_group(uint32_t number) {  // of the threadgroup in its grid
    group_ = number;
    ++run_;
  }

  bool access(Group*, const void* address, size_t bytes, AccessKind, const void* pc) override;
  void placed(Group*, uint32_t offset, uint32_t bytes) override;
  void group_barrier(Group*, uint32_t flags) override;

 private:
  enum Memory : uint8_t { kDevice = 0, kThreadgroup = 1 };
  enum Flag : uint8_t {
    kOtherLanes = 1,  // other lanes of the simdgroup too, since its last simdgroup barrier
    kSimdgroups = 2,  // other simdgroups too, since the last threadgroup barrier
    kGroups = 4,      // other threadgroups of the dispatch too
    kDispatches = 8,  // other dispatches that nothing orders too
  };
  /// The last access of a kind to a word.
  struct Side {
    uint32_t dispatch = 0;  // 0: none
    uint32_t interval = 0;  // of the buffer in its encoder; for threadgroup memory the run of the threadgroup
    uint32_t group = 0, epoch = 0, simd_epoch = 0;
    uint32_t pc = 0;  // relative to the library
    uint16_t thread = 0;
    uint8_t flags = 0;
    bool atomic = false;
  };
  struct Cell {
    Side written, read;
  };
  /// A cell per word; once a part of it is accessed alone, a cell per byte, the other three in planes of their own.
  struct Shadow {
    size_t words = 0;
    Cell* cells = nullptr;           // [4][words]
    unsigned char* split = nullptr;  // [words]
    ~Shadow();
    bool map(size_t bytes);
    Cell& cell(size_t byte) { return cells[(byte & 3) * words + byte / 4]; }
  };
  struct Region {
    unsigned char *begin, *end;
    Shadow* shadow;  // null: nothing writes it, bounds suffice
    size_t offset;   // of `begin` in the shadow
    bool writable;
    Memory memory;
    bool untracked;
    uint32_t interval;
    const Parameter* parameter;  // null: a variable
  };
  struct Past {  // a dispatch that cells may name
    std::shared_ptr<const Pipeline> pipeline;
    std::shared_ptr<EncoderOrder> encoder;
    Size groups, threads;
  };

  const Region* find(const unsigned char* begin, const unsigned char* end, AccessKind);
  void out_of_bounds(Group*, const unsigned char*, size_t, AccessKind, const void* pc);
  const Past* past(uint32_t dispatch) const;
  bool ordered(const Side& before, const Side& now, bool untracked) const;
  bool conflict(const Side& before, const Side& now, const Region&, Fault&) const;
  void fold(Side& before, const Side& now, const Region&) const;
  bool current(const Side& s, const Region& r) const {
    return r.memory == kDevice ? s.dispatch != 0 : s.interval == run_ && s.dispatch != 0;
  }
  void race(Fault, const Region&, const Side& now, const Side& before, AccessKind before_kind, size_t bytes,
            const void* address);
  Place place_of(const Side&, std::string access) const;
  std::string describe(const Region&, const unsigned char* at, size_t bytes, const char* verb) const;
  bool first_time(Fault, uint32_t pc, uint32_t other);
  uint32_t relative(const void* pc) const;
  bool is_constant(const void* p) const;

  std::map<const Buffer*, std::pair<std::weak_ptr<Buffer>, std::unique_ptr<Shadow>>> shadows_;
  std::map<const Buffer*, std::vector<std::pair<const EncoderOrder*, uint32_t>>> written_;  // encoder and interval
  Shadow threadgroup_shadow_;
  unsigned char* threadgroup_memory_ = nullptr;
  std::vector<Region> regions_;
  size_t last_ = 0;
  std::vector<std::pair<const unsigned char*, size_t>> constants_;
  std::deque<Past> past_;
  uint32_t past_first_ = 1;  // number of past_[0]
  uint32_t number_ = 0;      // of the running dispatch
  uint32_t group_ = 0, run_ = 0;
  std::unordered_set<uint64_t> reported_;
  uint64_t reported_generation_ = 0;
};

}  // namespace honeycrisp::backend::metal::soft
