// Look-alike; its presence says that the SDK is that of macOS 15 or later.
#pragma once
#import <Foundation/Foundation.h>

@protocol MTLAllocation;
@interface MTLResidencySetDescriptor : NSObject
@property(nonatomic, copy) NSString* label;
@end
@protocol MTLResidencySet <NSObject>
- (void)addAllocation:(id<MTLAllocation>)allocation;
- (void)removeAllocation:(id<MTLAllocation>)allocation;
- (void)commit;
- (void)requestResidency;
- (void)endResidency;
@end
