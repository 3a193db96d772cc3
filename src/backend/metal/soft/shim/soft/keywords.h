// MSL's keywords as macros. Last of the shim's headers: they would maim any C++ header after them.
#pragma once

#define __METAL_VERSION__ 310  // for headers that C++ and MSL share

#define kernel
#define device
#define constant
#define thread
#define threadgroup
// What the scanner puts in place of `constant` before a function constant: each worker thread has its own copy, so that
// dispatches of differently specialised pipelines may run at once. Not initial-exec: a process has room for few such.
#define SOFT_FUNCTION_CONSTANT static thread_local
#define is_function_constant_defined(name) soft_defined_##name

#undef INFINITY
#undef NAN
#undef FLT_MAX
#undef FLT_MIN
#undef FLT_EPSILON
#undef INT_MAX
#undef INT_MIN
#undef UINT_MAX
#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")
#define FLT_MAX 3.402823466e+38F
#define FLT_MIN 1.175494351e-38F
#define FLT_EPSILON 1.192092896e-07F
#define MAXFLOAT FLT_MAX
#define MAXHALF half(65504.0f)
#define HALF_MAX half(65504.0f)
#define HALF_MIN half(6.103515625e-5f)
#define INT_MAX 2147483647
#define INT_MIN (-2147483647 - 1)
#define UINT_MAX 4294967295u
#define M_PI_F 3.14159265358979323846f
#define M_PI_2_F 1.57079632679489661923f
#define M_1_PI_F 0.318309886183790671538f
#define M_2_PI_F 0.636619772367581343076f
#define M_2_SQRTPI_F 1.12837916709551257390f
#define M_SQRT2_F 1.41421356237309504880f
#define M_SQRT1_2_F 0.707106781186547524400f
#define M_E_F 2.71828182845904523536f
#define M_LN2_F 0.693147180559945309417f
#define M_LOG2E_F 1.44269504088896340736f
#define M_LN10_F 2.30258509299404568402f
