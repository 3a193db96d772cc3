// SOFT_SWIZZLES_N(T): every swizzle of two to four components of a vector of N, by x y z w, and the usual ones by r g b
// a, as members of the unions of types.h. One macro a level, because a macro does not expand within itself.
#define SOFT_EACH_2a(M, ...) M(__VA_ARGS__, x, 0) M(__VA_ARGS__, y, 1)
#define SOFT_EACH_2b(M, ...) M(__VA_ARGS__, x, 0) M(__VA_ARGS__, y, 1)
#define SOFT_EACH_2c(M, ...) M(__VA_ARGS__, x, 0) M(__VA_ARGS__, y, 1)
#define SOFT_EACH_2d(M, ...) M(__VA_ARGS__, x, 0) M(__VA_ARGS__, y, 1)
#define SOFT_EACH_3a(M, ...) SOFT_EACH_2a(M, __VA_ARGS__) M(__VA_ARGS__, z, 2)
#define SOFT_EACH_3b(M, ...) SOFT_EACH_2b(M, __VA_ARGS__) M(__VA_ARGS__, z, 2)
#define SOFT_EACH_3c(M, ...) SOFT_EACH_2c(M, __VA_ARGS__) M(__VA_ARGS__, z, 2)
#define SOFT_EACH_3d(M, ...) SOFT_EACH_2d(M, __VA_ARGS__) M(__VA_ARGS__, z, 2)
#define SOFT_EACH_4a(M, ...) SOFT_EACH_3a(M, __VA_ARGS__) M(__VA_ARGS__, w, 3)
#define SOFT_EACH_4b(M, ...) SOFT_EACH_3b(M, __VA_ARGS__) M(__VA_ARGS__, w, 3)
#define SOFT_EACH_4c(M, ...) SOFT_EACH_3c(M, __VA_ARGS__) M(__VA_ARGS__, w, 3)
#define SOFT_EACH_4d(M, ...) SOFT_EACH_3d(M, __VA_ARGS__) M(__VA_ARGS__, w, 3)
#define SOFT_ONE(T, N, a, i) SOFT_EACH_##N##b(SOFT_TWO, T, N, a, i)
#define SOFT_TWO(T, N, a, i, b, j) \
  swizzle<T, N, i, j> a##b;        \
  SOFT_EACH_##N##c(SOFT_THREE, T, N, a, i, b, j)
#define SOFT_THREE(T, N, a, i, b, j, c, k) \
  swizzle<T, N, i, j, k> a##b##c;          \
  SOFT_EACH_##N##d(SOFT_FOUR, T, N, a, i, b, j, c, k)
#define SOFT_FOUR(T, N, a, i, b, j, c, k, d, l) swizzle<T, N, i, j, k, l> a##b##c##d;

#define SOFT_SWIZZLES_2(T) SOFT_EACH_2a(SOFT_ONE, T, 2) swizzle<T, 2, 0, 1> rg;
#define SOFT_SWIZZLES_3(T)                             \
  SOFT_EACH_3a(SOFT_ONE, T, 3) swizzle<T, 3, 0, 1> rg; \
  swizzle<T, 3, 0, 1, 2> rgb;
#define SOFT_SWIZZLES_4(T)                             \
  SOFT_EACH_4a(SOFT_ONE, T, 4) swizzle<T, 4, 0, 1> rg; \
  swizzle<T, 4, 0, 1, 2> rgb;                          \
  swizzle<T, 4, 0, 1, 2, 3> rgba;
