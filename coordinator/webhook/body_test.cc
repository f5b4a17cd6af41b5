#include "coordinator/webhook/outbox.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

namespace muster::webhook {
namespace {

using nlohmann::json;

const absl::Time kNow = absl::FromUnixMicros(1764197275123456);

jobs::Job RecoveringJob() {
  jobs::Job job;
  job.id = "first";
  job.plan.name = "gpt";
  job.phase = jobs::life::Recovering();
  job.state_reason = "rank 1 on node 'a': killed by signal 9";
  job.attempt = 2;
  job.generation = 3;
  job.step = 17;
  job.failures = {{.generation = 3,
                   .rank = 1,
                   .node = "a",
                   .step = 16,
                   .kind = jobs::FailureKind::kLost,
                   .reason = "killed by signal 9"}};
  return job;
}

TEST(BodyOf, HasTheFieldsOfThePage) {
  const json body = json::parse(BodyOf("d-1", RecoveringJob(), jobs::State::kRunning, kNow));
  EXPECT_EQ(body, json::parse(R"({
    "id": "d-1", "type": "job.state_changed", "time": "2025-11-26T22:47:55.123456Z",
    "job_id": "first", "job_name": "gpt", "attempt": 2, "generation": 3,
    "former_state": "RUNNING", "state": "RECOVERING", "reason": "",
    "message": "rank 1 on node 'a': killed by signal 9", "step": 17,
    "failure": {"rank": 1, "node": "a", "step": 16, "reason": "killed by signal 9"}})"));
}

TEST(BodyOf, ANewJobHasNoFormerStateAndAFailureOfAnOlderGenerationIsNotShown) {
  jobs::Job job = RecoveringJob();
  job.generation = 4;
  const json body = json::parse(BodyOf("d-1", job, std::nullopt, kNow));
  EXPECT_TRUE(body["former_state"].is_null());
  EXPECT_TRUE(body["failure"].is_null());
}

TEST(BodyOf, TextsAreCutAndMadeValid) {
  jobs::Job job = RecoveringJob();
  // A character of two bytes lies across the limit.
  job.state_reason = std::string(kLongestText - 1, 'a') + "\xc3\xa4" + "b";
  job.failures[0].reason = "not \xff UTF-8\n";
  const json body = json::parse(BodyOf("d-1", job, std::nullopt, kNow));
  EXPECT_EQ(body["message"], std::string(kLongestText - 1, 'a') + "...");
  EXPECT_EQ(body["failure"]["reason"], "not \xef\xbf\xbd UTF-8\n");
}

TEST(BodyOf, ATextOfTheLongestSizeIsWhole) {
  jobs::Job job = RecoveringJob();
  job.state_reason = std::string(kLongestText, 'a');
  EXPECT_EQ(json::parse(BodyOf("d-1", job, std::nullopt, kNow))["message"], job.state_reason);
}

TEST(BodyOf, IsSmallWhateverTheTextsAre) {
  for (const char* unit : {"\x01", "\xff", "\"", "\n", "\xc3\xa4", "\xf0\x9f\x98\x80", "a"}) {
    std::string text;
    while (text.size() < (100 << 10)) text += unit;
    jobs::Job job = RecoveringJob();
    job.id = std::string(63, 'j');
    job.plan.name = job.state_reason = job.failures[0].node = job.failures[0].reason = text;
    const std::string body = BodyOf(std::string(36, 'd'), job, jobs::State::kRunning, kNow);
    EXPECT_LT(body.size(), kLongestBody);
    const std::string message = json::parse(body)["message"];
    EXPECT_EQ(message.substr(message.size() - 3), "...");
    EXPECT_GT(message.size(), kLongestText / 6);
  }
}

}  // namespace
}  // namespace muster::webhook
