// Which backend is chosen for a program: the first that is there and has a plan, with the reasons of those passed over.
#include "backend/registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace honeycrisp::backend {
namespace {

using ::testing::HasSubstr;

class Stub final : public Backend {
 public:
  Stub(const char* name, Result<void> available, Result<Plan> plan)
      : name_(name), available_(std::move(available)), plan_(std::move(plan)) {}
  std::string_view name() const override { return name_; }
  std::string describe() const override { return name_; }
  Result<void> available() const override { return available_; }
  Result<Plan> plan(const program::Program&, const CompileOptions&) const override { return plan_; }
  Result<std::unique_ptr<Executor>> compile(const program::Program&, const CompileOptions&) const override {
    return unsupported("a stub runs nothing");
  }

 private:
  const char* name_;
  Result<void> available_;
  Result<Plan> plan_;
};

const Plan kPlan{.backend = "stub"};

Result<Choice> choose(std::initializer_list<const Backend*> candidates) {
  return choose_backend("auto", {}, {}, std::span(candidates.begin(), candidates.size()));
}

TEST(ChooseBackend, the_first_that_is_there_and_has_a_plan) {
  const Stub absent("absent", unsupported("no such device"), kPlan), good("good", {}, kPlan), other("other", {}, kPlan);
  const auto choice = choose({&absent, &good, &other});
  ASSERT_TRUE(choice);
  EXPECT_EQ(choice->backend, &good);
  EXPECT_EQ(choice->passed_over, "");  // a machine without the device is no news
}

TEST(ChooseBackend, one_that_lacks_an_op_is_passed_over_and_the_reason_told) {
  const Stub lacking("gpu", {}, unsupported("blk.0.experts: no kernel")), good("cpu", {}, kPlan);
  const auto choice = choose({&lacking, &good});
  ASSERT_TRUE(choice);
  EXPECT_EQ(choice->backend, &good);
  EXPECT_EQ(choice->passed_over, "gpu cannot run this model: blk.0.experts: no kernel");
}

TEST(ChooseBackend, other_errors_do_not_pick_another_backend) {
  const Stub broken("gpu", fail(ErrorCode::kInvalidInput, "a bad setting"), kPlan), good("cpu", {}, kPlan);
  const auto unavailable = choose({&broken, &good});
  ASSERT_FALSE(unavailable);
  EXPECT_THAT(unavailable.error().message, HasSubstr("a bad setting"));
  const Stub invalid_plan("gpu", {}, fail(ErrorCode::kInvalidInput, "heads of 24"));
  const auto planned = choose({&invalid_plan, &good});
  ASSERT_FALSE(planned);
  EXPECT_THAT(planned.error().message, HasSubstr("heads of 24"));
}

TEST(ChooseBackend, no_backend_at_all_gives_the_last_reason) {
  const Stub lacking("gpu", {}, unsupported("no kernel"));
  const auto choice = choose({&lacking});
  ASSERT_FALSE(choice);
  EXPECT_EQ(choice.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(choice.error().message, HasSubstr("no kernel"));
  EXPECT_FALSE(choose({}));
}

TEST(ChooseBackend, a_name_is_taken_at_its_word) {
  const auto choice = choose_backend("reference", {}, {});
  ASSERT_TRUE(choice);
  EXPECT_EQ(choice->backend->name(), "reference");
  EXPECT_FALSE(choose_backend("nonsense", {}, {}));
}

}  // namespace
}  // namespace honeycrisp::backend
