// The look-alike's classes of Foundation, over objc_runtime.cpp. Without ARC: it is what ARC's calls end in.
#import <Foundation/Foundation.h>
#include <cstdlib>
#include <cstring>

extern "C" {
id class_createInstance(Class, size_t);
void object_dispose(id);
id objc_autorelease(id);
id objc_retain(id);
void objc_release(id);
}

@implementation NSObject
+ (instancetype)alloc {
  return class_createInstance((Class)self, 0);
}
+ (instancetype)new {
  return [[self alloc] init];
}
- (instancetype)init {
  return self;
}
- (void)dealloc {
  object_dispose(self);
}
@end

@implementation NSString {
  char* text_;
}
+ (instancetype)stringWithCString:(const char*)text encoding:(NSUInteger)encoding {
  NSString* string = class_createInstance((Class)self, 0);
  string->text_ = strdup(text);
  return objc_autorelease(string);
}
- (const char*)UTF8String {
  return text_;
}
- (void)dealloc {
  free(text_);
  [super dealloc];
}
@end

// What @"..." is: laid out by the compiler.
struct ConstantString {
  void* isa;
  int flags;
  const char* text;
  long length;
};
@interface NSConstantString : NSString
@end
@implementation NSConstantString
- (const char*)UTF8String {
  return reinterpret_cast<ConstantString*>(self)->text;
}
@end

@implementation NSArray {
  id* objects_;
  NSUInteger count_;
}
+ (instancetype)arrayWithObjects:(const id[])objects count:(NSUInteger)count {
  NSArray* array = class_createInstance((Class)self, 0);
  array->objects_ = static_cast<id*>(calloc(count, sizeof(id)));
  for (array->count_ = 0; array->count_ < count; ++array->count_)
    array->objects_[array->count_] = objc_retain(objects[array->count_]);
  return objc_autorelease(array);
}
- (NSUInteger)count {
  return count_;
}
- (id)objectAtIndexedSubscript:(NSUInteger)index {
  return objects_[index];
}
- (void)dealloc {
  for (NSUInteger i = 0; i < count_; ++i) objc_release(objects_[i]);
  free(objects_);
  [super dealloc];
}
@end

@implementation NSURL {
  NSString* path_;
}
+ (NSURL*)fileURLWithPath:(NSString*)path {
  NSURL* url = class_createInstance((Class)self, 0);
  url->path_ = objc_retain(path);
  return objc_autorelease(url);
}
- (NSString*)path {
  return path_;
}
- (void)dealloc {
  objc_release(path_);
  [super dealloc];
}
@end

@implementation NSProcessInfo
+ (NSProcessInfo*)processInfo {
  return objc_autorelease([self new]);
}
- (NSString*)operatingSystemVersionString {
  return @"Version 15.0 (Build look-alike)";
}
@end

@interface NSError ()
- (instancetype)initWithText:(NSString*)text code:(NSInteger)code;
@end
@implementation NSError {
  NSString* text_;
  NSInteger code_;
}
- (instancetype)initWithText:(NSString*)text code:(NSInteger)code {
  text_ = objc_retain(text);
  code_ = code;
  return self;
}
- (NSString*)localizedDescription {
  return text_;
}
- (NSInteger)code {
  return code_;
}
- (void)dealloc {
  objc_release(text_);
  [super dealloc];
}
@end
