// Look-alike of the part of Metal that backend/metal/apple/device.mm uses, with the selectors and values of Apple's
// headers: for tests on Linux, never shipped.
#pragma once
#import <Foundation/Foundation.h>
#import <Metal/MTLResidencySet.h>

typedef struct {
  NSUInteger width, height, depth;
} MTLSize;
static inline MTLSize MTLSizeMake(NSUInteger width, NSUInteger height, NSUInteger depth) {
  return MTLSize{width, height, depth};
}
typedef enum MTLResourceOptions : NSUInteger { MTLResourceStorageModeShared = 0 } MTLResourceOptions;
typedef enum MTLDispatchType : NSUInteger { MTLDispatchTypeSerial, MTLDispatchTypeConcurrent } MTLDispatchType;
typedef enum MTLBarrierScope : NSUInteger { MTLBarrierScopeBuffers = 1 } MTLBarrierScope;
typedef enum MTLCommandBufferStatus : NSUInteger {
  MTLCommandBufferStatusNotEnqueued,
  MTLCommandBufferStatusEnqueued,
  MTLCommandBufferStatusCommitted,
  MTLCommandBufferStatusScheduled,
  MTLCommandBufferStatusCompleted,
  MTLCommandBufferStatusError
} MTLCommandBufferStatus;
typedef enum MTLDataType : NSUInteger { MTLDataTypeFloat = 3, MTLDataTypeUInt = 33, MTLDataTypeBool = 53 } MTLDataType;
typedef enum MTLPipelineOption : NSUInteger {
  MTLPipelineOptionNone = 0,
  MTLPipelineOptionFailOnBinaryArchiveMiss = 1 << 2
} MTLPipelineOption;
typedef enum MTLGPUFamily : NSInteger { MTLGPUFamilyApple7 = 1007 } MTLGPUFamily;
typedef enum MTLMathMode : NSInteger { MTLMathModeSafe, MTLMathModeRelaxed, MTLMathModeFast } MTLMathMode;
typedef enum MTLLanguageVersion : NSUInteger { MTLLanguageVersion3_1 = (3 << 16) + 1 } MTLLanguageVersion;

@protocol MTLCommandBuffer
, MTLComputeCommandEncoder;
@protocol MTLAllocation <NSObject>
@end
@protocol MTLBuffer <MTLAllocation>
@property(copy) NSString* label;
@property(readonly) NSUInteger length;
- (void*)contents __attribute__((objc_returns_inner_pointer));
@end
@protocol MTLFunction <NSObject>
@end
@interface MTLFunctionConstantValues : NSObject
- (void)setConstantValue:(const void*)value type:(MTLDataType)type atIndex:(NSUInteger)index;
@end
@interface MTLCompileOptions : NSObject
@property(nonatomic) MTLLanguageVersion languageVersion;
@property(nonatomic) MTLMathMode mathMode;
@property(nonatomic) BOOL fastMathEnabled;
@end
@protocol MTLLibrary <NSObject>
- (id<MTLFunction>)newFunctionWithName:(NSString*)name
                        constantValues:(MTLFunctionConstantValues*)values
                                 error:(NSError* __autoreleasing*)error;
@end
@class MTLComputePipelineDescriptor;
@interface MTLBinaryArchiveDescriptor : NSObject
@property(nonatomic, copy) NSURL* url;
@end
@protocol MTLBinaryArchive <NSObject>
- (BOOL)addComputePipelineFunctionsWithDescriptor:(MTLComputePipelineDescriptor*)descriptor
                                            error:(NSError* __autoreleasing*)error;
- (BOOL)serializeToURL:(NSURL*)url error:(NSError* __autoreleasing*)error;
@end
@interface MTLComputePipelineDescriptor : NSObject
@property(nonatomic, strong) id<MTLFunction> computeFunction;
@property(nonatomic, copy) NSArray<id<MTLBinaryArchive>>* binaryArchives;
@end
@class MTLComputePipelineReflection;
@protocol MTLComputePipelineState <NSObject>
@property(readonly) NSUInteger maxTotalThreadsPerThreadgroup;
@property(readonly) NSUInteger threadExecutionWidth;
@end
@protocol MTLComputeCommandEncoder <NSObject>
- (void)setComputePipelineState:(id<MTLComputePipelineState>)state;
- (void)setBytes:(const void*)bytes length:(NSUInteger)length atIndex:(NSUInteger)index;
- (void)setBuffer:(id<MTLBuffer>)buffer offset:(NSUInteger)offset atIndex:(NSUInteger)index;
- (void)setThreadgroupMemoryLength:(NSUInteger)length atIndex:(NSUInteger)index;
- (void)dispatchThreadgroups:(MTLSize)groups threadsPerThreadgroup:(MTLSize)threads;
- (void)memoryBarrierWithScope:(MTLBarrierScope)scope;
- (void)endEncoding;
@end
@protocol MTLCommandBuffer <NSObject>
@property(copy) NSString* label;
@property(readonly) MTLCommandBufferStatus status;
@property(readonly) NSError* error;
@property(readonly) CFTimeInterval GPUStartTime;
@property(readonly) CFTimeInterval GPUEndTime;
- (id<MTLComputeCommandEncoder>)computeCommandEncoderWithDispatchType:(MTLDispatchType)type;
- (void)commit;
- (void)waitUntilCompleted;
@end
@protocol MTLCommandQueue <NSObject>
- (id<MTLCommandBuffer>)commandBuffer;
- (void)addResidencySet:(id<MTLResidencySet>)set;
@end
@protocol MTLDevice <NSObject>
@property(readonly) NSString* name;
@property(readonly) NSUInteger maxBufferLength;
@property(readonly) uint64_t recommendedMaxWorkingSetSize;
- (BOOL)supportsFamily:(MTLGPUFamily)family;
- (id<MTLCommandQueue>)newCommandQueue;
- (id<MTLBuffer>)newBufferWithLength:(NSUInteger)length options:(MTLResourceOptions)options;
- (id<MTLBuffer>)newBufferWithBytesNoCopy:(void*)memory
                                   length:(NSUInteger)length
                                  options:(MTLResourceOptions)options
                              deallocator:(void (^)(void* pointer, NSUInteger length))deallocator;
- (id<MTLLibrary>)newLibraryWithSource:(NSString*)source
                               options:(MTLCompileOptions*)options
                                 error:(NSError* __autoreleasing*)error;
- (id<MTLBinaryArchive>)newBinaryArchiveWithDescriptor:(MTLBinaryArchiveDescriptor*)descriptor
                                                 error:(NSError* __autoreleasing*)error;
- (id<MTLComputePipelineState>)newComputePipelineStateWithDescriptor:(MTLComputePipelineDescriptor*)descriptor
                                                             options:(MTLPipelineOption)options
                                                          reflection:
                                                              (MTLComputePipelineReflection* __autoreleasing*)reflection
                                                               error:(NSError* __autoreleasing*)error;
- (id<MTLResidencySet>)newResidencySetWithDescriptor:(MTLResidencySetDescriptor*)descriptor
                                               error:(NSError* __autoreleasing*)error;
@end
extern "C" id<MTLDevice> MTLCreateSystemDefaultDevice(void) __attribute__((ns_returns_retained));
