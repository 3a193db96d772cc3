#include "base/log.h"

#include <mutex>

namespace honeycrisp {
namespace {
std::mutex g_mutex;
LogHandler g_handler;
}  // namespace

void set_log_handler(LogHandler handler) {
  std::lock_guard lock(g_mutex);
  g_handler = std::move(handler);
}

void log_message(LogLevel level, const std::string& message) {
  std::lock_guard lock(g_mutex);
  if (g_handler) g_handler(level, message);
}

}  // namespace honeycrisp
