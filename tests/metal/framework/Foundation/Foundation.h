// Look-alike of the part of Foundation that backend/metal/apple/device.mm uses: for tests on Linux, never shipped.
#pragma once
#include <stddef.h>
#include <stdint.h>

typedef unsigned long NSUInteger;
typedef long NSInteger;
typedef bool BOOL;
typedef double CFTimeInterval;
#define YES true
#define NO false
#define nil nullptr
#define API_AVAILABLE(...)

enum : NSUInteger { NSUTF8StringEncoding = 4 };

@class NSString;
@protocol NSObject
@end
__attribute__((objc_root_class))
@interface NSObject<NSObject> {
 @public
  Class isa;
}
+ (instancetype)alloc;
+ (instancetype)new;
- (instancetype)init;
- (void)dealloc;
@end
@interface NSString : NSObject
+ (instancetype)stringWithCString:(const char*)text encoding:(NSUInteger)encoding;
@property(readonly) const char* UTF8String __attribute__((objc_returns_inner_pointer));
@end
@interface NSArray<ObjectType> : NSObject
+ (instancetype)arrayWithObjects:(const ObjectType[])objects count:(NSUInteger)count;
@property(readonly) NSUInteger count;
- (ObjectType)objectAtIndexedSubscript:(NSUInteger)index;
@end
@interface NSURL : NSObject
+ (NSURL*)fileURLWithPath:(NSString*)path;
@property(readonly, copy) NSString* path;
@end
@interface NSProcessInfo : NSObject
@property(class, readonly, strong) NSProcessInfo* processInfo;
@property(readonly, copy) NSString* operatingSystemVersionString;
@end
@interface NSError : NSObject
@property(readonly, copy) NSString* localizedDescription;
@property(readonly) NSInteger code;
@end
