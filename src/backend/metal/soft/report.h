// What the checking device finds, as data. Owns the list: each pair of places once, up to a limit. Knows no device.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

namespace honeycrisp::backend::metal::soft {

enum class Fault : uint8_t {
  kOutOfBounds,        // an access outside of every view that is bound
  kReadOnly,           // a write through a constant or const binding
  kMisaligned,         // an address that does not suit its type
  kBadIndex,           // past the end of an array of known length, a thread's own included
  kUninitialised,      // a read of threadgroup memory that the threadgroup has not written
  kThreadgroupRace,    // two threads of a threadgroup, threadgroup memory, no barrier between
  kDeviceRace,         // two threads of a threadgroup, device memory, no barrier between
  kGridRace,           // two threadgroups of a dispatch
  kMissingBarrier,     // two dispatches of a concurrent encoder
  kMissingFence,       // two encoders that nothing orders, on an untracked buffer
  kBarrierDivergence,  // threads of a threadgroup at different barriers
  kBarrierMissed,      // a barrier that some threads ended without reaching
  kSimdDivergence,     // lanes of a simdgroup at different simd functions or barriers
  kInactiveLane,       // a value taken from a lane that has ended, or that does not exist
  kThreadgroupMemory,  // more than a threadgroup has
  kBinding,            // a dispatch that lacks a buffer, or has one too short
  kHostAccess,         // the host touches a buffer that the device may be using
};
/// A short name, e.g. "threadgroup race".
const char* to_string(Fault);

/// One side of a fault.
struct Place {
  std::string kernel;  // empty: the host
  std::string file;    // empty if not known
  int line = 0;
  uint32_t threadgroup[3] = {0, 0, 0}, thread[3] = {0, 0, 0};
  std::string access;  // "reads 4 bytes at 12 of buffer(1) x", "simd function", ...
};

struct Report {
  Fault fault = Fault::kOutOfBounds;
  std::string detail;  // one sentence
  Place place;
  std::optional<Place> other;  // the earlier access, the other barrier
};
/// "threadgroup race: ... at rms_norm (rms_norm.metal:29, threadgroup 0 0 0, thread 3 0 0) ...".
std::string to_string(const Report&);

class ReportLog {
 public:
  explicit ReportLog(size_t limit) : limit_(limit) {}
  /// False if a report of this fault at these places is there already, or the limit is reached.
  bool add(Report);
  std::vector<Report> all() const;
  /// All faults met, those left out because of the limit or as repetitions included.
  uint64_t met() const;
  /// A fault that is known to be a repetition: only counted.
  void count();
  void clear();
  /// Changes with every clear().
  uint64_t generation() const;

 private:
  using Key = std::tuple<Fault, std::string, std::string, int, std::string, std::string, int>;
  mutable std::mutex mutex_;
  const size_t limit_;
  std::vector<Report> reports_;
  std::set<Key> seen_;
  uint64_t met_ = 0, generation_ = 0;
};

}  // namespace honeycrisp::backend::metal::soft
