#include "backend/cuda/device.h"

#include "backend/cuda/args.h"
#include "base/checked.h"

#include <cuda_runtime_api.h>
#include <functional>

namespace honeycrisp::backend::cuda {
namespace {

constexpr uint64_t kAlignment = 256;
constexpr uint32_t kStaticSharedBytes = 1024;  // that a kernel may have besides

std::string version_text(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }
std::string driver_obstacle() {
  int version = 0;  // of CUDA, that the driver is for; stays 0 without one
  if (cudaDriverGetVersion(&version) != cudaSuccess || version == 0)
    return fmt::format("there is no NVIDIA driver: install one for CUDA {} or later, or compute on the CPU",
                       version_text(CUDART_VERSION));
  return fmt::format("the NVIDIA driver is for CUDA {}, this build needs {}: update it, or compute on the CPU",
                     version_text(version), version_text(CUDART_VERSION));
}

Result<DeviceInfo> look_up() {
  int count = 0;
  switch (const cudaError_t status = cudaGetDeviceCount(&count)) {
    case cudaSuccess: break;
    case cudaErrorInsufficientDriver: return unsupported("{}", driver_obstacle());
    case cudaErrorNoDevice: return unsupported("no NVIDIA device");
    default: HC_TRY(check_cuda(status, "counting devices"));
  }
  if (count == 0) return unsupported("no NVIDIA device");
  cudaDeviceProp properties;
  HC_TRY(check_cuda(cudaGetDeviceProperties(&properties, 0), "asking for the device's properties"));
  DeviceInfo info{.name = properties.name,
                  .major = properties.major,
                  .minor = properties.minor,
                  .multiprocessors = uint32_t(properties.multiProcessorCount),
                  .memory_bytes = properties.totalGlobalMem,
                  .shared_bytes = uint32_t(properties.sharedMemPerBlockOptin) - kStaticSharedBytes};
  const auto prepare_attention = [&] { return prepare_attend_tiles(info.shared_bytes); };
  for (const std::function<int()>& prepare :
       {std::function<int()>(prepare_gemm), {prepare_half_gemm}, {prepare_mat_vec}, {prepare_attention}}) {
    const int status = prepare();
    if (status == cudaErrorNoKernelImageForDevice || status == cudaErrorInvalidDeviceFunction) {
      (void)cudaGetLastError();
      return unsupported("this build has no kernels for {} (compute capability {}.{})", info.name, info.major,
                         info.minor);
    }
    HC_TRY(check_cuda(status, "preparing kernels"));
  }
  HC_TRY(check_cuda(upload_grids(), "uploading the grids of the IQ formats"));
  return info;
}

}  // namespace

Result<void> check_cuda(int status, const std::string& what) {
  if (status == cudaSuccess) return {};
  (void)cudaGetLastError();
  const auto error = cudaError_t(status);
  const ErrorCode code = error == cudaErrorMemoryAllocation ? ErrorCode::kOutOfMemory : ErrorCode::kInternal;
  return fail(code, "CUDA: {}: {} ({}, {})", what, cudaGetErrorString(error), cudaGetErrorName(error), status);
}

const Result<DeviceInfo>& device() {
  // Whatever the cause, a device that cannot be used is an absent one: "auto" goes on to the next backend.
  static const Result<DeviceInfo> found = look_up().map_error([](Error error) {
    error.code = ErrorCode::kUnsupported;
    return error;
  });
  return found;
}

Result<std::pair<uint64_t, uint64_t>> free_memory() {
  size_t available = 0, total = 0;
  HC_TRY(check_cuda(cudaMemGetInfo(&available, &total), "asking for free memory"));
  return std::pair<uint64_t, uint64_t>(available, total);
}

Result<Memory> Memory::allocate(uint64_t bytes, const std::string& what, Place place) {
  Memory memory;
  memory.place_ = place;
  void* data = nullptr;
  const cudaError_t status =
      place == Place::kDevice ? cudaMalloc(&data, bytes + kAlignment) : cudaMallocHost(&data, bytes + kAlignment);
  if (status != cudaSuccess) {
    (void)cudaGetLastError();
    const auto room = free_memory();
    return fail(ErrorCode::kOutOfMemory, "{}: {} bytes of {} memory cannot be allocated ({} bytes are free): {}", what,
                bytes, place == Place::kDevice ? "device" : "pinned", room ? room->first : 0,
                cudaGetErrorString(status));
  }
  memory.data_ = static_cast<uint8_t*>(data);
  memory.bytes_ = bytes;
  return memory;
}

Memory::~Memory() {
  if (data_ == nullptr) return;
  // A failure here was reported by the call that caused it; there is nothing left to do about it.
  if (place_ == Place::kDevice)
    (void)cudaFree(data_);
  else
    (void)cudaFreeHost(data_);
}

uint64_t Layout::add(uint64_t count, uint64_t size) {
  const uint64_t offset = total_;
  const auto bytes = checked_mul(count, size);
  const auto padded = bytes ? checked_add(*bytes, kAlignment - 1) : std::nullopt;
  const auto end = padded ? checked_add(total_, *padded / kAlignment * kAlignment) : std::nullopt;
  if (end)
    total_ = *end;
  else
    overflow_ = true;
  return offset;
}

}  // namespace honeycrisp::backend::cuda
