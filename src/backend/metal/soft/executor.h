// Runs command buffers in the order of their commit: on a thread of its own, with a pool over the threadgroups of all
// dispatches that may run at once, or, checking, one threadgroup after the other under the checker's eyes.
#pragma once

#include "backend/cpu/thread_pool.h"
#include "backend/metal/soft/checker.h"
#include "backend/metal/soft/device.h"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

namespace honeycrisp::backend::metal::soft {

struct CommandBuffer::State {
  std::mutex mutex;
  std::condition_variable changed;
  Status status = Status::kEncoding;
  Result<void> result;
  std::vector<Dispatch> dispatches;
  std::vector<std::shared_ptr<EncoderOrder>> encoders;
  std::vector<std::function<void(CommandBuffer&)>> handlers;
  std::vector<std::pair<std::weak_ptr<Buffer>, bool>> uses;  // checking: until observed; and whether it is written
  uint32_t open_encoders = 0;
  uint64_t number = 0;    // of the commit
  bool finished = false;  // and the handlers have returned
  double seconds = 0;
};

class Executor {
 public:
  static Result<std::unique_ptr<Executor>> create(const DeviceOptions&, std::shared_ptr<ReportLog>);
  ~Executor();

  bool on_own_thread() const { return std::this_thread::get_id() == thread_.get_id(); }
  void submit(std::shared_ptr<CommandBuffer>);
  uint64_t next_encoder();
  /// The host knows that a command buffer has completed, and so all that were committed before it: their buffers are
  /// the host's again.
  void observe(const CommandBuffer::State&);

 private:
  Executor(const DeviceOptions&, std::shared_ptr<ReportLog>);
  void serve();
  Result<void> run(const std::vector<Dispatch>&);
  Result<void> run_at_once(std::span<const Dispatch>);
  Result<void> run_checked(const std::vector<Dispatch>&);
  Error abandoned(const Dispatch&);

  const DeviceOptions options_;
  const std::shared_ptr<ReportLog> log_;
  cpu::ThreadPool pool_;
  std::vector<std::unique_ptr<Worker>> workers_;  // of the pool's threads
  std::vector<FaultReporter> reporters_;
  std::unique_ptr<Checker> checker_;
  uint32_t random_ = 0;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<CommandBuffer>> queue_;
  std::deque<std::shared_ptr<CommandBuffer::State>> unobserved_;  // checking: what was committed, in order
  uint64_t encoders_ = 0, commits_ = 0, completed_ = 0;           // completed_: number of the last commit known to have
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace honeycrisp::backend::metal::soft
