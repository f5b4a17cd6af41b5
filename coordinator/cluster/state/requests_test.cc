#include "coordinator/cluster/state/requests.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "coordinator/store/store.h"

namespace muster::cluster {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

absl::Time At(int hours) { return absl::UnixEpoch() + absl::Hours(hours); }

store::RequestRow Row(const std::string& id, const std::string& job) {
  return {.request_id = id, .fingerprint = "f", .job_id = job, .answer = "7"};
}

TEST(Requests, ARepeatGetsTheFirstAnswer) {
  Requests requests(10, {});
  ASSERT_THAT(requests.Remember(Row("a", "j")), SizeIs(1));
  EXPECT_EQ((*requests.Repeat("a", "f"))->answer, "7");
  EXPECT_EQ(**requests.RepeatedCommand("a", "f"), 7u);
  EXPECT_EQ(*requests.Repeat("b", "f"), nullptr);
  EXPECT_FALSE(requests.RepeatedCommand("b", "f")->has_value());
}

TEST(Requests, AnIdForAnotherRequestIsRefused) {
  Requests requests(10, {Row("a", "j")});
  EXPECT_TRUE(absl::IsAlreadyExists(requests.Repeat("a", "g").status()));
  EXPECT_TRUE(absl::IsAlreadyExists(requests.RepeatedCommand("a", "g").status()));
}

TEST(Requests, ARequestWithoutAnIdIsNotKept) {
  Requests requests(0, {});
  EXPECT_TRUE(requests.CheckRoom("").ok());
  EXPECT_THAT(requests.Remember(Row("", "j")), IsEmpty());
  EXPECT_EQ(*requests.Repeat("", "f"), nullptr);
}

TEST(Requests, AsManyAsAllowedAreKept) {
  Requests requests(1, {});
  EXPECT_TRUE(requests.CheckRoom("a").ok());
  requests.Remember(Row("a", "j"));
  EXPECT_TRUE(absl::IsResourceExhausted(requests.CheckRoom("b")));
}

TEST(Requests, ThoseOfADeletedJobAreKeptForADay) {
  Requests requests(10, {Row("a", "j"), Row("b", "other")});
  const auto changed = requests.JobDeleted("j", At(1));
  ASSERT_THAT(changed, SizeIs(1));
  EXPECT_EQ(changed[0].deleted_time, At(1));
  EXPECT_THAT(requests.JobDeleted("j", At(2)), IsEmpty()) << "a new job of this name";
  EXPECT_TRUE(absl::IsNotFound(requests.RepeatedCommand("a", "f").status()));
  EXPECT_THAT(requests.ForgetOld(At(24)), IsEmpty());
  EXPECT_THAT(requests.ForgetOld(At(25)), ElementsAre("a"));
  EXPECT_EQ(*requests.Repeat("a", "f"), nullptr);
  EXPECT_NE(*requests.Repeat("b", "f"), nullptr);
}

TEST(Requests, TheDayIsCountedOverARestart) {
  store::RequestRow row = Row("a", "j");
  row.deleted_time = At(1);
  Requests requests(10, {row});
  EXPECT_THAT(requests.ForgetOld(At(25)), ElementsAre("a"));
}

}  // namespace
}  // namespace muster::cluster
