// Elementary functions on sixteen lanes, the same bits everywhere because they are the same operations everywhere.
// Polynomials: our own weighted least-squares fits (Lawson iteration) over the reduced range. Largest errors over every
// 499th float, where the exact value is above 1e-35: exponential 0.98 ulp, hyperbolic_tangent 1.5, sigmoid 2.2,
// softplus 2.6, silu 2.9, gelu_tanh 3.1.

/// e^x, error below 1 ulp of 2; exact at 0; below −87.336 it is 0 (subnormals are flushed), above 88.7228 infinity.
HC_INLINE Floats exponential(Floats x) {
  const Floats to_integer = broadcast(12582912.0f);  // 1.5 · 2^23: adding it rounds to an integer, ties to even
  const Floats shifted = fma(x, broadcast(1.44269502f), to_integer);
  const Floats n = sub(shifted, to_integer);
  // ln 2 in two parts, the first with few bits so that n · part is exact
  const Floats r = fma(n, broadcast(-1.42860677e-6f), fma(n, broadcast(-0.693145752f), x));
  Floats p = broadcast(1.9917973e-4f);
  p = fma(p, r, broadcast(1.394619e-3f));
  p = fma(p, r, broadcast(8.33326485e-3f));
  p = fma(p, r, broadcast(4.16662693e-2f));
  p = fma(p, r, broadcast(0.166666672f));
  p = fma(p, r, broadcast(0.5f));
  const Floats e = add(fma(mul(r, r), p, r), broadcast(1.0f));
  Floats y = as_floats(add(as_ints(e), shift_left<23>(as_ints(shifted))));
  y = add(y, sub(x, x));  // NaN stays NaN
  y = select_less(x, broadcast(-87.3365479f), broadcast(0.0f), y);
  return select_less(broadcast(88.7228394f), x, broadcast(__builtin_inff()), y);
}

HC_INLINE Floats absolute(Floats x) { return as_floats(bit_and(as_ints(x), broadcast_int(0x7fffffff))); }
HC_INLINE Floats negate(Floats x) { return as_floats(add(as_ints(x), broadcast_int(int32_t(0x80000000u)))); }

/// numerator / (1 + e^−x) without overflow: e^−|x| is at most 1.
HC_INLINE Floats times_sigmoid(Floats numerator, Floats x) {
  const Floats t = exponential(negate(absolute(x)));
  const Floats positive = select_less(x, broadcast(0.0f), mul(numerator, t), numerator);
  return div(positive, add(broadcast(1.0f), t));
}

/// x · σ(x)
HC_INLINE Floats silu(Floats x) { return times_sigmoid(x, x); }

/// 0.5 x (1 + tanh(√(2/π) (x + 0.044715 x³))) = x σ(z), z = x (c₁ + c₂ x²). z is kept with its rounding error, which
/// the exponential would otherwise magnify by z.
HC_INLINE Floats gelu_tanh(Floats x) {
  const Floats c1 = broadcast(1.59576917f), c1_rest = broadcast(-4.534068e-8f);
  const Floats c2 = broadcast(0.0713548139f), c2_rest = broadcast(2.3988325e-9f);
  // Beyond ±14 the function is x or 0; the bound keeps x³ and the error terms finite.
  const Floats bounded = max(select_less(broadcast(14.0f), x, broadcast(14.0f), x), broadcast(-14.0f));
  const Floats b = add(bounded, sub(x, x));  // max() drops a NaN
  const Floats square = mul(b, b), square_rest = fma(b, b, negate(square));
  const Floats m = mul(c2, square), m_rest = fma(c2, square, negate(m));
  const Floats p = add(m, c1), c1_in_p = sub(p, m);  // and what is lost in the sum (Knuth's TwoSum)
  const Floats sum_rest = add(sub(m, sub(p, c1_in_p)), sub(c1, c1_in_p));
  const Floats c_rest = fma(c2, square_rest, fma(c2_rest, square, c1_rest));
  const Floats p_rest = add(add(sum_rest, m_rest), c_rest);
  const Floats z = mul(b, p), z_rest = fma(b, p_rest, fma(b, p, negate(z)));
  const Floats magnitude = absolute(z);
  const Floats rest = select_less(z, broadcast(0.0f), negate(z_rest), z_rest);
  const Floats e = exponential(negate(magnitude));
  const Floats t = fma(e, negate(rest), e);  // e^−(|z| + rest)
  const Floats positive = select_less(z, broadcast(0.0f), mul(x, t), x);
  return div(positive, add(broadcast(1.0f), t));
}

HC_INLINE Floats hyperbolic_tangent(Floats x) {
  const Floats a = absolute(x), square = mul(x, x);
  Floats p = broadcast(2.14753696e-3f);
  p = fma(p, square, broadcast(-8.18267372e-3f));
  p = fma(p, square, broadcast(2.17029676e-2f));
  p = fma(p, square, broadcast(-5.39472029e-2f));
  p = fma(p, square, broadcast(0.133332103f));
  p = fma(p, square, broadcast(-0.333333313f));
  const Floats small = fma(mul(x, square), p, x);
  const Floats t = exponential(mul(a, broadcast(-2.0f)));
  const Floats large = div(sub(broadcast(1.0f), t), add(broadcast(1.0f), t));
  const Floats signed_large = select_less(x, broadcast(0.0f), negate(large), large);
  return select_less(a, broadcast(0.625f), small, signed_large);
}

/// ln(1 + e^x) = max(x, 0) + ln(1 + t), t = e^−|x| ≤ 1; ln(1 + t) = 2 artanh(s), s = t / (2 + t) ≤ 1/3.
HC_INLINE Floats softplus(Floats x) {
  const Floats t = exponential(negate(absolute(x)));
  const Floats s = div(t, add(broadcast(2.0f), t)), square = mul(s, s), twice = add(s, s);
  Floats p = broadcast(0.140059978f);
  p = fma(p, square, broadcast(0.140009016f));
  p = fma(p, square, broadcast(0.200107634f));
  p = fma(p, square, broadcast(0.333332092f));
  const Floats positive = select_less(x, broadcast(0.0f), broadcast(0.0f), x);
  return add(positive, fma(mul(twice, square), p, twice));
}

HC_INLINE float exponential(float x) { return first(exponential(broadcast(x))); }
