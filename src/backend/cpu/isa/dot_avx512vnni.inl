// Products of bytes by vpdpbusd on 512 bits, for dot_vnni.inl.
constexpr int kRowsTogether = 4;          // with the codes in registers
constexpr int kRowsTogetherUnpacked = 8;  // with the codes in memory
constexpr bool kRaisesCodes = true;       // to an offset of 128, when they are unpacked

// g++ 12 does not fold the broadcast into vpdpbusd by itself: worth a seventh of a prompt's time.
HC_INLINE void add_products(Ints& sum, Ints codes, const int8_t* quad) {
  asm("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(sum.a) : "v"(codes.a), "m"(*reinterpret_cast<const int32_t*>(quad)));
}
HC_INLINE Ints add_low_words(Ints sum, Ints x, int16_t factor) {
  return {_mm512_dpwssd_epi32(sum.a, x.a, _mm512_set1_epi32(uint16_t(factor)))};
}
