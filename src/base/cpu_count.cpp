#include "base/cpu_count.h"

#include "base/cgroup.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <optional>
#include <set>
#include <sstream>
#include <string_view>
#include <thread>
#include <vector>

namespace honeycrisp {
namespace {

constexpr uint32_t kMostCpus = 1u << 16;  // a malformed list shall not become a huge one

std::optional<std::string> read_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  return line;
}

std::optional<int64_t> parse_number(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end == text.data()) return std::nullopt;
  return value;
}

// "0-3,8,10-11"; empty where it is malformed.
std::vector<uint32_t> parse_cpu_list(const std::string& text) {
  std::vector<uint32_t> cpus;
  std::stringstream ranges(text);
  for (std::string range; std::getline(ranges, range, ',');) {
    const size_t dash = range.find('-');
    const auto first = parse_number(range);
    const auto last = dash == std::string::npos ? first : parse_number(std::string_view(range).substr(dash + 1));
    if (!first || !last || *first < 0 || *last < *first || *last >= kMostCpus) return {};
    for (int64_t cpu = *first; cpu <= *last; ++cpu) cpus.push_back(uint32_t(cpu));
  }
  return cpus;
}

std::vector<uint32_t> allowed_cpus(const std::string& root) {
  constexpr std::string_view kKey = "Cpus_allowed_list:";
  std::ifstream status(root + "/proc/thread-self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind(kKey, 0) != 0) continue;
    const size_t value = line.find_first_not_of(" \t", kKey.size());
    return value == std::string::npos ? std::vector<uint32_t>{} : parse_cpu_list(line.substr(value));
  }
  return {};
}

uint32_t physical_cores(const std::string& root, const std::vector<uint32_t>& cpus) {
  std::set<std::string> cores;  // the list of its hyper-threads names a core
  for (uint32_t cpu : cpus) {
    const std::string topology = root + "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/";
    auto siblings = read_line(topology + "core_cpus_list");
    if (!siblings) siblings = read_line(topology + "thread_siblings_list");
    cores.insert(siblings ? *siblings : std::to_string(cpu));
  }
  return uint32_t(cores.size());
}

// "200000 100000" or "max 100000"
std::optional<double> quota_v2(const std::string& directory) {
  const auto line = read_line(directory + "/cpu.max");
  if (!line) return std::nullopt;
  const auto quota = parse_number(*line);
  const size_t space = line->find(' ');
  const auto period =
      space == std::string::npos ? std::nullopt : parse_number(std::string_view(*line).substr(space + 1));
  if (!quota || !period || *quota <= 0 || *period <= 0) return std::nullopt;
  return double(*quota) / double(*period);
}

std::optional<double> quota_v1(const std::string& directory) {
  const auto quota = read_line(directory + "/cpu.cfs_quota_us"), period = read_line(directory + "/cpu.cfs_period_us");
  const auto q = quota ? parse_number(*quota) : std::nullopt, p = period ? parse_number(*period) : std::nullopt;
  if (!q || !p || *q <= 0 || *p <= 0) return std::nullopt;  // −1: no limit
  return double(*q) / double(*p);
}

// The least quota of the group and its ancestors.
double cgroup_quota(const std::string& root) {
  double least = INFINITY;
  for (const CgroupFolder& folder : cgroup_folders(root, "cpu")) {
    const auto quota = folder.v2 ? quota_v2(folder.path) : quota_v1(folder.path);
    if (quota) least = std::min(least, *quota);
  }
  return least;
}

}  // namespace

uint32_t usable_cores(const std::string& root) {
  uint32_t cores = physical_cores(root, allowed_cpus(root));
  if (cores == 0) cores = std::max(1u, std::thread::hardware_concurrency());
  const double quota = std::floor(cgroup_quota(root));  // a thread more would be throttled and hold up all others
  return quota < cores ? std::max(1u, uint32_t(quota)) : cores;
}

}  // namespace honeycrisp
