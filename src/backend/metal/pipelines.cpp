#include "backend/metal/pipelines.h"

#include <algorithm>

namespace honeycrisp::backend::metal {

Result<const Pipeline*> Pipelines::get(std::string_view file, std::string_view kernel,
                                       std::span<const Constant> constants) {
  Key key{std::string(file), std::string(kernel), {constants.begin(), constants.end()}};
  std::vector<Constant>& sorted = std::get<2>(key);
  std::sort(sorted.begin(), sorted.end(), [](const Constant& a, const Constant& b) { return a.index < b.index; });
  auto found = pipelines_.find(key);
  if (found == pipelines_.end()) {
    HC_ASSIGN(auto made, device_.pipeline(file, kernel, sorted));
    found = pipelines_.emplace(std::move(key), std::move(made)).first;
  }
  return found->second.get();
}

}  // namespace honeycrisp::backend::metal
