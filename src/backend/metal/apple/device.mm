// The Device of device.h over Apple's Metal framework: Objective-C++ with ARC. Owns the queue, the compiled libraries,
// the archive of compiled pipelines and the residency set. Knows nothing of ops, and nothing of what compiled and ran
// it: on Linux the tests build this file against a look-alike framework over the software device
// (tests/metal/framework). It has not run on Apple hardware.
//
// Every method that makes Objective-C objects and every destructor that lets go of them has an autorelease pool of its
// own: callers are C++ threads without one. Encoding makes none.
#include "backend/metal/apple/device.h"

#include "backend/metal/apple/archive_file.h"
#include "backend/metal/apple/kernel_text.h"
#include "base/check.h"
#include "base/log.h"
#include "base/text_escape.h"

#import <Foundation/Foundation.h>
#import <Metal/Metal.h>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <unistd.h>
#include <utility>

// Residency sets and math modes came with the SDK of macOS 15; the running system is asked as well.
#if __has_include(<Metal/MTLResidencySet.h>)
#define HC_SDK_OF_MACOS_15 1
#else
#define HC_SDK_OF_MACOS_15 0
#endif

namespace honeycrisp::backend::metal {
namespace {

NSString* text_of(const std::string& text) {
  return [NSString stringWithCString:text.c_str() encoding:NSUTF8StringEncoding];
}

/// One line; the compiler's messages are several.
std::string text_of(NSError* error) {
  NSString* description = error.localizedDescription;
  if (!description || !description.UTF8String) return "no reason given";
  std::string text = description.UTF8String;
  while (!text.empty() && (text.back() == '\n' || text.back() == '.')) text.pop_back();
  for (size_t at = 0; (at = text.find('\n', at)) != std::string::npos; at += 3) text.replace(at, 1, " | ");
  return text;
}

MTLSize size_of(Size s) { return MTLSizeMake(s.x, s.y, s.z); }

/// What the device keeps resident: every buffer, while there is work and for an idle time after it; then the memory is
/// anybody's, until the next work. Without it the driver makes resident, for each command buffer, what that binds:
/// seconds after an idle while for gigabytes of weights. Nothing where the system has no residency sets.
class Residency {
 public:
  Residency(id<MTLDevice> device, id<MTLCommandQueue> queue, std::chrono::milliseconds idle) : idle_(idle) {
#if HC_SDK_OF_MACOS_15
    if (@available(macOS 15, *)) {
      MTLResidencySetDescriptor* descriptor = [[MTLResidencySetDescriptor alloc] init];
      descriptor.label = @"honeycrisp";
      set_ = [device newResidencySetWithDescriptor:descriptor error:nil];  // without it all runs, only slower
      if (!set_) return;
      [queue addResidencySet:set_];
      watcher_ = std::thread([this] { watch(); });
    }
#else
    (void)device, (void)queue;
#endif
  }
  ~Residency() {
#if HC_SDK_OF_MACOS_15
    if (@available(macOS 15, *)) {
      {
        std::lock_guard lock(mutex_);
        ended_ = true;
      }
      changed_state_.notify_all();
      if (watcher_.joinable()) watcher_.join();
      @autoreleasepool {
        [set_ endResidency];
        set_ = nil;
      }
    }
#endif
  }
  void add(id<MTLBuffer> buffer) {
#if HC_SDK_OF_MACOS_15
    if (@available(macOS 15, *)) {
      std::lock_guard lock(mutex_);
      [set_ addAllocation:buffer];
      changed_ = true;
    }
#else
    (void)buffer;
#endif
  }
  /// At once: the set would keep the memory.
  void remove(id<MTLBuffer> buffer) {
#if HC_SDK_OF_MACOS_15
    if (@available(macOS 15, *)) {
      std::lock_guard lock(mutex_);
      [set_ removeAllocation:buffer];
      [set_ commit];
    }
#else
    (void)buffer;
#endif
  }
  /// Before a command buffer is committed: what was added takes effect, and all is resident.
  void begin_work() {
#if HC_SDK_OF_MACOS_15
    if (@available(macOS 15, *)) {
      std::lock_guard lock(mutex_);
      ++working_;
      if (changed_) [set_ commit];
      if (changed_ || !resident_) [set_ requestResidency];
      changed_ = false;
      resident_ = true;
    }
#endif
  }
  /// Once for each begin_work(): the command buffer has completed, or nobody will know of it.
  void end_work() {
#if HC_SDK_OF_MACOS_15
    {
      std::lock_guard lock(mutex_);
      --working_;
      idle_since_ = Clock::now();
    }
    changed_state_.notify_all();
#endif
  }

 private:
#if HC_SDK_OF_MACOS_15
  using Clock = std::chrono::steady_clock;
  bool is_idle() const { return resident_ && working_ == 0; }
  void watch() {
    if (@available(macOS 15, *)) {
      std::unique_lock lock(mutex_);
      while (!ended_) {
        if (!is_idle()) {
          changed_state_.wait(lock, [this] { return ended_ || is_idle(); });
        } else if (const auto end = idle_since_ + idle_; Clock::now() < end) {
          changed_state_.wait_until(lock, end, [this] { return ended_; });
        } else {
          @autoreleasepool {
            [set_ endResidency];
          }
          resident_ = false;
        }
      }
    }
  }

  id<MTLResidencySet> set_ API_AVAILABLE(macos(15)) = nil;
  std::mutex mutex_;
  std::condition_variable changed_state_;
  std::thread watcher_;
  bool changed_ = false;   // allocations were added since the last commit of the set
  bool resident_ = false;  // residency is requested
  bool ended_ = false;
  uint64_t working_ = 0;  // command buffers
  Clock::time_point idle_since_;
#endif
  const std::chrono::milliseconds idle_;
};

/// Compiled pipelines that outlive the process: what Metal makes of a kernel's text for this GPU, in a file. The text
/// itself is compiled in each run, which takes much less.
class Archive {
 public:
  void open(id<MTLDevice> device, ArchiveFile file) {
    std::lock_guard lock(mutex_);
    if (file_ && file_->path() == file.path()) return;
    file_ = std::move(file);
    archive_ = nil;
    unsaved_ = false;
    MTLBinaryArchiveDescriptor* descriptor = [[MTLBinaryArchiveDescriptor alloc] init];
    NSError* error = nil;
    if (file_->exists()) {
      descriptor.url = url_of(file_->path());
      archive_ = [device newBinaryArchiveWithDescriptor:descriptor error:&error];
      if (archive_) return;
      log_warning("{}: the kept Metal pipelines cannot be used and are compiled again: {}",
                  escape_for_display(file_->path()), text_of(error));
      descriptor.url = nil;
      error = nil;
    }
    archive_ = [device newBinaryArchiveWithDescriptor:descriptor error:&error];
    if (!archive_) log_warning("Metal pipelines are not kept: {}", text_of(error));
  }

  /// From the archive, or compiled and put there.
  id<MTLComputePipelineState> pipeline(id<MTLDevice> device, id<MTLFunction> function,
                                       NSError* __autoreleasing* error) {
    MTLComputePipelineDescriptor* descriptor = [[MTLComputePipelineDescriptor alloc] init];
    descriptor.computeFunction = function;
    std::lock_guard lock(mutex_);
    if (archive_) {
      descriptor.binaryArchives = @[ archive_ ];
      id<MTLComputePipelineState> kept =
          [device newComputePipelineStateWithDescriptor:descriptor
                                                options:MTLPipelineOptionFailOnBinaryArchiveMiss
                                             reflection:nil
                                                  error:nil];
      if (kept) return kept;
      // Compiled by being added; the pipeline is then found in the archive, not compiled a second time.
      if ([archive_ addComputePipelineFunctionsWithDescriptor:descriptor error:nil]) unsaved_ = true;
    }
    return [device newComputePipelineStateWithDescriptor:descriptor
                                                 options:MTLPipelineOptionNone
                                              reflection:nil
                                                   error:error];
  }

  void close() {
    std::lock_guard lock(mutex_);
    archive_ = nil;
  }
  void store() {
    std::lock_guard lock(mutex_);
    if (!unsaved_) return;
    unsaved_ = false;
    const auto stored = file_->replace([&](const std::string& path) -> Result<void> {
      NSError* error = nil;
      if ([archive_ serializeToURL:url_of(path) error:&error]) return {};
      return fail(ErrorCode::kIo, "{}: {}", escape_for_display(path), text_of(error));
    });
    if (stored) return;
    log_warning("Metal pipelines are not kept: {}", stored.error().message);
    archive_ = nil;  // nor tried again
  }

 private:
  static NSURL* url_of(const std::string& path) { return [NSURL fileURLWithPath:text_of(path)]; }

  std::mutex mutex_;
  std::optional<ArchiveFile> file_;
  id<MTLBinaryArchive> archive_ = nil;  // none: nothing is kept
  bool unsaved_ = false;
};

class AppleBuffer final : public Buffer {
 public:
  AppleBuffer(id<MTLBuffer> buffer, uint64_t bytes, std::shared_ptr<Residency> residency)
      : buffer_(buffer), bytes_(bytes), residency_(std::move(residency)) {
    residency_->add(buffer_);
  }
  ~AppleBuffer() override {
    @autoreleasepool {
      residency_->remove(buffer_);
      buffer_ = nil;  // here, and not after the pool
    }
  }
  uint64_t bytes() const override { return bytes_; }
  std::byte* contents() override { return static_cast<std::byte*>(buffer_.contents); }
  id<MTLBuffer> get() const { return buffer_; }

 private:
  id<MTLBuffer> buffer_;
  const uint64_t bytes_;
  std::shared_ptr<Residency> residency_;
};

class ApplePipeline final : public Pipeline {
 public:
  ApplePipeline(id<MTLComputePipelineState> state, std::string name) : state_(state), name_(std::move(name)) {}
  ~ApplePipeline() override {
    @autoreleasepool {
      state_ = nil;
    }
  }
  uint32_t most_threads() const override { return uint32_t(state_.maxTotalThreadsPerThreadgroup); }
  std::string_view name() const override { return name_; }
  id<MTLComputePipelineState> get() const { return state_; }

 private:
  id<MTLComputePipelineState> state_;
  const std::string name_;
};

class AppleEncoder final : public Encoder {
 public:
  explicit AppleEncoder(id<MTLComputeCommandEncoder> encoder) : encoder_(encoder) {}

  void set_pipeline(const Pipeline& pipeline) override {
    [encoder_ setComputePipelineState:static_cast<const ApplePipeline&>(pipeline).get()];
  }
  void set_buffer(uint32_t index, const View& view) override {
    [encoder_ setBuffer:static_cast<AppleBuffer*>(view.buffer)->get() offset:view.offset atIndex:index];
  }
  void set_bytes(uint32_t index, std::span<const std::byte> bytes) override {
    [encoder_ setBytes:bytes.data() length:bytes.size() atIndex:index];
  }
  void set_threadgroup_memory(uint32_t index, uint32_t bytes) override {
    [encoder_ setThreadgroupMemoryLength:bytes atIndex:index];
  }
  void dispatch(Size threadgroups, Size threads) override {
    [encoder_ dispatchThreadgroups:size_of(threadgroups) threadsPerThreadgroup:size_of(threads)];
  }
  void barrier() override { [encoder_ memoryBarrierWithScope:MTLBarrierScopeBuffers]; }
  /// Before its end: Metal asserts that no encoder goes away unended.
  void end() {
    [encoder_ endEncoding];
    encoder_ = nil;
  }

 private:
  id<MTLComputeCommandEncoder> encoder_;
};

class AppleCommandBuffer final : public CommandBuffer {
 public:
  AppleCommandBuffer(id<MTLCommandBuffer> commands, id<MTLComputeCommandEncoder> encoder, std::string label,
                     std::shared_ptr<Residency> residency)
      : commands_(commands), encoder_(encoder), label_(std::move(label)), residency_(std::move(residency)) {}

  // What the members' ends autorelease needs a pool; their own destructors run after this one's.
  ~AppleCommandBuffer() override {
    @autoreleasepool {
      encoder_.end();
      commands_ = nil;
    }
    if (working_) residency_->end_work();
  }

  Encoder& encoder() override { return encoder_; }
  void commit() override {
    @autoreleasepool {
      residency_->begin_work();
      working_ = true;
      encoder_.end();
      [commands_ commit];
    }
  }
  Result<void> wait() override {
    @autoreleasepool {
      [commands_ waitUntilCompleted];
      if (std::exchange(working_, false)) residency_->end_work();
      if (commands_.status == MTLCommandBufferStatusCompleted) return {};
      NSError* error = commands_.error;
      return fail(ErrorCode::kInternal, "{}: the command buffer failed (status {}, code {}): {}", label_,
                  int(commands_.status), error ? long(error.code) : 0l, text_of(error));
    }
  }
  double gpu_seconds() const override {
    const double seconds = commands_.GPUEndTime - commands_.GPUStartTime;
    return seconds > 0 ? seconds : 0;
  }

 private:
  id<MTLCommandBuffer> commands_;
  AppleEncoder encoder_;
  const std::string label_;
  std::shared_ptr<Residency> residency_;
  bool working_ = false;  // committed, and not waited for yet
};

std::string name_of(std::string_view kernel, std::span<const Constant> constants) {
  std::string name(kernel);
  for (const Constant& c : constants) {
    float value;
    std::memcpy(&value, &c.bits, sizeof value);
    name += c.type == Constant::Type::kFloat ? fmt::format(" {}={}", c.index, value)
                                             : fmt::format(" {}={}", c.index, c.bits);
  }
  return name;
}

class AppleDevice final : public Device {
 public:
  AppleDevice(id<MTLDevice> device, id<MTLCommandQueue> queue, const SystemDeviceOptions& options)
      : device_(device), queue_(queue), residency_(std::make_shared<Residency>(device, queue, options.idle)) {}
  ~AppleDevice() override {
    @autoreleasepool {
      libraries_.clear();
      archive_.close();
      queue_ = nil;
      device_ = nil;
    }
  }

  std::string describe() const override {
    @autoreleasepool {
      return fmt::format("{}, buffers of at most {} MiB, {} MiB recommended", device_.name.UTF8String,
                         most_buffer_bytes() >> 20, recommended_memory_bytes() >> 20);
    }
  }
  uint64_t most_buffer_bytes() const override { return device_.maxBufferLength; }
  uint64_t recommended_memory_bytes() const override { return device_.recommendedMaxWorkingSetSize; }

  Result<std::shared_ptr<Buffer>> allocate(uint64_t bytes, std::string label) override {
    @autoreleasepool {
      HC_TRY(check_length(bytes, label));
      id<MTLBuffer> buffer = [device_ newBufferWithLength:bytes options:kOptions];
      if (!buffer)
        return fail(ErrorCode::kOutOfMemory, "{}: Metal gives no buffer of {} bytes ({} bytes are recommended in all)",
                    label, bytes, recommended_memory_bytes());
      return labelled(buffer, bytes, label);
    }
  }

  /// Upon an error `release` is not called: the memory is the caller's still.
  Result<std::shared_ptr<Buffer>> wrap(std::byte* memory, uint64_t bytes, std::function<void()> release,
                                       std::string label) override {
    @autoreleasepool {
      HC_TRY(check_length(bytes, label));
      const auto page = uint64_t(getpagesize());
      if (reinterpret_cast<uintptr_t>(memory) % page != 0)
        return invalid("{}: memory to wrap must begin at a multiple of {} bytes, not at {}", label, page,
                       static_cast<void*>(memory));
      // Metal wants whole pages; the rest of the last one belongs to the same mapping.
      const uint64_t whole = (bytes + page - 1) / page * page;
      const auto released = [release = std::move(release)](void*, NSUInteger) {
        if (release) release();
      };
      id<MTLBuffer> buffer = [device_ newBufferWithBytesNoCopy:memory
                                                        length:whole
                                                       options:kOptions
                                                   deallocator:^(void* pointer, NSUInteger length) {
                                                     released(pointer, length);
                                                   }];
      if (!buffer) return fail(ErrorCode::kOutOfMemory, "{}: Metal cannot wrap {} bytes of memory", label, whole);
      return labelled(buffer, bytes, label);
    }
  }

  Result<std::shared_ptr<const Pipeline>> pipeline(std::string_view file, std::string_view kernel,
                                                   std::span<const Constant> constants) override {
    @autoreleasepool {
      const std::string name = name_of(kernel, constants);
      HC_ASSIGN(id<MTLLibrary> library, library_of(file));
      MTLFunctionConstantValues* values = [[MTLFunctionConstantValues alloc] init];
      for (const Constant& c : constants) {
        const bool flag = c.bits != 0;
        switch (c.type) {
          case Constant::Type::kBool: [values setConstantValue:&flag type:MTLDataTypeBool atIndex:c.index]; break;
          case Constant::Type::kUint: [values setConstantValue:&c.bits type:MTLDataTypeUInt atIndex:c.index]; break;
          case Constant::Type::kFloat: [values setConstantValue:&c.bits type:MTLDataTypeFloat atIndex:c.index]; break;
        }
      }
      NSError* error = nil;
      id<MTLFunction> function = [library newFunctionWithName:text_of(std::string(kernel))
                                               constantValues:values
                                                        error:&error];
      if (!function) return fail(ErrorCode::kInternal, "{}.metal: kernel {}: {}", file, name, text_of(error));
      error = nil;
      id<MTLComputePipelineState> state = archive_.pipeline(device_, function, &error);
      if (!state) return fail(ErrorCode::kInternal, "{}.metal: pipeline of {}: {}", file, name, text_of(error));
      if (state.threadExecutionWidth != kSimdWidth)
        return unsupported("{}.metal: pipeline of {}: simdgroups of {} threads, the kernels need {}", file, name,
                           state.threadExecutionWidth, kSimdWidth);
      return std::make_shared<ApplePipeline>(state, name);
    }
  }

  Result<std::unique_ptr<CommandBuffer>> command_buffer(std::string label) override {
    @autoreleasepool {
      id<MTLCommandBuffer> commands = [queue_ commandBuffer];  // retains what it uses
      if (!commands) return fail(ErrorCode::kInternal, "{}: Metal gives no command buffer", label);
      commands.label = text_of(label);
      id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoderWithDispatchType:MTLDispatchTypeConcurrent];
      if (!encoder) return fail(ErrorCode::kInternal, "{}: Metal gives no compute encoder", label);
      return std::make_unique<AppleCommandBuffer>(commands, encoder, std::move(label), residency_);
    }
  }

  void keep_pipelines_in(const std::string& folder) override {
    @autoreleasepool {
      archive_.open(device_, ArchiveFile(folder, device_.name.UTF8String,
                                         NSProcessInfo.processInfo.operatingSystemVersionString.UTF8String));
    }
  }
  void store_pipelines() override {
    @autoreleasepool {
      archive_.store();
    }
  }

 private:
  // Shared: one memory for both processors. Tracked: Metal then orders command buffers that share a buffer. Within the
  // one concurrent encoder of each, tracking orders nothing and StepEncoder's barriers do.
  static constexpr MTLResourceOptions kOptions = MTLResourceStorageModeShared;

  Result<void> check_length(uint64_t bytes, const std::string& label) const {
    if (bytes == 0) return invalid("{}: a buffer cannot have 0 bytes", label);
    if (bytes > most_buffer_bytes())
      return unsupported("{}: {} bytes are more than the {} of the device's largest buffer", label, bytes,
                         most_buffer_bytes());
    return {};
  }

  std::shared_ptr<Buffer> labelled(id<MTLBuffer> buffer, uint64_t bytes, const std::string& label) {
    buffer.label = text_of(label);
    return std::make_shared<AppleBuffer>(buffer, bytes, residency_);
  }

  Result<id<MTLLibrary>> library_of(std::string_view file) {
    std::lock_guard lock(mutex_);
    if (const auto found = libraries_.find(file); found != libraries_.end()) return found->second;
    HC_ASSIGN(const std::string source, kernel_text(file));
    MTLCompileOptions* options = [[MTLCompileOptions alloc] init];
    options.languageVersion = MTLLanguageVersion3_1;  // bfloat
    set_exact(options);
    NSError* error = nil;
    id<MTLLibrary> library = [device_ newLibraryWithSource:text_of(source) options:options error:&error];
    if (!library)
      return fail(ErrorCode::kInternal, "{}.metal ({} bytes) does not compile: {}", file, source.size(),
                  text_of(error));
    libraries_.emplace(file, library);
    return library;
  }

  /// Nothing reordered, NaN and infinities kept. Contraction has no option: kernel_text() forbids it.
  static void set_exact(MTLCompileOptions* options) {
#if HC_SDK_OF_MACOS_15
    if (@available(macOS 15, *)) {
      options.mathMode = MTLMathModeSafe;
      return;
    }
#endif
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wdeprecated-declarations"
    options.fastMathEnabled = NO;
#pragma clang diagnostic pop
  }

  id<MTLDevice> device_;
  id<MTLCommandQueue> queue_;
  const std::shared_ptr<Residency> residency_;
  Archive archive_;
  std::mutex mutex_;
  std::map<std::string, id<MTLLibrary>, std::less<>> libraries_;  // by file
};

}  // namespace

Result<std::shared_ptr<Device>> system_device(const SystemDeviceOptions& options) {
  static std::mutex mutex;
  static std::weak_ptr<Device> made;
  std::lock_guard lock(mutex);
  if (auto device = made.lock()) return device;
  @autoreleasepool {
    id<MTLDevice> device = MTLCreateSystemDefaultDevice();
    if (!device) return unsupported("this system has no Metal device");
    if (@available(macOS 14, *)) {
    } else {
      return unsupported("{}: the kernels need Metal 3.1, that is macOS 14", device.name.UTF8String);
    }
    // Simdgroup matrices, and simdgroups of 32 in one memory with the processor.
    if (![device supportsFamily:MTLGPUFamilyApple7])
      return unsupported("{}: the kernels need a GPU of Apple's family 7 (M1) or later", device.name.UTF8String);
    id<MTLCommandQueue> queue = [device newCommandQueue];
    if (!queue) return fail(ErrorCode::kInternal, "{}: Metal gives no command queue", device.name.UTF8String);
    auto result = std::make_shared<AppleDevice>(device, queue, options);
    made = result;
    return result;
  }
}

}  // namespace honeycrisp::backend::metal
