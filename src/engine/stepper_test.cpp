// Paging, forks, rewinds and batches over the toy backend, whose logits show any page that is not what it should be.
#include "engine/testing/rig.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <list>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

namespace honeycrisp::engine {
namespace {

using namespace toy;
using backend::Role;

TEST(Stepper, chunks_of_any_size_give_the_same_logits) {
  for (const uint32_t chunk : {1u, 2u, 3u, 7u, 64u, 65u, 512u}) {
    KvCache::Limits limits = kSmall;
    limits.chunk = chunk;
    Rig rig({0, 40}, limits);
    Sequence sequence(rig.cache);
    EXPECT_TRUE(rig.append_matches(sequence, some_tokens(300))) << chunk;
    EXPECT_EQ(rig.control->largest_batch, std::min(chunk, 300u));
  }
}

TEST(Stepper, several_sequences_in_one_batch_equal_each_alone) {
  Rig rig({0, 40}, kSmall);
  std::list<Sequence> sequences;
  std::vector<std::vector<float>> logits(3, std::vector<float>(kVocabulary));
  std::vector<Work> works;
  for (size_t i = 0; i < 3; ++i) {
    Sequence& sequence = sequences.emplace_back(rig.cache);
    sequence.push(some_tokens(5 + 50 * i, int32_t(i)), Role::kPrompt);
    works.push_back({&sequence, sequence.size() - 1, logits[i]});
  }
  while (rig.stepper.step(works).value()) {
  }
  size_t i = 0;
  for (const Sequence& sequence : sequences) EXPECT_EQ(logits[i++], rig.expected(sequence));
}

TEST(Stepper, all_rows_of_logits_equal_each_prefix_alone) {
  for (const uint32_t vocabulary : {kVocabulary, kVocabulary - 1}) {
    Rig rig({0}, kSmall, vocabulary);
    Sequence sequence(rig.cache);
    sequence.push(some_tokens(70), Role::kPrompt);
    std::vector<float> logits(size_t(60) * vocabulary);
    Work work{&sequence, 10, logits};
    while (rig.stepper.step({&work, 1}).value()) {
    }
    for (size_t p = 10; p < 70; ++p) {
      std::vector<float> row = toy::expected_logits(rig.program, sequence.tokens().first(p + 1));
      row.resize(vocabulary);
      EXPECT_TRUE(std::equal(row.begin(), row.end(), logits.begin() + ptrdiff_t((p - 10) * vocabulary))) << p;
    }
  }
}

TEST(Sequence, fork_shares_full_pages_and_copies_the_partial_one) {
  Rig rig({0}, kSmall);
  Sequence first(rig.cache);
  rig.append(first, some_tokens(100)).value();
  EXPECT_EQ(rig.used_pages(), 2u);
  Sequence second = first.fork();
  EXPECT_EQ(rig.used_pages(), 2u);
  EXPECT_TRUE(rig.append_matches(second, some_tokens(1, 7)));
  EXPECT_EQ(rig.used_pages(), 3u);
  EXPECT_EQ(rig.control->copies, 1u);
  EXPECT_TRUE(rig.append_matches(first, some_tokens(1, 9)));
  EXPECT_EQ(rig.control->copies, 1u) << "the original is the last holder of its page";
}

TEST(Sequence, forks_that_share_a_page_may_step_in_one_batch) {
  Rig rig({0, 40}, kSmall);
  Sequence first(rig.cache);
  rig.append(first, some_tokens(70)).value();
  Sequence second = first.fork();
  first.push(some_tokens(3, 1), Role::kGenerated);
  second.push(some_tokens(3, 2), Role::kGenerated);
  std::vector<float> a(kVocabulary), b(kVocabulary);
  const Work works[] = {{&first, 72, a}, {&second, 72, b}};
  while (rig.stepper.step(works).value()) {
  }
  EXPECT_EQ(a, rig.expected(first));
  EXPECT_EQ(b, rig.expected(second));
}

TEST(Sequence, closing_frees_every_page) {
  Rig rig({0, 40}, kSmall);
  {
    Sequence first(rig.cache);
    rig.append(first, some_tokens(200)).value();
    Sequence second = first.fork();
    rig.append(second, some_tokens(100)).value();
  }
  EXPECT_EQ(rig.used_pages(), 0u);
}

TEST(Sequence, a_window_frees_pages_only_past_window_and_rollback) {
  Rig rig({40}, kSmall);  // rollback 16
  Sequence sequence(rig.cache);
  // Rows from position 64 on are safe to free page 0 once p - 16 - 40 + 1 ≥ 64.
  rig.append(sequence, some_tokens(118)).value();
  EXPECT_EQ(rig.used_pages(), 2u);
  rig.append(sequence, some_tokens(1)).value();
  EXPECT_EQ(rig.used_pages(), 1u);
  const auto rows = rig.control->rows;
  sequence.truncate(119 - 16);
  EXPECT_EQ(sequence.computed(), 103u);
  EXPECT_TRUE(rig.append_matches(sequence, some_tokens(1, 3)));
  EXPECT_EQ(rig.control->rows, rows + 1) << "nothing was recomputed";
}

TEST(Sequence, a_rewind_behind_the_window_recomputes_with_the_same_bits_and_roles) {
  Rig rig({0, 40}, kSmall);
  Sequence sequence(rig.cache);
  rig.append(sequence, some_tokens(150)).value();
  rig.append(sequence, some_tokens(100, 50), Role::kGenerated).value();
  sequence.truncate(160);
  EXPECT_EQ(sequence.computed(), 0u);
  EXPECT_EQ(rig.used_pages(), 0u);
  rig.control->roles.clear();
  EXPECT_TRUE(rig.append_matches(sequence, some_tokens(1, 3)));
  ASSERT_EQ(rig.control->roles.size(), 161u);
  EXPECT_EQ(rig.control->roles[149], Role::kPrompt);
  EXPECT_EQ(rig.control->roles[150], Role::kGenerated);
}

TEST(Sequence, a_window_pool_stays_small_however_long_the_sequence) {
  Rig rig({40}, kSmall);
  Sequence sequence(rig.cache);
  rig.append(sequence, some_tokens(1000)).value();
  EXPECT_LE(rig.cache.pools[0].capacity(), pages_per_sequence(rig.program.pools[0], kSmall) * 4);
  EXPECT_LE(rig.used_pages(), pages_per_sequence(rig.program.pools[0], kSmall));
}

TEST(Stepper, a_failed_step_leaves_the_sequences_as_they_were) {
  Rig rig({0, 40}, kSmall);
  Sequence sequence(rig.cache);
  rig.append(sequence, some_tokens(70)).value();
  const uint32_t used = rig.used_pages();
  for (const uint64_t after : {0u, 1u, 2u}) {
    rig.control->fail_after = rig.control->steps + after;
    EXPECT_EQ(rig.append(sequence, some_tokens(90, 1)).error().code, ErrorCode::kInternal);
    EXPECT_EQ(sequence.size(), 70u);
    // Steps that succeed first may free pages that the window has passed.
    EXPECT_TRUE(after > 0 || rig.used_pages() == used);
  }
  rig.control->fail_after = UINT64_MAX;
  EXPECT_TRUE(rig.append_matches(sequence, some_tokens(5, 4)));
}

TEST(PagePool, the_budget_is_kept_and_named) {
  KvCache::Limits limits = kSmall;
  limits.bytes = 5 * toy::kPageBytes;
  Rig rig({0}, limits);
  Sequence first(rig.cache);
  rig.append(first, some_tokens(4 * 64)).value();
  Sequence second(rig.cache);
  rig.append(second, some_tokens(64)).value();
  const Error error = rig.append(second, some_tokens(1)).error();
  EXPECT_EQ(error.code, ErrorCode::kOutOfMemory);
  EXPECT_NE(error.message.find("1.0 KiB more for 1 pages, but 5.0 KiB of the 5.0 KiB"), std::string::npos)
      << error.message;
  EXPECT_EQ(second.size(), 64u);
  first.truncate(0);
  EXPECT_TRUE(rig.append_matches(second, some_tokens(1)));
}

TEST(PagePool, growing_ahead_gives_way_when_the_device_is_full) {
  Rig rig({0}, kSmall);
  rig.control->max_pages = 3;
  Sequence sequence(rig.cache);
  EXPECT_TRUE(rig.append_matches(sequence, some_tokens(3 * 64)));
  EXPECT_EQ(rig.append(sequence, some_tokens(1)).error().code, ErrorCode::kOutOfMemory);
}

TEST(PagePool, the_last_page_freed_is_the_first_taken) {
  Rig rig({0}, kSmall);
  PagePool& pool = rig.cache.pools[0];
  ASSERT_TRUE(pool.ensure_free(3, rig.cache.budget));
  const PageId a = pool.take(), b = pool.take();
  EXPECT_EQ(a, 0u);
  pool.release(a);
  EXPECT_EQ(pool.take(), a);
  pool.retain(b);
  pool.release(b);
  EXPECT_FALSE(pool.is_shared(b));
}

TEST(KvCacheSize, overflow_is_seen) {
  const program::CachePool pool{.n_kv_heads = UINT32_MAX, .key_dim = UINT32_MAX, .value_dim = 1, .n_layers = 1};
  KvCache::Limits limits = kSmall;
  EXPECT_EQ(sequence_page_bytes({&pool, 1}, backend::CacheType::kF32, limits), std::nullopt);
}

// Any series of appends, generated tokens, forks, rewinds, closings and failures ends with the logits of a plain
// recomputation, and with no page lost.
RC_GTEST_PROP(SequenceModel, any_history_equals_a_plain_recomputation, ()) {
  KvCache::Limits limits = kSmall;
  limits.chunk = *rc::gen::element(1u, 5u, 32u, 100u);
  limits.rollback = *rc::gen::element(0u, 3u, 64u);
  const auto windows = *rc::gen::element(std::vector<uint32_t>{0}, std::vector<uint32_t>{0, 40},
                                         std::vector<uint32_t>{1, 0}, std::vector<uint32_t>{64, 100, 0});
  Rig rig(windows, limits);
  std::list<Sequence> sequences;
  sequences.emplace_back(rig.cache);
  const int n_actions = *rc::gen::inRange(1, 25);
  for (int i = 0; i < n_actions; ++i) {
    auto at = std::next(sequences.begin(), *rc::gen::inRange<int>(0, int(sequences.size())));
    switch (*rc::gen::inRange(0, 6)) {
      case 0:
      case 1: {
        const auto tokens = some_tokens(*rc::gen::inRange<size_t>(1, 150), *rc::gen::inRange(0, 3));
        RC_ASSERT(rig.append_matches(*at, tokens));
        break;
      }
      case 2: {
        const auto token = some_tokens(1, *rc::gen::inRange(0, 9));
        RC_ASSERT(rig.append_matches(*at, token, Role::kGenerated));
        break;
      }
      case 3: at->truncate(*rc::gen::inRange<uint32_t>(0, at->size() + 1)); break;
      case 4: sequences.push_back(at->fork()); break;
      case 5: {
        if (sequences.size() > 1) sequences.erase(at);
        rig.control->fail_after = rig.control->steps + *rc::gen::inRange<uint64_t>(0, 2);
        const uint32_t before = sequences.front().size();
        if (!rig.append(sequences.front(), some_tokens(20))) RC_ASSERT(sequences.front().size() == before);
        rig.control->fail_after = UINT64_MAX;
        break;
      }
    }
  }
  for (Sequence& sequence : sequences) RC_ASSERT(rig.append_matches(sequence, some_tokens(1)));
  sequences.clear();
  RC_ASSERT(rig.used_pages() == 0u);
}

}  // namespace
}  // namespace honeycrisp::engine
