#include "coordinator/store/timed_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "coordinator/store/faulty_store.h"
#include "coordinator/store/memory_store.h"

namespace muster::store {
namespace {

using Access = TimedStore::Access;

TEST(TimedStoreTest, EachAccessIsToldAlsoIfItFails) {
  FaultyStore inner(std::make_unique<MemoryStore>());
  std::vector<Access> told;
  TimedStore store(&inner, [&told](Access access, absl::Duration duration) {
    EXPECT_GE(duration, absl::ZeroDuration());
    told.push_back(access);
  });
  Batch batch;
  batch.steps.push_back({.job_id = "a", .step = 1, .generation = 1, .metrics = "x"});
  ASSERT_TRUE(store.Commit(batch).ok());
  EXPECT_THAT(told, testing::ElementsAre(Access::kCommit));
  const auto steps = store.ReadMetrics(MetricsOf::kSteps, "a", 1, 10);
  ASSERT_TRUE(steps.ok());
  EXPECT_THAT(*steps, testing::ElementsAre(batch.steps[0]));
  EXPECT_TRUE(store.ReadMetrics(MetricsOf::kValidations, "a", 1, 10).ok());
  EXPECT_TRUE(store.ReadMetrics(MetricsOf::kTests, "a", 1, 10).ok());
  EXPECT_TRUE(store.ReadLogs("a", 0, std::nullopt, 10).ok());
  EXPECT_THAT(told, testing::ElementsAre(Access::kCommit, Access::kRead, Access::kRead,
                                         Access::kRead, Access::kRead));
  inner.Fail(absl::UnavailableError("disk I/O error"));
  EXPECT_EQ(store.Commit(batch), absl::UnavailableError("disk I/O error"));
  EXPECT_EQ(told.size(), 6);
}

}  // namespace
}  // namespace muster::store
