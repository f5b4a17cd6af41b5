#include "coordinator/webhook/answer.h"

#include <gtest/gtest.h>

#include <vector>

namespace muster::webhook {
namespace {

TEST(MeaningOf, FollowsTheTableOfThePage) {
  for (const int status : {200, 201, 204, 299}) {
    EXPECT_EQ(MeaningOf({.status = status}), Meaning::kAccepted) << status;
  }
  for (const int status : {400, 405, 409, 410, 413, 415, 418, 422}) {
    EXPECT_EQ(MeaningOf({.status = status}), Meaning::kRefused) << status;
  }
  for (const int status : {408, 425, 500, 502, 504}) {
    EXPECT_EQ(MeaningOf({.status = status}), Meaning::kMessageFailed) << status;
  }
  for (const int status : {0, 101, 301, 302, 308, 401, 403, 404, 407, 429, 503, 600, 999}) {
    EXPECT_EQ(MeaningOf({.status = status}), Meaning::kReceiverFailed) << status;
  }
}

TEST(ParseRetryAfter, UnderstandsSecondsAndDates) {
  const absl::Time now = absl::FromUnixSeconds(784111777);
  EXPECT_EQ(ParseRetryAfter("120", now), absl::Seconds(120));
  EXPECT_EQ(ParseRetryAfter("0", now), absl::ZeroDuration());
  EXPECT_EQ(ParseRetryAfter("Sun, 06 Nov 1994 08:49:47 GMT", now), absl::Seconds(10));
  EXPECT_EQ(ParseRetryAfter("Sun, 06 Nov 1994 08:49:27 GMT", now), absl::ZeroDuration());
}

TEST(ParseRetryAfter, IgnoresAnythingElse) {
  for (const char* value : {"", "-1", "soon", "1.5", "99999999999999999999"}) {
    EXPECT_EQ(ParseRetryAfter(value, absl::FromUnixSeconds(0)), std::nullopt) << value;
  }
}

}  // namespace
}  // namespace muster::webhook
