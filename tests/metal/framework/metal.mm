// The look-alike's Metal: each class holds its counterpart of the software device. ARC.
#include "framework.h"

#import <Metal/Metal.h>
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <fstream>
#include <set>
#include <string>
#include <vector>

namespace soft = honeycrisp::backend::metal::soft;
namespace framework = honeycrisp::backend::metal::framework;

namespace {
framework::System& system_() {
  static framework::System system;
  return system;
}
std::atomic<long> resident, compiled;
constexpr char kGpu[] = "look-alike";
}  // namespace
void framework::set_system(System s) { system_() = std::move(s); }
long framework::resident_allocations() { return resident; }
long framework::compiled_pipelines() { return compiled; }

@interface NSError ()
- (instancetype)initWithText:(NSString*)text code:(NSInteger)code;
@end
static NSError* error_of(const std::string& text) {
  return [[NSError alloc] initWithText:[NSString stringWithCString:text.c_str() encoding:NSUTF8StringEncoding] code:1];
}

/// As Apple's methods may at any time; without a pool the runtime ends the process.
static void autorelease_something() { __autoreleasing id something [[maybe_unused]] = [NSObject new]; }

@interface LookalikeBuffer : NSObject <MTLBuffer>
@end
@implementation LookalikeBuffer {
 @public
  std::shared_ptr<soft::Buffer> buffer;
  NSString* label_;
}
- (void)dealloc {
  autorelease_something();
}
- (NSUInteger)length {
  return buffer->length();
}
- (void*)contents {
  return buffer->contents();
}
- (NSString*)label {
  return label_;
}
- (void)setLabel:(NSString*)label {
  label_ = label;
  buffer->set_label(label.UTF8String);
}
@end

@implementation MTLFunctionConstantValues {
 @public
  soft::FunctionConstants values;
}
- (void)setConstantValue:(const void*)value type:(MTLDataType)type atIndex:(NSUInteger)index {
  if (type == MTLDataTypeBool)
    values.set(index, *static_cast<const bool*>(value));
  else
    values.set(index, *static_cast<const uint32_t*>(value));
}
@end
@implementation MTLCompileOptions
@end
@implementation MTLResidencySetDescriptor
@end

@interface LookalikeFunction : NSObject <MTLFunction>
@end
@implementation LookalikeFunction {
 @public
  std::shared_ptr<const soft::Pipeline> pipeline;
  std::string name;  // with the constants: what an archive knows it by
}
@end

@interface LookalikeLibrary : NSObject <MTLLibrary>
@end
@implementation LookalikeLibrary {
 @public
  framework::System system;
}
- (id<MTLFunction>)newFunctionWithName:(NSString*)name
                        constantValues:(MTLFunctionConstantValues*)values
                                 error:(NSError* __autoreleasing*)error {
  std::string text = "no libraries";
  for (const auto& library : system.libraries) {
    auto made = system.device->new_pipeline(library, name.UTF8String, values->values);
    if (made) {
      LookalikeFunction* function = [LookalikeFunction new];
      function->pipeline = std::move(*made);
      function->name = name.UTF8String;
      for (const auto& [index, bytes] : values->values.values()) {
        function->name += ' ' + std::to_string(index) + '=';
        for (const unsigned char byte : bytes) function->name += std::to_string(byte) + '.';
      }
      return function;
    }
    // "no such function" of one library says less than what another has against the constants
    const auto names = library->function_names();
    if (text == "no libraries" || std::find(names.begin(), names.end(), name.UTF8String) != names.end())
      text = made.error().message;
  }
  *error = error_of(text);
  return nil;
}
@end

@implementation MTLBinaryArchiveDescriptor
@end
@implementation MTLComputePipelineDescriptor
@end

/// A file of lines: a heading, the GPU, a function each, an end.
@interface LookalikeArchive : NSObject <MTLBinaryArchive>
@end
@implementation LookalikeArchive {
 @public
  std::set<std::string> functions;
}
static constexpr char kArchiveBegins[] = "look-alike archive", kArchiveEnds[] = "end";
- (NSError*)read:(NSString*)path {
  std::ifstream file(path.UTF8String);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  if (lines.size() < 3 || lines[0] != kArchiveBegins || lines.back() != kArchiveEnds) return error_of("invalid file");
  if (lines[1] != kGpu) return error_of("for another GPU");
  functions.insert(lines.begin() + 2, lines.end() - 1);
  return nil;
}
- (BOOL)addComputePipelineFunctionsWithDescriptor:(MTLComputePipelineDescriptor*)descriptor
                                            error:(NSError* __autoreleasing*)error {
  ++compiled;
  functions.insert(((LookalikeFunction*)descriptor.computeFunction)->name);
  return YES;
}
- (BOOL)serializeToURL:(NSURL*)url error:(NSError* __autoreleasing*)error {
  std::ofstream file(url.path.UTF8String);
  file << kArchiveBegins << '\n' << kGpu << '\n';
  for (const std::string& function : functions) file << function << '\n';
  file << kArchiveEnds << '\n' << std::flush;
  if (!file && error) *error = error_of("cannot write");
  return bool(file);
}
@end

@interface LookalikePipeline : NSObject <MTLComputePipelineState>
@end
@implementation LookalikePipeline {
 @public
  std::shared_ptr<const soft::Pipeline> pipeline;
  uint32_t most_threads;
}
- (void)dealloc {
  autorelease_something();
}
- (NSUInteger)maxTotalThreadsPerThreadgroup {
  return most_threads;
}
- (NSUInteger)threadExecutionWidth {
  return soft::kLanes;
}
@end

@interface LookalikeEncoder : NSObject <MTLComputeCommandEncoder>
@end
@implementation LookalikeEncoder {
 @public
  std::shared_ptr<soft::Encoder> encoder;
}
- (void)setComputePipelineState:(id<MTLComputePipelineState>)state {
  encoder->set_pipeline(((LookalikePipeline*)state)->pipeline);
}
- (void)setBytes:(const void*)bytes length:(NSUInteger)length atIndex:(NSUInteger)index {
  encoder->set_bytes({static_cast<const unsigned char*>(bytes), length}, index);
}
- (void)setBuffer:(id<MTLBuffer>)buffer offset:(NSUInteger)offset atIndex:(NSUInteger)index {
  encoder->set_buffer(((LookalikeBuffer*)buffer)->buffer, offset, index);
}
- (void)setThreadgroupMemoryLength:(NSUInteger)length atIndex:(NSUInteger)index {
  encoder->set_threadgroup_memory(length, index);
}
- (void)dispatchThreadgroups:(MTLSize)groups threadsPerThreadgroup:(MTLSize)threads {
  const auto size = [](MTLSize s) { return soft::Size{uint32_t(s.width), uint32_t(s.height), uint32_t(s.depth)}; };
  encoder->dispatch_threadgroups(size(groups), size(threads));
}
- (void)memoryBarrierWithScope:(MTLBarrierScope)scope {
  if (scope & MTLBarrierScopeBuffers) encoder->memory_barrier();
}
- (void)endEncoding {
  autorelease_something();
  encoder->end();
}
- (void)dealloc {
  autorelease_something();
}
@end

@interface LookalikeCommandBuffer : NSObject <MTLCommandBuffer>
@end
@implementation LookalikeCommandBuffer {
 @public
  std::shared_ptr<soft::CommandBuffer> commands;
  NSString* label_;
}
@synthesize label = label_;
- (void)dealloc {
  autorelease_something();
}
- (MTLCommandBufferStatus)status {
  switch (commands->status()) {
    case soft::Status::kEncoding: return MTLCommandBufferStatusNotEnqueued;
    case soft::Status::kCommitted: return MTLCommandBufferStatusCommitted;
    case soft::Status::kCompleted: return MTLCommandBufferStatusCompleted;
    case soft::Status::kError: return MTLCommandBufferStatusError;
  }
}
- (NSError*)error {
  const auto result = commands->result();
  return result ? nil : error_of(result.error().message);
}
- (CFTimeInterval)GPUStartTime {
  return 1;
}
- (CFTimeInterval)GPUEndTime {
  return 1 + commands->seconds();
}
- (id<MTLComputeCommandEncoder>)computeCommandEncoderWithDispatchType:(MTLDispatchType)type {
  LookalikeEncoder* made = [LookalikeEncoder new];
  made->encoder = commands->new_encoder(type == MTLDispatchTypeConcurrent ? soft::DispatchType::kConcurrent
                                                                          : soft::DispatchType::kSerial);
  return made;
}
- (void)commit {
  commands->commit();
}
- (void)waitUntilCompleted {
  commands->wait();
}
@end

@interface LookalikeQueue : NSObject <MTLCommandQueue>
@end
@implementation LookalikeQueue {
 @public
  framework::System system;
  id<MTLResidencySet> residency;
}
- (void)dealloc {
  autorelease_something();
}
- (id<MTLCommandBuffer>)commandBuffer {
  LookalikeCommandBuffer* made = [LookalikeCommandBuffer new];
  made->commands = system.device->new_command_buffer();
  return made;
}
- (void)addResidencySet:(id<MTLResidencySet>)set {
  residency = set;
}
@end

@interface LookalikeResidencySet : NSObject <MTLResidencySet>
@end
@implementation LookalikeResidencySet {
  std::set<void*> next_, now_, resident_;
  bool requested_;
}
- (void)dealloc {
  autorelease_something();
}
- (void)settle {
  const std::set<void*> wanted = requested_ ? now_ : std::set<void*>();
  resident += long(wanted.size()) - long(resident_.size());
  resident_ = wanted;
}
- (void)addAllocation:(id<MTLAllocation>)allocation {
  next_.insert((__bridge void*)allocation);
}
- (void)removeAllocation:(id<MTLAllocation>)allocation {
  next_.erase((__bridge void*)allocation);
}
- (void)commit {
  now_ = next_;
  [self settle];
}
- (void)requestResidency {
  requested_ = true;
  [self settle];
}
- (void)endResidency {
  requested_ = false;
  [self settle];
}
@end

/// Whether no page is the heap's: Apple wraps memory of mmap or vm_allocate alone.
static bool is_not_heap(const void* memory, NSUInteger length) {
  const auto begin = reinterpret_cast<uintptr_t>(memory), end = begin + length;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    uintptr_t from = 0, to = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx", &from, &to) == 2 && from < end && begin < to && line.ends_with("[heap]"))
      return false;
  }
  return true;
}

@interface LookalikeDevice : NSObject <MTLDevice>
@end
@implementation LookalikeDevice {
 @public
  framework::System system;
}
- (NSString*)name {
  return [NSString stringWithCString:kGpu encoding:NSUTF8StringEncoding];
}
- (NSUInteger)maxBufferLength {
  return system.most_buffer_bytes;
}
- (uint64_t)recommendedMaxWorkingSetSize {
  return uint64_t{3} << 30;
}
- (BOOL)supportsFamily:(MTLGPUFamily)family {
  return system.apple7 && family <= MTLGPUFamilyApple7;
}
- (id<MTLCommandQueue>)newCommandQueue {
  LookalikeQueue* queue = [LookalikeQueue new];
  queue->system = system;
  return queue;
}
- (id<MTLBuffer>)newBufferWithLength:(NSUInteger)length options:(MTLResourceOptions)options {
  auto made = system.device->new_buffer(length);
  if (!made) return nil;
  LookalikeBuffer* buffer = [LookalikeBuffer new];
  buffer->buffer = std::move(*made);
  return buffer;
}
- (id<MTLBuffer>)newBufferWithBytesNoCopy:(void*)memory
                                   length:(NSUInteger)length
                                  options:(MTLResourceOptions)options
                              deallocator:(void (^)(void*, NSUInteger))deallocator {
  if (!system.wraps_heap && !is_not_heap(memory, length)) return nil;
  auto made = system.device->wrap_memory(memory, length, [=] { deallocator(memory, length); });
  if (!made) return nil;
  LookalikeBuffer* buffer = [LookalikeBuffer new];
  buffer->buffer = std::move(*made);
  return buffer;
}
- (id<MTLLibrary>)newLibraryWithSource:(NSString*)source
                               options:(MTLCompileOptions*)options
                                 error:(NSError* __autoreleasing*)error {
  if (options.mathMode != MTLMathModeSafe || options.fastMathEnabled) {
    *error = error_of("the software device has no fast math");
    return nil;
  }
  if (!std::string_view(source.UTF8String).starts_with("#pragma METAL fp contract(off)\n")) {
    *error = error_of("the source leaves contraction to the compiler, and the software device does not contract");
    return nil;
  }
  if (std::string_view(source.UTF8String).find("#include \"") != std::string_view::npos) {
    *error = error_of("the source includes a file, and a source has no folder");
    return nil;
  }
  LookalikeLibrary* library = [LookalikeLibrary new];
  library->system = system;
  return library;
}
- (id<MTLBinaryArchive>)newBinaryArchiveWithDescriptor:(MTLBinaryArchiveDescriptor*)descriptor
                                                 error:(NSError* __autoreleasing*)error {
  LookalikeArchive* archive = [LookalikeArchive new];
  NSError* wrong = descriptor.url ? [archive read:descriptor.url.path] : nil;
  if (wrong && error) *error = wrong;
  return wrong ? nil : archive;
}
- (id<MTLComputePipelineState>)newComputePipelineStateWithDescriptor:(MTLComputePipelineDescriptor*)descriptor
                                                             options:(MTLPipelineOption)options
                                                          reflection:
                                                              (MTLComputePipelineReflection* __autoreleasing*)reflection
                                                               error:(NSError* __autoreleasing*)error {
  LookalikeFunction* function = descriptor.computeFunction;
  bool found = false;
  for (NSUInteger i = 0; i < descriptor.binaryArchives.count; ++i)
    found |= ((LookalikeArchive*)descriptor.binaryArchives[i])->functions.contains(function->name);
  if (!found && (options & MTLPipelineOptionFailOnBinaryArchiveMiss)) {
    if (error) *error = error_of("in none of the archives");
    return nil;
  }
  if (!found) ++compiled;
  LookalikePipeline* state = [LookalikePipeline new];
  state->pipeline = function->pipeline;
  state->most_threads = system.most_threads;
  return state;
}
- (id<MTLResidencySet>)newResidencySetWithDescriptor:(MTLResidencySetDescriptor*)descriptor
                                               error:(NSError* __autoreleasing*)error {
  return [LookalikeResidencySet new];
}
@end

id<MTLDevice> MTLCreateSystemDefaultDevice(void) {
  if (!system_().device) return nil;
  LookalikeDevice* device = [LookalikeDevice new];
  device->system = system_();
  return device;
}
