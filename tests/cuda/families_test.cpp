// Golden families on the device, in both roles: near transformers' f64 logits, and the same bits in any chunks.
#include "base/half.h"
#include "cuda/cuda_test.h"
#include "gguf/file.h"
#include "golden/runner.h"
#include "model/model.h"
#include "support/golden_families.h"

#include <algorithm>

namespace honeycrisp::testing {
namespace {

using test_support::golden_path;
using test_support::GoldenFamily;

// Generated rows round activations to 22 bits, in the persistent kernel to 11. Prompt rows round activations and
// weights to 11 bits each, or to 16 where that would be too coarse. What it does to the answer is bounded by the
// divergence.
constexpr double kGeneratedBar = 5e-5, kPersistentBar = 2e-3, kPromptBar = 3e-3, kMeanKlBar = 1e-5;
constexpr size_t kChunks[] = {1, 2, 3, 7, 512};

// KL(expected || ours), mean over the positions.
double mean_divergence(const std::vector<float>& expected, const std::vector<float>& ours, size_t vocabulary) {
  const auto log_sum_exp = [&](const float* logits) {
    const double largest = *std::max_element(logits, logits + vocabulary);
    double sum = 0;
    for (size_t i = 0; i < vocabulary; ++i) sum += std::exp(double(logits[i]) - largest);
    return largest + std::log(sum);
  };
  double kl = 0;
  for (size_t at = 0; at < expected.size(); at += vocabulary) {
    const double p_sum = log_sum_exp(expected.data() + at), q_sum = log_sum_exp(ours.data() + at);
    for (size_t i = at; i < at + vocabulary; ++i) {
      const double log_p = double(expected[i]) - p_sum, log_q = double(ours[i]) - q_sum;
      kl += std::exp(log_p) * (log_p - log_q);
    }
  }
  return kl / (double(expected.size()) / double(vocabulary));
}

class CudaFamilies : public OnCuda, public ::testing::WithParamInterface<GoldenFamily> {};

TEST_P(CudaFamilies, logits_agree_with_transformers_and_chunks_have_the_same_bits) {
  const std::string name = GetParam().name;
  auto file = gguf::File::open(golden_path(name, ".gguf"));
  ASSERT_TRUE(file.has_value()) << file.error().message;
  auto model = model::load(*file, {.context = GetParam().context});
  ASSERT_TRUE(model.has_value()) << model.error().message;
  const std::vector<int32_t> tokens = read_ids(golden_path(name, ".tokens.txt"));
  const std::vector<float> expected = read_floats(golden_path(name, ".logits.f32"));
  const auto executor = compile(backend::cuda_backend(), model->program, CacheType::kF32);
  ASSERT_TRUE(executor);
  for (Role role : kRoles) {
    const std::vector<float> whole = all_logits(*executor, model->program, tokens, 512, role);
    const double error = relative_error(whole, expected);
    const double kl = mean_divergence(expected, whole, model->program.vocabulary);
    std::printf("%s, %s: relative error %.2e, mean KL %.2e\n", name.c_str(), name_of(role), error, kl);
    const double generated_bar = is_persistent(*executor) ? kPersistentBar : kGeneratedBar;
    EXPECT_LT(error, role == Role::kPrompt ? kPromptBar : generated_bar) << name_of(role);
    EXPECT_LT(kl, kMeanKlBar) << name_of(role);
    for (size_t chunk : kChunks)
      EXPECT_TRUE(same_bits(all_logits(*executor, model->program, tokens, chunk, role), whole))
          << name_of(role) << ", chunks of " << chunk;
  }
}

// The golden files are F32, which the persistent kernel does not take: the same families with their matrices rounded
// here, to Q8_0, or F16 where rows are no whole blocks, or all to BF16, against the reference backend with the same
// weights.
std::vector<std::byte> rounded_to_q8_0(const program::Weight& w) {
  constexpr uint64_t kElements = 32, kBytes = 34;
  const auto* x = reinterpret_cast<const float*>(w.data);
  const uint64_t n = uint64_t{w.rows} * w.slices * w.cols / kElements;
  std::vector<std::byte> bytes(n * kBytes);
  for (uint64_t b = 0; b < n; ++b, x += kElements) {
    float largest = 0;
    for (uint64_t i = 0; i < kElements; ++i) largest = std::max(largest, std::abs(x[i]));
    const uint16_t scale = f32_to_f16(largest / 127);
    const float d = f16_to_f32(scale);
    std::memcpy(&bytes[b * kBytes], &scale, sizeof scale);
    for (uint64_t i = 0; i < kElements; ++i)
      bytes[b * kBytes + 2 + i] = std::byte(int8_t(d == 0 ? 0 : std::clamp(std::rint(x[i] / d), -127.0f, 127.0f)));
  }
  return bytes;
}

std::vector<std::byte> rounded(const program::Weight& w, quant::Format format) {
  if (format == quant::Format::kQ8_0) return rounded_to_q8_0(w);
  const auto* x = reinterpret_cast<const float*>(w.data);
  std::vector<std::byte> bytes(w.bytes / 2);
  for (size_t i = 0; i < bytes.size() / 2; ++i) {
    const auto bits = std::bit_cast<uint32_t>(x[i]);
    const uint16_t half = format == quant::Format::kF16 ? f32_to_f16(x[i]) : uint16_t((bits + 0x8000) >> 16);
    std::memcpy(&bytes[2 * i], &half, sizeof half);
  }
  return bytes;
}

// blocks: the format where rows are whole blocks of 32.
void expect_rounded_near_reference(const GoldenFamily& family, quant::Format blocks, quant::Format others) {
  const std::string name = family.name;
  auto file = gguf::File::open(golden_path(name, ".gguf"));
  ASSERT_TRUE(file.has_value()) << file.error().message;
  auto model = model::load(*file, {.context = family.context});
  ASSERT_TRUE(model.has_value()) << model.error().message;
  std::vector<std::vector<std::byte>> storage;
  for (program::Weight& w : model->program.weights) {
    if (w.format != quant::Format::kF32) continue;
    w.format = w.cols % 32 == 0 ? blocks : others;
    storage.push_back(rounded(w, w.format));
    w.data = storage.back().data();
    w.bytes = storage.back().size();
  }
  const std::vector<int32_t> tokens = read_ids(golden_path(name, ".tokens.txt"));
  const auto reference = compile(backend::reference_backend(), model->program, CacheType::kF32);
  const auto executor = compile(backend::cuda_backend(), model->program, CacheType::kF32);
  ASSERT_TRUE(reference && executor);
  const std::vector<float> expected = all_logits(*reference, model->program, tokens, 512, Role::kPrompt);
  const std::vector<float> whole = all_logits(*executor, model->program, tokens, 512, Role::kGenerated);
  const double error = relative_error(whole, expected);
  const double kl = mean_divergence(expected, whole, model->program.vocabulary);
  std::printf("%s in %s, generated, %s: relative error %.2e, mean KL %.2e\n", name.c_str(),
              quant::to_string(blocks).data(), is_persistent(*executor) ? "persistent" : "graph", error, kl);
  EXPECT_LT(error, kPersistentBar);
  EXPECT_LT(kl, kMeanKlBar);
  for (size_t chunk : kChunks)
    EXPECT_TRUE(same_bits(all_logits(*executor, model->program, tokens, chunk, Role::kGenerated), whole))
        << "chunks of " << chunk;
}

TEST_P(CudaFamilies, in_q8_0_agree_with_the_reference_and_chunks_have_the_same_bits) {
  expect_rounded_near_reference(GetParam(), quant::Format::kQ8_0, quant::Format::kF16);
}
TEST_P(CudaFamilies, in_bf16_agree_with_the_reference_and_chunks_have_the_same_bits) {
  expect_rounded_near_reference(GetParam(), quant::Format::kBF16, quant::Format::kBF16);
}

INSTANTIATE_TEST_SUITE_P(All, CudaFamilies, ::testing::ValuesIn(test_support::kGoldenFamilies),
                         [](const auto& tested) { return test_support::test_name(tested.param.name); });

}  // namespace
}  // namespace honeycrisp::testing
