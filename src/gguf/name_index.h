// Finds a record by its name in O(log n), and the first name that occurs twice.
// A sorted array rather than a hash table: a file cannot choose names that make it slow, and it takes less memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string_view>
#include <vector>

namespace honeycrisp::gguf {

class NameIndex {
 public:
  struct Record {
    std::string_view name;
    size_t position;
  };
  struct Duplicate {
    size_t first;
    size_t second;
  };

  /// Call for every record in order, then sort() once.
  void add(std::string_view name) { records_.push_back({name, records_.size()}); }

  void sort() {
    std::sort(records_.begin(), records_.end(), [](const Record& a, const Record& b) {
      const int order = a.name.compare(b.name);
      return order != 0 ? order < 0 : a.position < b.position;
    });
  }

  /// Positions of two records of one name. Requires sort().
  std::optional<Duplicate> find_duplicate() const {
    const auto same_name = [](const Record& a, const Record& b) { return a.name == b.name; };
    const auto it = std::adjacent_find(records_.begin(), records_.end(), same_name);
    if (it == records_.end()) return std::nullopt;
    return Duplicate{it->position, std::next(it)->position};
  }

  /// Position of the record of this name. Requires sort().
  std::optional<size_t> find(std::string_view name) const {
    const auto before = [](const Record& record, std::string_view wanted) { return record.name < wanted; };
    const auto it = std::lower_bound(records_.begin(), records_.end(), name, before);
    if (it == records_.end() || it->name != name) return std::nullopt;
    return it->position;
  }

 private:
  std::vector<Record> records_;
};

}  // namespace honeycrisp::gguf
