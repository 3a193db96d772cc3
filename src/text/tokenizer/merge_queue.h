// Greedy pair merging in O(n log n), shared by both schemes (BPE: lowest rank first; SentencePiece: highest score
// first): symbols in a doubly linked list, candidate pairs in a heap, ties to the leftmost pair. A pair is recognised
// as out of date, when it comes to the top, by its length.
#pragma once

#include "text/tokenizer.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

namespace honeycrisp::text {

/// A stretch of text that is one token, or one character that is none (id kNoToken).
struct Symbol {
  TokenId id;
  uint32_t begin;          // in the text
  uint32_t length;         // bytes; 0 once it has been merged into its left neighbour
  int32_t previous, next;  // -1 at the ends
};

struct MergeCandidate {
  uint32_t priority;  // smaller merges first
  TokenId merged;
};

class MergeQueue {
 public:
  std::vector<Symbol> symbols;

  void clear() { symbols.clear(); }
  void add(TokenId id, uint32_t begin, uint32_t length) {
    const int32_t at = int32_t(symbols.size());
    if (at > 0) symbols.back().next = at;
    symbols.push_back({id, begin, length, at - 1, -1});
  }

  /// Merges until no pair is left. `find(left, right)` gives std::optional<MergeCandidate> for two neighbours.
  template <class Find>
  void run(const Find& find) {
    heap_.clear();
    for (int32_t left = 0; left + 1 < int32_t(symbols.size()); ++left) push(left, find);
    while (!heap_.empty()) {
      std::pop_heap(heap_.begin(), heap_.end(), later);
      const Pair pair = heap_.back();
      heap_.pop_back();
      Symbol& left = symbols[size_t(pair.left)];
      // A symbol only grows to the right, and by swallowing its neighbour: equal length means that nothing changed.
      if (left.length == 0 || left.next < 0) continue;
      Symbol& right = symbols[size_t(left.next)];
      if (left.length + right.length != pair.length || left.next != pair.right) continue;
      left.id = pair.merged;
      left.length += right.length;
      left.next = right.next;
      right.length = 0;
      if (left.next >= 0) symbols[size_t(left.next)].previous = pair.left;
      if (left.previous >= 0) push(left.previous, find);
      push(pair.left, find);
    }
  }

 private:
  struct Pair {
    uint32_t priority;
    int32_t left, right;
    uint32_t length;
    TokenId merged;
  };
  static bool later(const Pair& a, const Pair& b) {
    return a.priority != b.priority ? a.priority > b.priority : a.left > b.left;
  }
  template <class Find>
  void push(int32_t left, const Find& find) {
    const Symbol& a = symbols[size_t(left)];
    if (a.next < 0) return;
    const Symbol& b = symbols[size_t(a.next)];
    if (const std::optional<MergeCandidate> candidate = find(a, b)) {
      heap_.push_back({candidate->priority, left, a.next, a.length + b.length, candidate->merged});
      std::push_heap(heap_.begin(), heap_.end(), later);
    }
  }

  std::vector<Pair> heap_;
};

}  // namespace honeycrisp::text
