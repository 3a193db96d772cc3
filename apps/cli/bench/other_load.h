// How busy other processes kept the machine while something was measured: their load moves every figure. Knows Linux's
// account of the CPUs' time; elsewhere it knows nothing.
#pragma once

#include <optional>
#include <string>

namespace honeycrisp::cli {

/// Seconds of all CPUs together since some time in the past.
struct CpuTimes {
  double all = 0, busy = 0;  // busy: neither idle nor waiting for a disk; taken away by a hypervisor counts
  double own = 0;            // of this process
};
/// `root` is where the system's files are, for tests. Nothing if they are missing or say something else.
std::optional<CpuTimes> cpu_times(const std::string& root = "");

/// Share of what the CPUs had to give between the two that neither was idle nor went to this process, in percent.
double percent_of_others(const CpuTimes& before, const CpuTimes& now);

class OtherLoad {
 public:
  /// Since it was made, in percent of all CPUs; nothing where that is not known.
  std::optional<double> percent() const;

 private:
  std::optional<CpuTimes> start_ = cpu_times();
};

}  // namespace honeycrisp::cli
