#include "client/api/retries.h"

#include <gtest/gtest.h>

#include "common/steady/now.h"

namespace muster::client {
namespace {

const absl::Status kBroken = absl::UnavailableError("no coordinator answers");

TEST(Retries, TriesAgainWithinItsTimeAndWithoutACancellation) {
  Retries retries(absl::Hours(1), nullptr);
  EXPECT_TRUE(retries.Await(kBroken).ok());
  EXPECT_FALSE(retries.cancellation()->cancelled());
}

TEST(Retries, EndsWithTheErrorOnceItsTimeIsOver) {
  Retries retries(absl::ZeroDuration(), nullptr);
  EXPECT_EQ(retries.Await(kBroken), kBroken);
}

TEST(Retries, EndsWithTheDeadlineOfTheCall) {
  Retries retries(absl::Hours(1), nullptr);
  const absl::Status status = retries.Await(kBroken, SteadyNow());
  EXPECT_EQ(status, absl::DeadlineExceededError("no coordinator answers"));
}

TEST(Retries, EndsWhenTheCallerCancels) {
  Cancellation cancellation;
  cancellation.Cancel();
  Retries retries(absl::Hours(1), &cancellation);
  EXPECT_EQ(retries.Await(kBroken).code(), absl::StatusCode::kCancelled);
}

}  // namespace
}  // namespace muster::client
