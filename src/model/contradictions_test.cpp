// Every golden file with one thing changed: each hyper-parameter and each tensor in turn. A file that contradicts
// itself is refused by a message that names the key or the tensor; what may change freely is listed here.
#include "gguf/file.h"
#include "model/model.h"
#include "support/golden_families.h"
#include "support/read_raw.h"
#include "support/temporary_folder.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <span>

namespace honeycrisp::model {
namespace {

using namespace test_support;
using testing::AnyOf;
using testing::HasSubstr;

constexpr uint32_t kTypeI32 = 26;

/// Writes the file with holes for the matrices, so that thousands of variants cost little: what is tested here reads
/// no more than the vectors.
std::string write_sparsely(const TemporaryFolder& folder, const RawGguf& raw) {
  RawGguf header = raw;
  uint64_t at = 0;
  for (RawTensor& tensor : header.tensors) {
    uint64_t size = sizeof(float);
    for (const uint64_t dim : tensor.dims) size *= dim;
    tensor.offset = at;
    tensor.data.clear();
    at = (at + size + raw.alignment - 1) / raw.alignment * raw.alignment;
  }
  const std::string head = header.bytes();
  const std::string path = folder.write("model.gguf", head);
  std::filesystem::resize_file(path, head.size() + at);
  std::fstream out(path, std::ios::binary | std::ios::in | std::ios::out);
  for (size_t i = 0; i < raw.tensors.size(); ++i) {
    if (raw.tensors[i].dims.size() != 1) continue;
    out.seekp(std::streamoff(head.size() + *header.tensors[i].offset));
    out << raw.tensors[i].data;
  }
  return path;
}

/// A number or an array of them, as a file has it.
struct Integers {
  bool is_array = false;
  uint32_t type = 0;
  std::vector<int64_t> values;

  RawValue pack() const {
    std::string bytes;
    for (const int64_t v : values) bytes += packed(v).substr(0, size());
    return is_array ? array_value(type, values.size(), bytes) : RawValue{type, bytes};
  }
  size_t size() const { return type == 7 ? 1 : type >= 10 ? 8 : type < 2 ? 1 : type < 4 ? 2 : 4; }
};
std::optional<Integers> integers(const RawValue& raw) {
  Integers result{.is_array = raw.type == kTypeArray, .type = raw.type};
  std::string_view bytes = raw.payload;
  if (result.is_array) {
    std::memcpy(&result.type, bytes.data(), sizeof result.type);
    bytes.remove_prefix(sizeof(uint32_t) + sizeof(uint64_t));
  }
  if (result.type == type_id<float>() || result.type == type_id<double>() || result.type == kTypeString) return {};
  for (; !bytes.empty(); bytes.remove_prefix(result.size())) {
    int64_t v = 0;
    std::memcpy(&v, bytes.data(), result.size());
    result.values.push_back(v);
  }
  return result;
}

class GoldenContradictions : public testing::TestWithParam<GoldenFamily> {
 protected:
  void SetUp() override {
    for (RawTensor& tensor : raw_.tensors)
      if (tensor.dims.size() != 1) tensor.data.clear();
    const auto file = gguf::File::open(write_sparsely(folder_, raw_));
    ASSERT_TRUE(file) << file.error().message;
    const auto model = load(*file, {.context = GetParam().context});
    ASSERT_TRUE(model) << model.error().message;
    architecture_ = model->summary.architecture;
  }

  /// The message of the refusal; empty if the file was accepted.
  std::string refusal(const RawGguf& raw) const {
    const auto file = gguf::File::open(write_sparsely(folder_, raw));
    if (!file) return file.error().message;
    const auto model = load(*file, {.context = GetParam().context});
    return model ? "" : model.error().message;
  }

  std::string key(std::string_view suffix) const { return architecture_ + "." + std::string(suffix); }
  /// Whether it is one that the family needs.
  bool is_hyper_parameter(const std::string& full_key) const {
    constexpr std::string_view kUnread[] = {
        "rope.dimension_sections",
        "full_attention_interval",  // every file that has it has a flag per layer too
        // Granite 4, dense: from the converter of mixtures and hybrids.
        "expert_shared_feed_forward_length", "expert_used_count", "ssm.conv_kernel", "ssm.state_size",
        "ssm.group_count", "ssm.inner_size", "ssm.time_step_rank"};
    if (!full_key.starts_with(architecture_ + ".")) return false;
    const std::span<const std::string_view> unread(kUnread, architecture_ == "granite" ? std::size(kUnread) : 2);
    return std::ranges::find(unread, full_key.substr(architecture_.size() + 1)) == unread.end();
  }

  TemporaryFolder folder_;
  RawGguf raw_ = read_raw(golden_path(GetParam().name, ".gguf"));
  std::string architecture_;
};

/// Without them the file is another valid model.
bool may_be_absent(std::string_view family, std::string_view tensor) {
  if (tensor == "output.weight") return true;                               // tied
  if (tensor == "rope_freqs.weight") return !family.starts_with("gemma4");  // unscaled
  return family == "gemma4-e" && tensor == "blk.2.attn_v.weight";           // the only full layer: V is K
}
/// Keys and values of layers that read another layer's cache.
bool is_ignored(std::string_view family, std::string_view tensor) {
  return family == "gemma4-e" && (tensor.starts_with("blk.4.attn_k") || tensor.starts_with("blk.4.attn_v") ||
                                  tensor.starts_with("blk.5.attn_k") || tensor.starts_with("blk.5.attn_v"));
}

TEST_P(GoldenContradictions, a_missing_tensor_is_refused) {
  for (const RawTensor& tensor : raw_.tensors) {
    if (may_be_absent(GetParam().name, tensor.name) || is_ignored(GetParam().name, tensor.name)) continue;
    RawGguf changed = raw_;
    changed.remove_tensor(tensor.name);
    EXPECT_THAT(refusal(changed), HasSubstr("'" + tensor.name + "'"));
  }
}

TEST_P(GoldenContradictions, a_tensor_of_another_shape_is_refused) {
  for (const RawTensor& tensor : raw_.tensors) {
    if (is_ignored(GetParam().name, tensor.name)) continue;
    for (size_t axis = 0; axis < tensor.dims.size(); ++axis) {
      RawGguf changed = raw_;
      uint64_t& dim = changed.tensor(tensor.name).dims[axis];
      dim = dim == 1 ? 2 : dim - 1;
      // The vocabulary is counted by the rows of the embedding.
      EXPECT_THAT(refusal(changed), AnyOf(HasSubstr("'" + tensor.name + "'"), HasSubstr(tensor.name + " has")))
          << "axis " << axis;
    }
  }
}

TEST_P(GoldenContradictions, a_tensor_of_integers_is_refused) {
  for (const RawTensor& tensor : raw_.tensors) {
    if (is_ignored(GetParam().name, tensor.name)) continue;
    RawGguf changed = raw_;
    changed.tensor(tensor.name).type = kTypeI32;
    EXPECT_THAT(refusal(changed), HasSubstr("tensor '" + tensor.name + "' is of type I32"));
  }
}

TEST_P(GoldenContradictions, a_hyper_parameter_of_another_type_is_refused) {
  for (const RawEntry& entry : raw_.entries) {
    if (!is_hyper_parameter(entry.key)) continue;
    RawGguf changed = raw_;
    changed.set(entry.key, entry.value.type == kTypeString ? value(1.5f) : value("text"));
    EXPECT_THAT(refusal(changed), HasSubstr(entry.key));
  }
}

TEST_P(GoldenContradictions, an_array_of_another_length_is_refused) {
  for (const RawEntry& entry : raw_.entries) {
    const std::optional<Integers> values = integers(entry.value);
    if (!is_hyper_parameter(entry.key) || !values || !values->is_array) continue;
    RawGguf changed = raw_;
    Integers longer = *values;
    longer.values.push_back(longer.values.back());
    changed.set(entry.key, longer.pack());
    EXPECT_THAT(refusal(changed), HasSubstr(entry.key));
  }
}

/// Numbers that make another valid model if they change a little.
bool is_free(const RawGguf& file, std::string_view suffix) {
  if (suffix == "feed_forward_length")  // where all layers are mixtures
    return std::ranges::none_of(file.tensors, [](const RawTensor& t) { return t.name.ends_with("ffn_up.weight"); });
  constexpr std::string_view kFree[] = {
      "context_length",
      "attention.sliding_window",
      "attention.shared_kv_layers",
      "attention.sliding_window_pattern",
      "rope.scaling.original_context_length",
      "expert_used_count",
      "rope.scaling.finetuned",  // whether Granite rotates
  };
  return std::ranges::find(kFree, suffix) != std::end(kFree);
}

TEST_P(GoldenContradictions, a_number_that_does_not_fit_the_tensors_is_refused) {
  for (const RawEntry& entry : raw_.entries) {
    const std::optional<Integers> values = integers(entry.value);
    if (!is_hyper_parameter(entry.key) || !values || is_free(raw_, entry.key.substr(architecture_.size() + 1)))
      continue;
    for (size_t i = 0; i < values->values.size(); ++i)
      for (const int64_t step : {-1, 1}) {
        Integers other = *values;
        other.values[i] += step;
        if (other.values[i] < 0) continue;
        RawGguf changed = raw_;
        changed.set(entry.key, other.pack());
        EXPECT_THAT(refusal(changed), AnyOf(HasSubstr(architecture_ + "."), HasSubstr("tensor '")))
            << entry.key << "[" << i << "] " << values->values[i] << (step < 0 ? " - 1" : " + 1");
      }
  }
}

struct Setting {
  const char* suffix;
  std::optional<RawValue> value;  // unset: the key is removed
};

TEST_P(GoldenContradictions, a_value_out_of_range_is_refused) {
  const RawValue nan = value(std::nanf("")), zero = value(uint32_t{0}), most = value(UINT32_MAX);
  const Setting kSettings[] = {
      {"block_count", zero},
      {"block_count", most},
      {"block_count", std::nullopt},
      {"context_length", zero},
      {"context_length", std::nullopt},
      {"embedding_length", zero},
      {"embedding_length", most},
      {"embedding_length", std::nullopt},
      {"attention.head_count", zero},
      {"attention.head_count", most},
      {"attention.head_count", std::nullopt},
      {"attention.head_count_kv", zero},
      {"attention.head_count_kv", most},
      {"attention.key_length", zero},
      {"attention.key_length", most},
      {"attention.value_length", zero},
      {"attention.value_length", most},
      {"attention.layer_norm_rms_epsilon", nan},
      {"attention.layer_norm_rms_epsilon", value(-1.0f)},
      {"attention.layer_norm_rms_epsilon", std::nullopt},
      {"feed_forward_length", most},
      {"rope.dimension_count", zero},
      {"rope.dimension_count", value(uint32_t{7})},
      {"rope.dimension_count", value(uint32_t{4096})},
      {"rope.freq_base", nan},
      {"rope.freq_base", value(0.0f)},
      {"rope.scaling.type", value("dynamic")},
      {"vocab_size", zero},
      {"expert_count", most},
  };
  for (const Setting& setting : kSettings) {
    RawGguf changed = raw_;
    if (setting.value)
      changed.set(key(setting.suffix), *setting.value);
    else
      changed.remove(key(setting.suffix));
    EXPECT_THAT(refusal(changed), HasSubstr(key(setting.suffix)));
  }
}

TEST_P(GoldenContradictions, a_head_or_a_mixture_that_the_tensors_do_not_have_is_refused) {
  for (const char* suffix : {"attention.key_length", "attention.value_length"}) {
    RawGguf changed = raw_;
    changed.set(key(suffix), value(uint32_t{14}));
    EXPECT_THAT(refusal(changed), AnyOf(HasSubstr(key(suffix)), HasSubstr("tensor '"), HasSubstr("rope."))) << suffix;
  }
  RawGguf changed = raw_;
  changed.set(key("expert_count"), value(uint32_t{3}));
  EXPECT_THAT(refusal(changed), AnyOf(HasSubstr(key("expert")), HasSubstr("tensor '")));
}

const auto test_name = [](const auto& tested) { return test_support::test_name(tested.param.name); };
INSTANTIATE_TEST_SUITE_P(All, GoldenContradictions, testing::ValuesIn(kGoldenFamilies), test_name);

}  // namespace
}  // namespace honeycrisp::model
