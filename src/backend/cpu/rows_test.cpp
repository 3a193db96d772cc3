// Norms, gates and caps: near f64, safe at the edges, and the same bits on every instruction set.
#include "backend/cpu/testing.h"
#include "backend/cpu/thread_pool.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <gtest/gtest.h>
#include <limits>

namespace honeycrisp::backend::cpu {
namespace {

using namespace testing;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// Zeros, the magnitudes at which activations break, a dense line between, and finite values of all magnitudes; a
// multiple of 16.
std::vector<float> arguments() {
  std::vector<float> x;
  for (float v : {0.0f,  1e-30f, 1e-10f, 1e-3f, 0.3f,  0.624f, 0.626f, 1.0f, 5.0f, 11.0f,
                  13.9f, 14.1f,  40.0f,  87.0f, 88.0f, 89.0f,  100.0f, 1e3f, 1e4f, 1e30f}) {
    x.push_back(v);
    x.push_back(-v);
  }
  for (float v = -20; v < 20; v += 0.00771f) x.push_back(v);
  constexpr uint64_t kStep = 16381;  // a prime: all trailing bits
  for (uint64_t bits = 0; bits < uint64_t{1} << 32; bits += kStep)
    if (const float v = std::bit_cast<float>(uint32_t(bits)); std::isfinite(v)) x.push_back(v);
  x.resize(x.size() / kLanes * kLanes + kLanes, 0.5f);
  return x;
}

struct Function {
  const char* name;
  std::function<void(const Isa&, std::vector<float>&)> apply;  // in place
  std::function<double(double)> exact;
  double ulps;  // at most; measured over every 499th float: see math.inl
};
constexpr double kLeast = 1e-35;  // below it results may be flushed to 0 on the way

double ulp_of(double x) { return std::ldexp(1.0, std::max(std::ilogb(x), -126) - 23); }

const std::vector<Function>& functions() {
  static const std::vector<Function> all = {
      {"exponential", [](const Isa& isa, std::vector<float>& x) { isa.exponentials(x.data(), uint32_t(x.size()), 0); },
       [](double x) { return std::exp(x); }, 1},
      {"silu",
       [](const Isa& isa, std::vector<float>& x) {
         const std::vector<float> ones(x.size(), 1.0f);
         isa.gate_silu(ones.data(), x.data(), x.size());
       },
       [](double x) { return x / (1 + std::exp(-x)); }, 3},
      {"gelu_tanh",
       [](const Isa& isa, std::vector<float>& x) {
         const std::vector<float> ones(x.size(), 1.0f);
         isa.gate_gelu_tanh(ones.data(), x.data(), x.size());
       },
       [](double x) {
         const double z = 2 * std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
         return std::isinf(std::exp(-z)) ? 0.0 : x / (1 + std::exp(-z));
       },
       3.2},
      {"clamped_swiglu_of_the_gate",
       [](const Isa& isa, std::vector<float>& x) {
         const std::vector<float> ones(x.size(), 1.0f);
         isa.gate_clamped_swiglu(ones.data(), x.data(), x.size());
       },
       [](double x) {
         const double g = std::min(x, 7.0);
         return 2 * g / (1 + std::exp(-double(program::kSwigluAlpha) * g));
       },
       64},  // the rounding of 1.702 g is magnified by up to 87 in e^−1.702 g
      {"clamped_swiglu_of_up",
       [](const Isa& isa, std::vector<float>& x) {
         std::vector<float> gate(x.size(), 3.0f);
         isa.gate_clamped_swiglu(x.data(), gate.data(), x.size());
         x = gate;
       },
       [](double x) { return 3 / (1 + std::exp(-double(program::kSwigluAlpha) * 3)) * (std::clamp(x, -7.0, 7.0) + 1); },
       4},
      {"sigmoid",
       [](const Isa& isa, std::vector<float>& x) {
         std::vector<float> ones(x.size(), 1.0f);
         isa.sigmoid_gate(x.data(), ones.data(), uint32_t(x.size()));
         x = ones;
       },
       [](double x) { return 1 / (1 + std::exp(-x)); }, 2.2},
      {"decay_of_softplus",
       [](const Isa& isa, std::vector<float>& x) {
         const std::vector<float> a(x.size(), -0.05f), zeros(x.size());
         std::vector<float> beta(x.size());
         isa.delta_gates(a.data(), zeros.data(), uint32_t(x.size()), x.data(), beta.data());
       },
       [](double x) { return std::exp(double(-0.05f) * (x > 30 ? x : std::log1p(std::exp(x)))); }, 270},
      {"beta",
       [](const Isa& isa, std::vector<float>& x) {
         const std::vector<float> zeros(x.size());
         std::vector<float> decay(x.size());
         isa.delta_gates(zeros.data(), zeros.data(), uint32_t(x.size()), decay.data(), x.data());
       },
       [](double x) { return 1 / (1 + std::exp(-x)); }, 2.2},
      {"softcap_50", [](const Isa& isa, std::vector<float>& x) { isa.cap_and_scale(x.data(), x.size(), 50, 1); },
       [](double x) { return 50 * std::tanh(x / 50); }, 3},
      {"softcap_1", [](const Isa& isa, std::vector<float>& x) { isa.cap_and_scale(x.data(), x.size(), 1, 2); },
       [](double x) { return 2 * std::tanh(x); }, 1.6},
  };
  return all;
}

class ElementFunctions : public ::testing::TestWithParam<size_t> {
 protected:
  const Function& f_ = functions()[GetParam()];
  const FlushSubnormals flush_;
};

TEST_P(ElementFunctions, are_within_their_ulps_of_f64) {
  const std::vector<float> x = arguments();
  std::vector<float> y = x;
  f_.apply(*available_isas().front(), y);
  for (size_t i = 0; i < x.size(); ++i) {
    const double exact = f_.exact(std::fabs(x[i]) < std::numeric_limits<float>::min() ? 0 : double(x[i]));
    if (std::fabs(exact) > double(std::numeric_limits<float>::max()))
      ASSERT_EQ(y[i], std::copysign(kInfinity, exact)) << x[i];
    else
      ASSERT_NEAR(y[i], exact, std::fabs(exact) < kLeast ? kLeast : f_.ulps * ulp_of(exact)) << x[i];
  }
}

TEST_P(ElementFunctions, have_the_same_bits_on_every_instruction_set) {
  const std::vector<float> x = arguments();
  std::vector<float> expected = x;
  f_.apply(*find_isa("scalar").value(), expected);
  for (const Isa* isa : available_isas()) {
    std::vector<float> y = x;
    f_.apply(*isa, y);
    EXPECT_TRUE(same_bits(y, expected)) << isa->name;
  }
}

TEST_P(ElementFunctions, keep_nan) {
  for (const Isa* isa : available_isas()) {
    std::vector<float> y(kLanes, kNaN);
    f_.apply(*isa, y);
    for (float v : y) EXPECT_TRUE(std::isnan(v)) << isa->name;
  }
}

INSTANTIATE_TEST_SUITE_P(All, ElementFunctions, ::testing::Range(size_t{0}, functions().size()),
                         [](const auto& param_info) { return std::string(functions()[param_info.param].name); });

TEST(RmsNorm, is_near_f64_with_the_same_bits_everywhere) {
  const FlushSubnormals flush;
  Random random(3);
  for (uint32_t n : {1u, 2u, 8u, 15u, 16u, 17u, 64u, 100u, 576u, 4096u}) {
    const std::vector<float> x = random.floats(n, -4, 4), weight = random.floats(n, 0.5f, 2);
    std::vector<float> expected;
    for (bool weighted : {false, true}) {
      double squares = 0;
      for (float v : x) squares += double(v) * v;
      std::vector<float> scalar(n);
      find_isa("scalar").value()->rms_norm(x.data(), n, weighted ? weight.data() : nullptr, 1e-5f, scalar.data());
      for (const Isa* isa : available_isas()) {
        std::vector<float> y = x;  // in place
        isa->rms_norm(y.data(), n, weighted ? weight.data() : nullptr, 1e-5f, y.data());
        EXPECT_TRUE(same_bits(y, scalar)) << isa->name << ", " << n;
      }
      for (uint32_t i = 0; i < n; ++i) {
        const double exact = x[i] / std::sqrt(squares / n + 1e-5) * (weighted ? weight[i] : 1);
        ASSERT_NEAR(scalar[i], exact, 1e-6 * std::fabs(exact)) << n;
      }
    }
  }
}

TEST(RmsNorm, of_values_whose_squares_overflow_is_right) {
  for (const Isa* isa : available_isas()) {
    std::vector<float> y(32, 1e30f);
    y[3] = -1e30f;
    isa->rms_norm(y.data(), 32, nullptr, 1e-5f, y.data());
    for (int i = 0; i < 32; ++i) EXPECT_NEAR(y[size_t(i)], i == 3 ? -1 : 1, 1e-6) << isa->name;
  }
}

TEST(RmsNorm, of_an_infinity_or_nan_has_a_nan) {
  for (const Isa* isa : available_isas())
    for (float bad : {kInfinity, kNaN}) {
      std::vector<float> y(32, 1.0f);
      y[20] = bad;
      isa->rms_norm(y.data(), 32, nullptr, 1e-5f, y.data());
      EXPECT_TRUE(std::isnan(y[20])) << isa->name;
    }
}

}  // namespace
}  // namespace honeycrisp::backend::cpu
