#include "backend/metal/soft/buffer.h"

#include "backend/metal/soft/symbolize.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>
#include <vector>

namespace honeycrisp::backend::metal::soft {
namespace {

size_t page_bytes() {
  static const size_t bytes = size_t(sysconf(_SC_PAGESIZE));
  return bytes;
}

// Buffers whose host mapping may be closed, for the signal handler.
std::mutex registry_mutex;
std::vector<Buffer*>& registry() {
  static auto* buffers = new std::vector<Buffer*>;  // outlives everything: a signal may come at exit
  return *buffers;
}
struct sigaction previous_action;

}  // namespace

/// A host access that `protect` closed. The faulting code is the caller's, which holds none of our locks.
bool handle_fault(void* address, bool write, const void* pc) {
  Report report;
  std::shared_ptr<ReportLog> log;
  {
    const std::lock_guard lock(registry_mutex);
    auto* at = static_cast<unsigned char*>(address);
    const auto it = std::find_if(registry().begin(), registry().end(),
                                 [&](const Buffer* b) { return at >= b->host_ && at < b->host_ + b->mapped_; });
    if (it == registry().end() || (*it)->protection_ == (PROT_READ | PROT_WRITE)) return false;
    Buffer& b = **it;
    report = {Fault::kHostAccess,
              fmt::format(
                  "the host {} byte {} of buffer {} before it knows that the command buffer which {} it has completed",
                  write ? "writes" : "reads", at - b.host_, b.label_.empty() ? "(no label)" : b.label_,
                  b.writers_ ? "writes" : "reads"),
              {},
              std::nullopt};
    log = b.checking_;
    b.protection_ = PROT_READ | PROT_WRITE;  // reported once; the access is made
    mprotect(b.host_, b.mapped_, b.protection_);
  }
  const SourceLine line = source_line_of_return(static_cast<const char*>(pc) + 1);
  report.place.file = line.file;
  report.place.line = line.line;
  log->add(std::move(report));
  return true;
}

namespace {

void on_fault(int signal, siginfo_t* info, void* context) {
  const auto* c = static_cast<ucontext_t*>(context);
  const bool write = (c->uc_mcontext.gregs[REG_ERR] & 2) != 0;
  if (handle_fault(info->si_addr, write, reinterpret_cast<const void*>(c->uc_mcontext.gregs[REG_RIP]))) return;
  if (previous_action.sa_flags & SA_SIGINFO) {
    previous_action.sa_sigaction(signal, info, context);
  } else if (previous_action.sa_handler == SIG_DFL || previous_action.sa_handler == SIG_IGN) {
    ::signal(signal, SIG_DFL);  // the access is made again and ends the process
  } else {
    previous_action.sa_handler(signal);
  }
}

void install_handler() {
  static std::once_flag once;
  std::call_once(once, [] {
    struct sigaction action{};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    sigaction(SIGSEGV, &action, &previous_action);
  });
}

/// Pages of `file` (or anonymous ones) between two that cannot be touched.
unsigned char* map_guarded(size_t mapped, int file) {
  const size_t page = page_bytes();
  void* all = mmap(nullptr, mapped + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (all == MAP_FAILED) return nullptr;
  auto* inside = static_cast<unsigned char*>(all) + page;
  const int flags = MAP_FIXED | (file < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED);
  if (mmap(inside, mapped, PROT_READ | PROT_WRITE, flags, file, 0) != MAP_FAILED) return inside;
  munmap(all, mapped + 2 * page);
  return nullptr;
}

void unmap_guarded(unsigned char* inside, size_t mapped) {
  if (inside) munmap(inside - page_bytes(), mapped + 2 * page_bytes());
}

}  // namespace

Result<std::shared_ptr<Buffer>> Buffer::allocate(size_t bytes, Hazards hazards, std::shared_ptr<ReportLog> checking) {
  if (bytes == 0) return invalid("a buffer of 0 bytes");
  const size_t page = page_bytes();
  std::shared_ptr<Buffer> b(new Buffer);
  if (bytes > SIZE_MAX / 2) return Fail(ErrorCode::kOutOfMemory, fmt::format("a buffer of {} bytes", bytes));
  b->length_ = bytes;
  b->mapped_ = (bytes + page - 1) / page * page;
  b->hazards_ = hazards;
  b->owned_ = true;
  if (checking) {
    b->file_ = memfd_create("metal buffer", MFD_CLOEXEC);
    if (b->file_ < 0 || ftruncate(b->file_, off_t(b->mapped_)) != 0)
      return Fail(ErrorCode::kOutOfMemory, fmt::format("a buffer of {} bytes: {}", bytes, std::strerror(errno)));
  }
  b->host_ = map_guarded(b->mapped_, b->file_);
  if (!b->host_)
    return Fail(ErrorCode::kOutOfMemory, fmt::format("a buffer of {} bytes: {}", bytes, std::strerror(errno)));
  if (checking) {
    std::memset(b->host_, 0xff, b->mapped_);
    b->checking_ = std::move(checking);
    install_handler();
    const std::lock_guard lock(registry_mutex);
    registry().push_back(b.get());
  }
  return b;
}

Result<std::shared_ptr<Buffer>> Buffer::wrap(void* memory, size_t bytes, std::function<void()> release,
                                             Hazards hazards) {
  const size_t page = page_bytes();
  if (!memory || bytes == 0 || reinterpret_cast<uintptr_t>(memory) % page != 0 || bytes % page != 0)
    return invalid("memory of {} bytes at {} cannot be wrapped: both must be multiples of the page size, {}", bytes,
                   memory, page);
  std::shared_ptr<Buffer> b(new Buffer);
  b->length_ = b->mapped_ = bytes;
  b->host_ = static_cast<unsigned char*>(memory);
  b->release_ = std::move(release);
  b->hazards_ = hazards;
  return b;
}

Buffer::~Buffer() {
  if (checking_) {
    const std::lock_guard lock(registry_mutex);
    std::erase(registry(), this);
  }
  if (owned_) {
    for (unsigned char* d : device_) unmap_guarded(d, mapped_);
    unmap_guarded(host_, mapped_);
  }
  if (file_ >= 0) close(file_);
  if (release_) release_();
}

unsigned char* Buffer::device_address(uint32_t index) {
  if (file_ < 0) return host_;
  if (!device_[index]) device_[index] = map_guarded(mapped_, file_);
  return device_[index];
}

void Buffer::begin_use(bool written) {
  if (!checking_) return;
  const std::lock_guard lock(registry_mutex);
  ++(written ? writers_ : readers_);
  protect();
}

void Buffer::end_use(bool written) {
  if (!checking_) return;
  const std::lock_guard lock(registry_mutex);
  --(written ? writers_ : readers_);
  protect();
}

void Buffer::protect() {
  const int wanted = writers_ ? PROT_NONE : readers_ ? PROT_READ : PROT_READ | PROT_WRITE;
  if (wanted == protection_) return;
  protection_ = wanted;
  mprotect(host_, mapped_, wanted);
}

}  // namespace honeycrisp::backend::metal::soft
