#include "project_cases.h"

#include "project_case.h"

namespace honeycrisp::backend::metal::soft::testing {
namespace {

using metal::testing::check_project;
using metal::testing::normals;
using metal::testing::random_weights;
using metal::testing::Rig;
using metal::testing::Shape;
using quant::Format;

using LibraryRef = std::shared_ptr<const Library>;

/// The first that is wrong of several shapes.
std::string check(Device& device, const LibraryRef& library, const std::vector<Shape>& shapes) {
  for (const Shape& s : shapes) {
    Rig rig(device.shared_from_this(), {library});
    if (std::string wrong = check_project(rig, s, 1); !wrong.empty()) return wrong;
  }
  return "";
}

/// A residual that waits, who resolves it for itself, a gate, who brings x up to date, and one more that waits.
std::string layer(Device& device, const LibraryRef& library, Role role, uint32_t n) {
  constexpr uint32_t kWidth = 100, kHidden = 75;
  Rig rig(device.shared_from_this(), {library});
  const program::Slice x = rig.add_buffer(kWidth), a = rig.add_buffer(kWidth), h = rig.add_buffer(kHidden),
                       q = rig.add_buffer(kWidth);
  const auto matrix = [&](uint32_t rows, uint32_t cols) {
    return rig.add_weight(Format::kF32, rows, cols, random_weights(Format::kF32, rows, cols, rows));
  };
  const program::Norm norm{rig.add_vector(normals(kWidth, 1)), 1e-6f};
  const auto project = [&](program::Slice in, std::optional<program::Norm> input_norm,
                           std::vector<program::Matrix> matrices, auto ending) {
    program::Project op{.in = in, .input_norm = input_norm, .matrices = matrices, .biases = {}, .ending = ending};
    op.biases.resize(matrices.size());
    return op;
  };
  rig.set_rows(n, role);
  rig.fill(x, normals(n * kWidth, 2));
  rig.fill(a, normals(n * kWidth, 3));
  return rig.run({
      project(a, {}, {matrix(kWidth, kWidth)}, program::Residual{.x = x, .post_norm = norm}),
      project(x, norm, {matrix(kHidden, kWidth), matrix(kHidden, kWidth)},
              program::Gate{program::Activation::kSilu, {}, h}),
      project(h, {}, {matrix(kWidth, kHidden)}, program::Residual{.x = x, .post_norm = norm}),
      project(x, norm, {matrix(kWidth, kWidth)}, program::Store{.outs = {q}, .norm = norm, .add = x}),
  });
}

std::string mat_vec(Device& device, const LibraryRef& library) {
  std::string wrong = check(device, library,
                            {{Format::kQ4_0, 33, 96, 1, Role::kGenerated, true, true},
                             {Format::kF32, 9, 40, 1, Role::kGenerated, true},
                             {Format::kQ4_K, 7, 1280, 3, Role::kGenerated, true}});
  return wrong.empty() ? layer(device, library, Role::kGenerated, 3) : wrong;
}
std::string mat_mul(Device& device, const LibraryRef& library) {
  std::string wrong =
      check(device, library,
            {{Format::kQ4_0, 33, 96, 9, Role::kPrompt, false, true}, {Format::kF32, 70, 40, 33, Role::kPrompt}});
  return wrong.empty() ? layer(device, library, Role::kPrompt, 3) : wrong;
}
std::string rows(Device& device, const LibraryRef& library) { return layer(device, library, Role::kPrompt, 3); }

}  // namespace

const std::vector<Case>& project_cases() {
  static const std::vector<Case> all = {
      {"mat_vec", "mat_vec", mat_vec}, {"mat_mul", "mat_mul", mat_mul}, {"rows", "rows", rows}};
  return all;
}

}  // namespace honeycrisp::backend::metal::soft::testing
