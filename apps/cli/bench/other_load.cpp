#include "cli/bench/other_load.h"

#include <algorithm>
#include <fstream>
#include <sys/resource.h>
#include <unistd.h>

namespace honeycrisp::cli {

std::optional<CpuTimes> cpu_times(const std::string& root) {
  std::ifstream stat(root + "/proc/stat");
  std::string name;
  if (!(stat >> name) || name != "cpu") return std::nullopt;
  // user nice system idle iowait irq softirq steal; guests' time, which follows, is part of the first two.
  enum { kIdle = 3, kWaiting = 4, kFields = 8 };
  const double ticks_per_second = double(::sysconf(_SC_CLK_TCK));
  CpuTimes times;
  for (int field = 0; field < kFields; ++field) {
    double ticks = 0;
    if (!(stat >> ticks)) return std::nullopt;
    times.all += ticks / ticks_per_second;
    if (field != kIdle && field != kWaiting) times.busy += ticks / ticks_per_second;
  }
  struct rusage usage{};
  if (::getrusage(RUSAGE_SELF, &usage) != 0) return std::nullopt;
  for (const timeval& time : {usage.ru_utime, usage.ru_stime})
    times.own += double(time.tv_sec) + double(time.tv_usec) * 1e-6;
  return times;
}

double percent_of_others(const CpuTimes& before, const CpuTimes& now) {
  const double all = now.all - before.all, others = (now.busy - before.busy) - (now.own - before.own);
  return all <= 0 ? 0 : 100 * std::clamp(others / all, 0.0, 1.0);
}

std::optional<double> OtherLoad::percent() const {
  const std::optional<CpuTimes> now = cpu_times();
  if (!start_ || !now) return std::nullopt;
  return percent_of_others(*start_, *now);
}

}  // namespace honeycrisp::cli
