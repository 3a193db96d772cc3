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
