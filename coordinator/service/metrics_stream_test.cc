#include "coordinator/service/metrics_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/store/memory_store.h"

namespace muster::service {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class ReadMetricsTest : public ::testing::Test {
 protected:
  void Step(uint64_t step) {
    ASSERT_TRUE(store_.Commit({.steps = {{.job_id = "a", .step = step}}}).ok());
  }
  void Validation(uint64_t step) {
    v1::StepMetrics pass;
    pass.mutable_validation();
    ASSERT_TRUE(store_
                    .Commit({.validations = {{.job_id = "a",
                                              .step = step,
                                              .metrics = pass.SerializeAsString()}}})
                    .ok());
  }
  void Test(uint64_t step) {
    v1::StepMetrics pass;
    pass.mutable_test();
    Commit({.tests = {{.job_id = "a", .step = step, .metrics = pass.SerializeAsString()}}});
  }
  void Commit(const store::Batch& batch) { ASSERT_TRUE(store_.Commit(batch).ok()); }
  // Returns everything that can be read now: "3" for a step, "v3" for a validation pass, "t3" for a
  // test.
  std::vector<std::string> Read(size_t limit) {
    std::vector<std::string> all;
    while (true) {
      const auto page = ReadMetrics(&store_, "a", limit, &position_);
      EXPECT_TRUE(page.ok()) << page.status();
      if (!page.ok() || page->empty()) return all;
      for (const v1::StepMetrics& entry : *page) {
        const char* kind = entry.has_validation() ? "v" : entry.has_test() ? "t" : "";
        all.push_back(absl::StrCat(kind, entry.step()));
      }
    }
  }

  store::MemoryStore store_;
  MetricsPosition position_;
};

// A tag without the rest of its field.
constexpr char kDamaged[] = "\xff";

TEST_F(ReadMetricsTest, APassComesAfterItsStepWhateverThePages) {
  Validation(0);
  for (uint64_t step = 1; step <= 6; ++step) {
    Step(step);
    if (step >= 4) Validation(step);
  }
  for (size_t limit = 1; limit <= 8; ++limit) {
    position_ = {};
    EXPECT_THAT(Read(limit), ElementsAre("v0", "1", "2", "3", "4", "v4", "5", "v5", "6", "v6"))
        << "limit " << limit;
  }
}

TEST_F(ReadMetricsTest, WhatComesIsReadInTheSameOrder) {
  Step(1);
  Step(2);
  EXPECT_THAT(Read(10), ElementsAre("1", "2"));
  Validation(2);
  EXPECT_THAT(Read(10), ElementsAre("v2"));
  EXPECT_THAT(Read(10), IsEmpty());
  Step(3);
  EXPECT_THAT(Read(10), ElementsAre("3"));
}

TEST_F(ReadMetricsTest, ATestComesAfterTheValidationOfItsStepWhateverThePages) {
  Test(0);
  for (uint64_t step = 1; step <= 5; ++step) {
    Step(step);
    if (step >= 3) Test(step);
    if (step >= 4) Validation(step);
  }
  for (size_t limit = 1; limit <= 6; ++limit) {
    position_ = {};
    EXPECT_THAT(Read(limit),
                ElementsAre("t0", "1", "2", "3", "t3", "4", "v4", "t4", "5", "v5", "t5"))
        << "limit " << limit;
  }
}

TEST_F(ReadMetricsTest, PassesOfOneStepAreReadInTheOrderInWhichTheyCome) {
  Step(1);
  EXPECT_THAT(Read(10), ElementsAre("1"));
  Test(1);
  EXPECT_THAT(Read(10), ElementsAre("t1"));
  Validation(1);
  EXPECT_THAT(Read(10), ElementsAre("v1"));
  EXPECT_THAT(Read(10), IsEmpty());
  Step(2);
  EXPECT_THAT(Read(10), ElementsAre("2"));
}

TEST_F(ReadMetricsTest, WhatIsComputedAgainIsNotReadAgain) {
  for (uint64_t step = 1; step <= 5; ++step) Step(step);
  EXPECT_THAT(Read(10), ElementsAre("1", "2", "3", "4", "5"));
  // A new generation continues from step 2. Its pass at step 3 comes too late for the order.
  Step(3);
  Validation(3);
  Step(4);
  Step(5);
  EXPECT_THAT(Read(10), IsEmpty());
  Validation(5);
  EXPECT_THAT(Read(10), ElementsAre("v5"));
  Step(6);
  EXPECT_THAT(Read(10), ElementsAre("6"));
}

TEST_F(ReadMetricsTest, ADamagedStepIsAnErrorAfterTheEntriesBeforeIt) {
  Step(1);
  Validation(1);
  Commit({.steps = {{.job_id = "a", .step = 2, .metrics = kDamaged}}});
  Step(3);
  const auto before = ReadMetrics(&store_, "a", 10, &position_);
  ASSERT_TRUE(before.ok()) << before.status();
  EXPECT_EQ(before->size(), 2);
  const absl::Status error = ReadMetrics(&store_, "a", 10, &position_).status();
  EXPECT_EQ(error.code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(error.message(),
            "job 'a': the stored metrics of step 2 cannot be read: the coordinator's database is "
            "damaged");
}

TEST_F(ReadMetricsTest, ADamagedPassIsNeverTakenForAStep) {
  // Empty bytes are a message without any field.
  for (const char* damaged : {kDamaged, ""}) {
    Commit({.validations = {{.job_id = "a", .step = 4, .metrics = damaged}}});
    position_ = {};
    const absl::Status error = ReadMetrics(&store_, "a", 10, &position_).status();
    EXPECT_EQ(error.code(), absl::StatusCode::kDataLoss);
    EXPECT_EQ(error.message(),
              "job 'a': the stored metrics of the validation pass after step 4 cannot be read: the "
              "coordinator's database is damaged");
  }
}

TEST_F(ReadMetricsTest, ARequestStartsWhereItSays) {
  Validation(0);
  for (uint64_t step = 1; step <= 4; ++step) {
    Step(step);
    Validation(step);
  }
  v1::StreamMetricsRequest request;
  const auto from = [&] {
    position_ = StartOf(request);
    return Read(10);
  };
  EXPECT_EQ(from().front(), "v0");
  request.set_from_step(1);
  EXPECT_EQ(from().front(), "v0");
  request.set_from_step(4);
  EXPECT_THAT(from(), ElementsAre("4", "v4"));
  // A client that has step 3, but not the pass after it, continues here.
  request.set_from_validation(3);
  EXPECT_THAT(from(), ElementsAre("v3", "4", "v4"));
}

}  // namespace
}  // namespace muster::service
