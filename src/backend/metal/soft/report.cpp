#include "backend/metal/soft/report.h"

#include <fmt/format.h>

namespace honeycrisp::backend::metal::soft {
namespace {
constexpr const char* kNames[] = {
    "out of bounds",      "write to read-only memory",
    "misaligned address", "bad index",
    "uninitialised",      "threadgroup race",
    "device race",        "grid race",
    "missing barrier",    "missing fence",
    "barrier divergence", "barrier missed",
    "simd divergence",    "inactive lane",
    "threadgroup memory", "binding",
    "host access",
};

std::string describe(const Place& p) {
  std::string s = p.kernel.empty() ? "the host" : p.kernel;
  if (!p.access.empty()) s += " " + p.access;
  if (!p.file.empty()) s += fmt::format(" at {}:{}", p.file, p.line);
  if (!p.kernel.empty())
    s += fmt::format(", threadgroup {} {} {}, thread {} {} {}", p.threadgroup[0], p.threadgroup[1], p.threadgroup[2],
                     p.thread[0], p.thread[1], p.thread[2]);
  return s;
}
}  // namespace

const char* to_string(Fault f) { return kNames[size_t(f)]; }

std::string to_string(const Report& r) {
  std::string s = fmt::format("{}: {}: {}", to_string(r.fault), r.detail, describe(r.place));
  if (r.other) s += "; " + describe(*r.other);
  return s;
}

bool ReportLog::add(Report r) {
  const std::lock_guard lock(mutex_);
  ++met_;
  const Place none, &other = r.other ? *r.other : none;
  const std::string& where = r.place.file.empty() ? r.detail : r.place.file;  // a stripped binary knows no places
  if (reports_.size() >= limit_ ||
      !seen_.insert({r.fault, r.place.kernel, where, r.place.line, other.kernel, other.file, other.line}).second)
    return false;
  reports_.push_back(std::move(r));
  return true;
}

std::vector<Report> ReportLog::all() const {
  const std::lock_guard lock(mutex_);
  return reports_;
}

uint64_t ReportLog::met() const {
  const std::lock_guard lock(mutex_);
  return met_;
}

void ReportLog::count() {
  const std::lock_guard lock(mutex_);
  ++met_;
}

uint64_t ReportLog::generation() const {
  const std::lock_guard lock(mutex_);
  return generation_;
}

void ReportLog::clear() {
  const std::lock_guard lock(mutex_);
  reports_.clear();
  seen_.clear();
  met_ = 0;
  ++generation_;
}

}  // namespace honeycrisp::backend::metal::soft
