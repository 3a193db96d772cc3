#include "backend/metal/pipelines.h"

#include <algorithm>

namespace honeycrisp::backend::metal {

Result<const Pipeline*> Pipelines::get(std::string_view file, std::string_view kernel,
                                       std::span<const Constant> constants) {
  Key key{std::string(kernel), {constants.begin(), constants.end()}};
  std::sort(key.second.begin(), key.second.end(),
            [](const Constant& a, const Constant& b) { return a.index < b.index; });
  auto found = pipelines_.find(key);
  if (found == pipelines_.end()) {
    HC_ASSIGN(auto made, device_.pipeline(file, kernel, key.second));
    found = pipelines_.emplace(std::move(key), std::move(made)).first;
  }
  return found->second.get();
}

}  // namespace honeycrisp::backend::metal
