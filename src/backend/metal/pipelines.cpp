#include "backend/metal/pipelines.h"

#include <algorithm>

namespace honeycrisp::backend::metal {

Result<const Pipeline*> Pipelines::get(std::string_view file, std::string_view kernel, uint32_t threads,
                                       std::span<const Constant> constants) {
  Key key{std::string(file), std::string(kernel), {constants.begin(), constants.end()}};
  std::vector<Constant>& sorted = std::get<2>(key);
  std::sort(sorted.begin(), sorted.end(), [](const Constant& a, const Constant& b) { return a.index < b.index; });
  auto found = pipelines_.find(key);
  if (found == pipelines_.end()) {
    HC_ASSIGN(auto made, device_.pipeline(file, kernel, sorted));
    found = pipelines_.emplace(std::move(key), std::move(made)).first;
  }
  const Pipeline& pipeline = *found->second;
  if (threads > pipeline.most_threads())
    return unsupported("{}.metal: pipeline of {}: threadgroups of at most {} threads on this device, {} are needed",
                       file, pipeline.name(), pipeline.most_threads(), threads);
  return &pipeline;
}

}  // namespace honeycrisp::backend::metal
