#include "backend/cpu/packing.h"

#include "backend/cpu/isa/kernels.h"
#include "base/bytes.h"
#include "base/check.h"
#include "base/checked.h"
#include "program/check.h"
#include "quant/blocks.h"
#include "quant/formats.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <set>

namespace honeycrisp::backend::cpu {
namespace {

constexpr uint64_t kPackedAtOnce = uint64_t{32} << 20;  // bytes, before the file's pages are given back
constexpr const char* kTakesLess = "a smaller model or a stronger quantization takes less";

// ---- codes of a group of 32 inputs, as the file has them

using Codes = uint8_t[kGroup];

// The 16 bytes' low nibbles, then their high nibbles.
void nibbles(const uint8_t* bytes, Codes& out) {
  for (int i = 0; i < 16; ++i) {
    out[i] = bytes[i] & 15;
    out[i + 16] = bytes[i] >> 4;
  }
}
void fifth_bits(const uint8_t* high, Codes& out) {
  for (int i = 0; i < 32; ++i) out[i] = uint8_t(out[i] | (high[i / 8] >> (i % 8) & 1) << 4);
}

void codes(const quant::BlockQ4_0& b, uint32_t, Codes& out) { nibbles(b.codes, out); }
void codes(const quant::BlockQ4_1& b, uint32_t, Codes& out) { nibbles(b.codes, out); }
void codes(const quant::BlockIQ4_NL& b, uint32_t, Codes& out) { nibbles(b.codes, out); }
void codes(const quant::BlockMXFP4& b, uint32_t, Codes& out) { nibbles(b.codes, out); }
void codes(const quant::BlockIQ4_XS& b, uint32_t group, Codes& out) { nibbles(b.codes + 16 * group, out); }
void codes(const quant::BlockQ5_0& b, uint32_t, Codes& out) {
  nibbles(b.codes, out);
  fifth_bits(b.high, out);
}
void codes(const quant::BlockQ5_1& b, uint32_t, Codes& out) {
  nibbles(b.codes, out);
  fifth_bits(b.high, out);
}
void codes(const quant::BlockQ8_0& b, uint32_t, Codes& out) {
  for (int i = 0; i < 32; ++i) out[i] = uint8_t(b.codes[i]) ^ 0x80;  // + 128
}
void codes(const quant::BlockQ2_K& b, uint32_t group, Codes& out) {
  for (int i = 0; i < 32; ++i) out[i] = b.codes[32 * (group / 4) + i] >> (2 * (group % 4)) & 3;
}
void codes(const quant::BlockQ3_K& b, uint32_t group, Codes& out) {
  for (int i = 0; i < 32; ++i)
    out[i] = uint8_t((b.codes[32 * (group / 4) + i] >> (2 * (group % 4)) & 3) | (b.high[i] >> group & 1) << 2);
}
void codes(const quant::BlockQ4_K& b, uint32_t group, Codes& out) {
  for (int i = 0; i < 32; ++i) out[i] = b.codes[32 * (group / 2) + i] >> (4 * (group % 2)) & 15;
}
void codes(const quant::BlockQ5_K& b, uint32_t group, Codes& out) {
  for (int i = 0; i < 32; ++i)
    out[i] = uint8_t((b.codes[32 * (group / 2) + i] >> (4 * (group % 2)) & 15) | (b.high[i] >> group & 1) << 4);
}
void codes(const quant::BlockQ6_K& b, uint32_t group, Codes& out) {
  const uint32_t h = group / 4, s = group % 4;
  for (int i = 0; i < 32; ++i) {
    const int low = b.codes[64 * h + 32 * (s % 2) + i] >> (4 * (s / 2)) & 15, high = b.high[32 * h + i] >> (2 * s) & 3;
    out[i] = uint8_t(low | high << 4);
  }
}

// ---- scales: fields of a block that are laid side by side, in the order in which isa/formats.inl reads them

struct Field {
  uint32_t offset, bytes, count;  // in the block
};
template <class Block>
struct Scales;
#define HC_SCALES(Name, ...)                          \
  template <>                                         \
  struct Scales<quant::Block##Name> {                 \
    using Block = quant::Block##Name;                 \
    static constexpr Field kFields[] = {__VA_ARGS__}; \
  };
#define HC_HALF(member) {offsetof(Block, member), 2, 1}
#define HC_BYTES(member) {offsetof(Block, member), 1, sizeof(Block::member)}
HC_SCALES(Q4_0, HC_HALF(d))
HC_SCALES(Q4_1, HC_HALF(d), HC_HALF(m))
HC_SCALES(Q5_0, HC_HALF(d))
HC_SCALES(Q5_1, HC_HALF(d), HC_HALF(m))
HC_SCALES(Q8_0, HC_HALF(d))
HC_SCALES(Q2_K, HC_HALF(d), HC_HALF(dmin), HC_BYTES(scales))
HC_SCALES(Q3_K, HC_HALF(d), HC_BYTES(scales))
HC_SCALES(Q4_K, HC_HALF(d), HC_HALF(dmin), HC_BYTES(scales))
HC_SCALES(Q5_K, HC_HALF(d), HC_HALF(dmin), HC_BYTES(scales))
HC_SCALES(Q6_K, HC_HALF(d), HC_BYTES(scales))
HC_SCALES(IQ4_NL, HC_HALF(d))
HC_SCALES(IQ4_XS, HC_HALF(d), HC_HALF(scales_high), HC_BYTES(scales_low))
HC_SCALES(MXFP4, HC_BYTES(exponent))
#undef HC_SCALES
#undef HC_HALF
#undef HC_BYTES

template <class Block>
uint8_t* put_scales(const Block* const* blocks, uint8_t* out) {
  for (const Field& field : Scales<Block>::kFields)
    for (uint32_t i = 0; i < field.count; ++i)
      for (uint32_t r = 0; r < kLanes; ++r, out += field.bytes)
        std::memcpy(out, reinterpret_cast<const uint8_t*>(blocks[r]) + field.offset + i * field.bytes, field.bytes);
  return out;
}

// The codes of one output into its dword of every vector of a group. Word g holds those of inputs 4 g … 4 g + 3.
template <CodePlanes kPlanes>
void put_codes(const Codes& codes, uint32_t r, uint8_t* group) {
  constexpr bool kHasNibbles = kPlanes == kNibbles || kPlanes == kNibblesBit || kPlanes == kNibblesCrumbs;
  uint32_t words[8], planes[kPlanes / 64] = {};
  std::memcpy(words, codes, sizeof words);
  for (uint32_t g = 0; g < 8; ++g) {
    const uint32_t w = words[g];
    if constexpr (kPlanes == kBytes) planes[g] = w;
    if constexpr (kHasNibbles) planes[g % 4] |= (w & 0x0f0f0f0f) << (4 * (g / 4));
    if constexpr (kPlanes == kNibblesBit) planes[4] |= (w >> 4 & 0x01010101) << g;
    if constexpr (kPlanes == kNibblesCrumbs) planes[4 + g / 4] |= (w >> 4 & 0x03030303) << (2 * (g % 4));
    if constexpr (kPlanes == kCrumbs || kPlanes == kCrumbsBit) planes[g / 4] |= (w & 0x03030303) << (2 * (g % 4));
    if constexpr (kPlanes == kCrumbsBit) planes[2] |= (w >> 2 & 0x01010101) << g;
  }
  for (uint32_t v = 0; v < kPlanes / 64; ++v) std::memcpy(group + 64 * v + 4 * r, &planes[v], 4);
}

template <class Block, uint32_t kGroups, CodePlanes kPlanes>
void pack_blocks(const std::byte* rows, uint64_t row_bytes, uint32_t n_rows, uint32_t cols, uint8_t* out) {
  for (uint32_t b = 0; b < cols / (kGroups * kGroup); ++b) {
    const Block zero{};
    const Block* blocks[kLanes];
    for (uint32_t r = 0; r < kLanes; ++r)
      blocks[r] = r < n_rows ? reinterpret_cast<const Block*>(rows + r * row_bytes) + b : &zero;
    out = put_scales(blocks, out);
    for (uint32_t group = 0; group < kGroups; ++group, out += kPlanes)
      for (uint32_t r = 0; r < kLanes; ++r) {
        Codes c;
        codes(*blocks[r], group, c);
        put_codes<kPlanes>(c, r, out);
      }
  }
}

// Values that lie side by side in a row lie 16 apart in the panel.
template <class Bits>
void pack_values(const std::byte* rows, uint64_t row_bytes, uint32_t n_rows, uint32_t cols, uint8_t* out) {
  constexpr uint32_t kAtOnce = 64;  // of a row, so that the panel's lines are in the cache until the last row has come
  for (uint32_t first = 0; first < cols; first += kAtOnce) {
    const uint32_t end = std::min(cols, first + kAtOnce);
    for (uint32_t r = 0; r < kLanes; ++r)
      for (uint32_t k = first; k < end; ++k) {
        Bits value = 0;
        if (r < n_rows) std::memcpy(&value, rows + r * row_bytes + k * sizeof(Bits), sizeof(Bits));
        std::memcpy(out + (size_t{k} * kLanes + r) * sizeof(Bits), &value, sizeof(Bits));
      }
  }
}
using BitsF32 = uint32_t;
using BitsF16 = uint16_t;
using BitsBF16 = uint16_t;

struct PanelFormat {
  quant::Format format;
  void (*pack)(const std::byte* rows, uint64_t row_bytes, uint32_t n_rows, uint32_t cols, uint8_t* out);
};
constexpr PanelFormat kPanelFormats[] = {
#define HC_X(name, groups, planes, scale_bytes) \
  {quant::Format::k##name, pack_blocks<quant::Block##name, groups, planes>},
    HC_CPU_INTEGER_FORMATS(HC_X)
#undef HC_X
#define HC_X(name) {quant::Format::k##name, pack_values<Bits##name>},
        HC_CPU_FLOAT_FORMATS(HC_X)
#undef HC_X
};
// Packing rearranges the bits of the file and adds none.
#define HC_X(name, groups, planes, scale_bytes) \
  static_assert(scale_bytes + groups * planes == kLanes * sizeof(quant::Block##name), #name);
HC_CPU_INTEGER_FORMATS(HC_X)
#undef HC_X

const PanelFormat* find_format(quant::Format format) {
  for (const PanelFormat& f : kPanelFormats)
    if (f.format == format) return &f;
  return nullptr;
}

// Calls visit(matrix) for each matrix that an op multiplies with.
template <class Visit>
void for_matrices(const program::Op& op, Visit visit) {
  if (const auto* p = std::get_if<program::Project>(&op))
    for (const program::Matrix& m : p->matrices) visit(m);
  if (const auto* l = std::get_if<program::Logits>(&op)) visit(l->table);
  if (const auto* m = std::get_if<program::MixExperts>(&op)) {
    for (const program::Matrix& each : {m->router.matrix, m->gate, m->up, m->down}) visit(each);
    if (m->shared) {
      for (const program::Matrix& each : {m->shared->gate, m->shared->up, m->shared->down}) visit(each);
      if (m->shared->scale) visit(*m->shared->scale);
    }
  }
}

// Calls visit(matrix) for each matrix of the program that is multiplied and packed, some of them more than once.
template <class Visit>
void for_packed_matrices(const program::Program& program, Visit visit) {
  for (const program::Step& step : program.steps)
    for_matrices(step.op, [&](const program::Matrix& m) {
      if (is_packed(program.weight(m).format)) visit(m);
    });
}

}  // namespace

bool is_packed(quant::Format format) { return find_format(format) != nullptr; }

uint64_t panel_bytes(quant::Format format, uint32_t cols) { return kLanes * quant::row_bytes(format, cols); }

void pack_panel(quant::Format format, const std::byte* rows, uint64_t row_bytes, uint32_t n_rows, uint32_t cols,
                uint8_t* panel) {
  const PanelFormat* f = find_format(format);
  HC_CHECK(f != nullptr && n_rows <= kLanes);
  f->pack(rows, row_bytes, n_rows, cols, panel);
}

// All matrices side by side in one piece of memory: then small ones lie in huge pages too.
Result<PackedWeights::Layout> PackedWeights::lay_out(const program::Program& program, uint64_t memory_limit) {
  std::optional<uint64_t> total = 0;
  Layout layout;
  double bytes = 0;  // whatever the file says, this does not overflow
  for_packed_matrices(program, [&](const program::Matrix& matrix) {
    const program::Weight& w = program.weight(matrix);
    if (!total || layout.places.contains(key(matrix))) return;
    const uint64_t offset = *total;
    const uint64_t panels = ceil_div<uint64_t>(matrix.rows, kLanes), panel = panel_bytes(w.format, w.cols);
    bytes += double(panels) * double(panel) * double(w.slices);
    const auto slice = checked_mul(panels, panel);
    const auto all = slice ? checked_mul<uint64_t>(*slice, w.slices) : std::nullopt;
    total = all ? checked_add<uint64_t>(*total, *all) : std::nullopt;
    if (total && *total < SIZE_MAX / 2)
      total = round_up<uint64_t>(*total, kAlignment);
    else
      total.reset();
    if (total) layout.places[key(matrix)] = {offset, panel, *slice};
  });
  if (!total) return invalid("{:.1g} bytes of packed weights would not fit the address space", bytes);
  // Systems that promise more memory than they have end the process in the middle of packing instead.
  if (memory_limit != 0 && *total > memory_limit)
    return fail(ErrorCode::kOutOfMemory, "the cpu backend keeps {} of weights in memory, and {} may be used here ({})",
                format_bytes(*total), format_bytes(memory_limit), kTakesLess);
  layout.bytes = *total;
  return layout;
}

Result<void> PackedWeights::check_memory(const program::Program& program, uint64_t memory_limit) {
  HC_TRY(lay_out(program, memory_limit));
  return {};
}

void PackedWeights::pack(const program::Program& program, const program::Matrix& matrix, const PackedMatrix& packed,
                         ThreadPool& pool, const std::function<void(const std::byte*, uint64_t)>& done) {
  const program::Weight& w = program.weight(matrix);
  struct Work {
    const program::Weight& weight;
    const program::Matrix& matrix;
    uint8_t* out;
    uint64_t panels, one, end;  // panels of a slice, bytes of one, end of this piece
    std::atomic<uint64_t> next{0};

    const std::byte* rows_of(uint64_t panel) const {
      const uint64_t row = panel / panels * weight.rows + matrix.first_row + panel % panels * kLanes;
      return weight.data + row * weight.row_bytes();
    }
    uint32_t n_rows(uint64_t panel) const {
      return uint32_t(std::min<uint64_t>(kLanes, matrix.rows - panel % panels * kLanes));
    }
  };
  const uint64_t panels = packed.slice_bytes / packed.panel_bytes;
  Work work{w, matrix, memory_.get() + (packed.data - memory_.get()), panels, packed.panel_bytes, 0};
  const uint64_t total = panels * w.slices, at_once = std::max<uint64_t>(1, kPackedAtOnce / work.one);
  for (uint64_t first = 0; first < total; first = work.end) {
    work.next = first;
    work.end = std::min(total, first + at_once);
    pool.run(
        [](void* context, uint32_t) {
          Work& job = *static_cast<Work*>(context);
          for (uint64_t i; (i = job.next.fetch_add(1, std::memory_order_relaxed)) < job.end;)
            pack_panel(job.weight.format, job.rows_of(i), job.weight.row_bytes(), job.n_rows(i), job.weight.cols,
                       job.out + i * job.one);
        },
        &work);
    for (uint64_t i = first, last; i < work.end; i = last + 1) {  // per slice: other rows may lie between the slices'
      last = std::min(work.end, (i / panels + 1) * panels) - 1;
      const std::byte* begin = work.rows_of(i);
      const std::byte* end = work.rows_of(last) + work.n_rows(last) * w.row_bytes();
      done(begin, uint64_t(end - begin));
    }
  }
}

Result<PackedWeights> PackedWeights::make(const program::Program& program, const CompileOptions& options,
                                          ThreadPool& pool) {
  PackedWeights packed;
  HC_ASSIGN(const Layout layout, lay_out(program, options.memory_limit));
  packed.memory_ = allocate_to_read<uint8_t>(layout.bytes);
  if (!packed.memory_)
    return fail(ErrorCode::kOutOfMemory, "{} of memory for weights cannot be allocated ({})",
                format_bytes(layout.bytes), kTakesLess);
  packed.memory_bytes_ = layout.bytes;
  for (const auto& [key, place] : layout.places)
    packed.matrices_[key] = {packed.memory_.get() + place.offset, place.panel_bytes, place.slice_bytes};
  uint64_t taken_in = 0, total = 0;  // bytes of the file
  for (const auto& [key, place] : layout.places) {
    const auto& [weight, first_row, rows] = key;
    const program::Weight& w = program.weights[weight];
    total += rows * w.row_bytes() * w.slices;
  }
  const auto done = [&](const std::byte* data, uint64_t bytes) {
    if (options.release_source) options.release_source(data, bytes);
    taken_in += bytes;
    if (options.progress) options.progress(std::min(taken_in, total), total);
  };
  std::set<Key> ready;
  for_packed_matrices(program, [&](const program::Matrix& m) {
    if (ready.insert(key(m)).second) packed.pack(program, m, *packed.find(m), pool, done);
  });
  if (options.progress) options.progress(total, total);
  return packed;
}

const PackedMatrix* PackedWeights::find(const program::Matrix& matrix) const {
  const auto found = matrices_.find(key(matrix));
  return found == matrices_.end() ? nullptr : &found->second;
}

std::vector<std::span<const uint8_t>> PackedWeights::memory(const program::Program& program) const {
  std::vector<std::span<const uint8_t>> pieces;
  for (const auto& [key, matrix] : matrices_)
    pieces.emplace_back(matrix.data, matrix.slice_bytes * program.weights[std::get<0>(key)].slices);
  return pieces;
}

}  // namespace honeycrisp::backend::cpu
