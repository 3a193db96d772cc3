#include "backend/cuda/weights.h"

#include "base/checked.h"

#include <algorithm>
#include <cstring>
#include <cuda_runtime_api.h>
#include <functional>
#include <thread>

namespace honeycrisp::backend::cuda {
namespace {

constexpr uint64_t kSlabBytes = uint64_t{32} << 20;  // of a copy from the file to the device
constexpr uint64_t kMostUnits = 65535;               // of a slab: rows of tiles that one launch packs
constexpr uint64_t kPlainUnit = 4096;                // bytes
constexpr unsigned kCopyThreads = 4;                 // that bring a slab in from the page cache

uint64_t rows_of(const program::Weight& w) { return uint64_t{w.rows} * w.slices; }

enum class Layout : uint8_t { kFile, kTiles, kF32 };

uint64_t device_bytes(const program::Weight& w, Layout layout) {
  if (layout == Layout::kFile) return w.bytes;
  if (layout == Layout::kF32) return rows_of(w) * w.cols * sizeof(float);
  return ceil_div<uint64_t>(rows_of(w), kTileRows) * ceil_div<uint64_t>(w.cols, kTileCols) * tile_bytes(w.format);
}

void for_each_matrix(const program::Program& program, const std::function<void(const program::Matrix&)>& visit) {
  for (const program::Step& step : program.steps) {
    if (const auto* e = std::get_if<program::Embed>(&step.op)) visit(e->table);
    if (const auto* l = std::get_if<program::Logits>(&step.op)) visit(l->table);
    if (const auto* p = std::get_if<program::Project>(&step.op))
      for (const program::Matrix& m : p->matrices) visit(m);
    if (const auto* mix = std::get_if<program::MixExperts>(&step.op)) {
      for (const program::Matrix& m : {mix->gate, mix->up, mix->down}) visit(m);
      if (!mix->shared) continue;
      for (const program::Matrix& m : {mix->shared->gate, mix->shared->up, mix->shared->down}) visit(m);
    }
  }
}

// Weights that score experts: small, of any format, and read as f32 by every step.
std::vector<bool> routing_weights(const program::Program& program) {
  std::vector<bool> routes(program.weights.size());
  for (const program::Step& step : program.steps)
    if (const auto* mix = std::get_if<program::MixExperts>(&step.op)) {
      routes[mix->router.matrix.weight] = true;
      if (mix->shared && mix->shared->scale) routes[mix->shared->scale->weight] = true;
    }
  return routes;
}

Layout layout_of(bool packed, bool routes) { return routes ? Layout::kF32 : packed ? Layout::kTiles : Layout::kFile; }

struct Offsets {
  std::vector<uint64_t> weights, exponents, vectors;
  cuda::Layout layout;
};
Offsets place(const program::Program& program, const std::vector<bool>& packed) {
  Offsets o;
  const std::vector<bool> routes = routing_weights(program);
  for (size_t i = 0; i < program.weights.size(); ++i)
    o.weights.push_back(o.layout.add(device_bytes(program.weights[i], layout_of(packed[i], routes[i])), 1));
  for (const program::Weight& w : program.weights)
    o.exponents.push_back(o.layout.add(round_up<uint64_t>(rows_of(w), kTileRows), 1));
  for (const program::Vector& v : program.vectors) o.vectors.push_back(o.layout.add(v.values.size(), sizeof(float)));
  return o;
}

void copy_in_parallel(uint8_t* to, const std::byte* from, uint64_t bytes) {
  std::vector<std::thread> threads;
  const uint64_t share = ceil_div<uint64_t>(bytes, kCopyThreads);
  for (uint64_t at = 0; at < bytes; at += share)
    threads.emplace_back([=] { std::memcpy(to + at, from + at, std::min(share, bytes - at)); });
  for (std::thread& t : threads) t.join();
}

// Streams rows through two pinned buffers: while one travels, the other is filled.
class Uploader {
 public:
  static Result<Uploader> make(Stream stream) {
    Uploader u;
    u.stream_ = stream;
    for (Slab& slab : u.slabs_) {
      HC_ASSIGN(slab.host, Memory::allocate(kSlabBytes, "upload buffer", Memory::Place::kHost));
      HC_ASSIGN(slab.device, Memory::allocate(kSlabBytes, "upload buffer"));
    }
    return u;
  }

  /// To `to`, in the layout wanted.
  Result<void> upload(const program::Weight& w, Layout layout, uint8_t* to,
                      const std::function<void(uint64_t)>& moved) {
    const uint64_t unit = layout == Layout::kTiles ? kTileRows * w.row_bytes()
                          : layout == Layout::kF32 ? w.row_bytes()
                                                   : kPlainUnit;
    if (unit > kSlabBytes) return unsupported("{}: rows of {} bytes are too long to upload", w.name, w.row_bytes());
    const uint64_t share = std::min(kSlabBytes / unit, kMostUnits) * unit;
    for (uint64_t at = 0; at < w.bytes; at += share) {
      const uint64_t bytes = std::min(share, w.bytes - at);
      Slab& slab = slabs_[next_++ % 2];
      copy_in_parallel(slab.host.as(), w.data + at, bytes);
      // What travelled meanwhile was the other slab; this one is free since the wait before that.
      HC_TRY(check_cuda(cudaStreamSynchronize(stream_), "uploading weights"));
      uint8_t* target = layout != Layout::kFile ? slab.device.as() : to + at;
      HC_TRY(check_cuda(cudaMemcpyAsync(target, slab.host.as(), bytes, cudaMemcpyHostToDevice, stream_),
                        fmt::format("uploading {} bytes of {}", bytes, w.name)));
      const auto rows = uint32_t(bytes / w.row_bytes());
      if (layout == Layout::kTiles)
        HC_TRY(check_cuda(launch_pack(w.format, target, rows, w.cols, to, uint32_t(at / unit), stream_),
                          fmt::format("packing {}", w.name)));
      if (layout == Layout::kF32) {
        const DeviceMatrix part{
            .data = target, .format = w.format, .rows = rows, .cols = w.cols, .row_bytes = w.row_bytes()};
        const Rows out{reinterpret_cast<float*>(to) + at / unit * w.cols, w.cols};
        HC_TRY(check_cuda(launch_embed(part, nullptr, rows, out, 1, stream_), fmt::format("unpacking {}", w.name)));
      }
      moved(bytes);
    }
    return {};
  }

  Result<void> finish() { return check_cuda(cudaStreamSynchronize(stream_), "uploading weights"); }

 private:
  struct Slab {
    Memory host, device;
  };
  Stream stream_ = nullptr;
  Slab slabs_[2];
  size_t next_ = 0;
};

}  // namespace

std::vector<bool> packed_weights(const program::Program& program, bool float_tiles) {
  std::vector<bool> packed;
  const std::vector<bool> routes = routing_weights(program);
  for (size_t i = 0; i < program.weights.size(); ++i) {
    const program::Weight& w = program.weights[i];
    packed.push_back(has_packed_tiles(w.format) && (float_tiles || !is_packed_float(w.format)) && !routes[i] &&
                     (w.slices == 1 || w.rows % kTileRows == 0));
  }
  for_each_matrix(program, [&](const program::Matrix& m) {
    if (m.first_row % kTileRows != 0) packed[m.weight] = false;
  });
  return packed;
}

Result<uint64_t> Weights::needed_bytes(const program::Program& program, bool float_tiles) {
  const Offsets o = place(program, packed_weights(program, float_tiles));
  if (o.layout.overflow()) return invalid("the weights would not fit the address space");
  return o.layout.total();
}

Result<Weights> Weights::load(const program::Program& program, const CompileOptions& options, bool float_tiles,
                              Stream stream) {
  Weights w;
  w.program_ = &program;
  w.packed_ = packed_weights(program, float_tiles);
  w.routes_ = routing_weights(program);
  Offsets o = place(program, w.packed_);
  w.weights_ = std::move(o.weights);
  w.exponents_ = std::move(o.exponents);
  w.vectors_ = std::move(o.vectors);
  HC_ASSIGN(w.memory_, Memory::allocate(std::max<uint64_t>(o.layout.total(), 1), "weights"));
  for (size_t i = 0; i < program.vectors.size(); ++i) {
    const std::vector<float>& values = program.vectors[i].values;
    HC_TRY(check_cuda(cudaMemcpyAsync(w.memory_.as(w.vectors_[i]), values.data(), values.size() * sizeof(float),
                                      cudaMemcpyHostToDevice, stream),
                      "uploading " + program.vectors[i].name));
  }
  uint64_t done = 0, total = 0;
  for (const program::Weight& weight : program.weights) total += weight.bytes;
  HC_ASSIGN(Uploader uploader, Uploader::make(stream));
  for (size_t i = 0; i < program.weights.size(); ++i)
    HC_TRY(uploader.upload(program.weights[i], layout_of(w.packed_[i], w.routes_[i]), w.memory_.as(w.weights_[i]),
                           [&](uint64_t bytes) {
                             done += bytes;
                             if (options.progress) options.progress(done, total);
                           }));
  for (size_t i = 0; i < program.weights.size(); ++i) {
    const DeviceMatrix whole = w.matrix({uint32_t(i), 0, uint32_t(rows_of(program.weights[i]))});
    HC_TRY(check_cuda(launch_row_exponents(whole, w.memory_.as<int8_t>(w.exponents_[i]), stream),
                      "scaling the rows of " + program.weights[i].name));
  }
  HC_TRY(uploader.finish());
  return w;
}

DeviceMatrix Weights::matrix(const program::Matrix& m) const {
  const program::Weight& w = program_->weight(m);
  const bool routes = routes_[m.weight];
  return {.data = memory_.as(weights_[m.weight]),
          .format = routes ? quant::Format::kF32 : w.format,
          .packed = packed_[m.weight],
          .first_row = m.first_row,
          .rows = m.rows,
          .cols = w.cols,
          .row_bytes = routes ? w.cols * sizeof(float) : w.row_bytes(),
          .slice_rows = w.rows};
}

uint64_t Weights::slice_bytes(const program::Matrix& m) const {
  const program::Weight& w = program_->weight(m);
  return uint64_t{w.rows} / kTileRows * ceil_div<uint64_t>(w.cols, kTileCols) * tile_bytes(w.format);
}

const uint8_t* Weights::tiles(const program::Matrix& m) const {
  const program::Weight& w = program_->weight(m);
  const uint64_t tiles_per_row = ceil_div<uint64_t>(w.cols, kTileCols);
  return memory_.as(weights_[m.weight]) + m.first_row / kTileRows * tiles_per_row * tile_bytes(w.format);
}

NormArgs Weights::norm(const std::optional<program::Norm>& norm) const {
  if (!norm) return {};
  return {true, norm->weight ? vector(*norm->weight) : nullptr, norm->eps};
}

}  // namespace honeycrisp::backend::cuda
