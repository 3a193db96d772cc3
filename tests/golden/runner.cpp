#include "runner.h"

#include "backend/registry.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <gtest/gtest.h>

namespace honeycrisp::testing {
namespace {

constexpr backend::StateId kState = 0;  // of the one sequence

}  // namespace

Runner::Runner(const std::string& path, const std::string& backend_name, backend::CompileOptions options,
               const model::LoadOptions& load) {
  auto file = gguf::File::open(path);
  if (!file) {
    ADD_FAILURE() << file.error().message;
    return;
  }
  file_ = std::move(*file);
  auto model = model::load(*file_, load);
  auto backend = backend::find_backend(backend_name);
  if (!model || !backend) {
    ADD_FAILURE() << path << ": " << (model ? backend.error() : model.error()).message;
    return;
  }
  model_ = std::move(*model);
  options.max_positions = 8192;
  auto executor = (*backend)->compile(model_.program, options);
  if (!executor) {
    ADD_FAILURE() << path << ": " << executor.error().message;
    return;
  }
  if (auto reserved = (*executor)->reserve_states(kState + 1); !reserved) {
    ADD_FAILURE() << path << ": " << reserved.error().message;
    return;
  }
  executor_ = std::move(*executor);
}

void Runner::reserve(size_t positions) {
  while (pages_.size() * program::kPagePositions < positions) pages_.push_back(backend::PageId(pages_.size()));
  for (uint32_t pool = 0; pool < model_.program.pools.size(); ++pool)
    ASSERT_TRUE(executor_->reserve_pages(pool, uint32_t(pages_.size())));
}

std::vector<float> Runner::compute(std::span<const int32_t> tokens, bool all, backend::Role role) {
  reserve(position_ + tokens.size());
  std::vector<backend::Row> rows;
  for (size_t i = 0; i < tokens.size(); ++i)
    rows.push_back({tokens[i], position_ + uint32_t(i), 0, all || i + 1 == tokens.size(), role});
  backend::SequencePages pages;
  pages.tables.assign(model_.program.pools.size(), pages_);
  pages.state = kState;
  std::vector<float> logits((all ? tokens.size() : 1) * vocabulary());
  auto result = executor_->step({rows, std::span(&pages, 1)}, logits);
  if (!result) ADD_FAILURE() << result.error().message;
  position_ += uint32_t(tokens.size());
  return logits;
}

void Runner::for_each_position(const std::vector<int32_t>& tokens, size_t chunk,
                               const std::function<void(size_t, std::span<const float>)>& visit, backend::Role role) {
  reset();
  for (size_t i = 0; i < tokens.size(); i += chunk) {
    const auto part = std::span(tokens).subspan(i, std::min(chunk, tokens.size() - i));
    const std::vector<float> rows = compute(part, true, role);
    for (size_t row = 0; row < part.size(); ++row)
      visit(i + row, std::span(rows).subspan(row * vocabulary(), vocabulary()));
  }
}

std::vector<float> Runner::all_logits(const std::vector<int32_t>& tokens, size_t chunk) {
  std::vector<float> all;
  for_each_position(tokens, chunk, [&](size_t, std::span<const float> logits) {
    all.insert(all.end(), logits.begin(), logits.end());
  });
  return all;
}

std::vector<float> Runner::append(const std::vector<int32_t>& tokens, size_t chunk, backend::Role role) {
  std::vector<float> logits;
  for (size_t i = 0; i < tokens.size(); i += chunk)
    logits = compute(std::span(tokens).subspan(i, std::min(chunk, tokens.size() - i)), false, role);
  return logits;
}

std::vector<int32_t> Runner::greedy(const std::vector<int32_t>& tokens, size_t n, size_t chunk) {
  reset();
  std::vector<int32_t> produced;
  for (std::vector<float> logits = append(tokens, chunk); !::testing::Test::HasFailure();
       logits = append({produced.back()}, 1, backend::Role::kGenerated)) {
    produced.push_back(int32_t(std::max_element(logits.begin(), logits.end()) - logits.begin()));
    if (produced.size() == n) break;
  }
  return produced;
}

double relative_error(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return INFINITY;
  double difference = 0, norm = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += (double(a[i]) - double(b[i])) * (double(a[i]) - double(b[i]));
    norm += double(b[i]) * double(b[i]);
  }
  return std::sqrt(difference / norm);
}

std::vector<float> read_floats(const std::string& path) {
  std::ifstream in(path, std::ios::binary | std::ios::ate);
  if (!in) {
    ADD_FAILURE() << "cannot open " << path;
    return {};
  }
  std::vector<float> values(size_t(in.tellg()) / sizeof(float));
  in.seekg(0);
  in.read(reinterpret_cast<char*>(values.data()), std::streamsize(values.size() * sizeof(float)));
  return values;
}

std::vector<int32_t> read_ids(const std::string& path) {
  std::ifstream in(path);
  std::vector<int32_t> ids;
  for (int32_t id; in >> id;) ids.push_back(id);
  if (ids.empty()) ADD_FAILURE() << "no ids in " << path;
  return ids;
}

}  // namespace honeycrisp::testing
