#include "coordinator/service/submission.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "common/jobfile/jobfile.h"
#include "coordinator/limits/limits.h"
#include "coordinator/membership/refusal.h"

namespace muster::service {
namespace {

using testing::HasSubstr;

constexpr char kGood[] = R"(name: tiny
world_size: 2
model:
  mlp: {inputs: 4, hidden: [8], classes: 3}
data:
  train: {idx: {images: images, labels: /data/labels}}
strategy: {ddp: {}}
optimizer: {sgd: {lr: 0.1}}
batch: {per_rank: 2}
stages: [{fit: {steps: 3}}]
)";

v1::ParseJobRequest Request(const std::string& yaml) {
  v1::ParseJobRequest request;
  request.set_yaml(yaml);
  request.set_base_folder("/home/alice");
  return request;
}

TEST(ParseJob, ATextBecomesTheSpecThatTheCommandLineReadsFromAFile) {
  v1::ParseJobRequest request = Request(kGood);
  request.add_settings("optimizer.sgd.lr=0.2");
  const auto answer = ParseJob(request);
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_TRUE(answer->problems().empty()) << answer->DebugString();
  const auto file =
      jobfile::ParseJobFile(kGood, "job.yaml", "/home/alice",
                            {.settings = {"optimizer.sgd.lr=0.2"}, .base_folder = "/home/alice"});
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(answer->spec().SerializeAsString(), file->spec.SerializeAsString());
  EXPECT_EQ(answer->spec().data().train().idx().images(0), "/home/alice/images");
  EXPECT_EQ(answer->spec().data().train().idx().labels(0), "/data/labels");
  EXPECT_EQ(answer->spec().optimizer().sgd().lr(), 0.2);
  EXPECT_EQ(answer->lines().at("model.mlp"), 4);
  EXPECT_EQ(answer->lines().count("optimizer.sgd.lr"), 0u);
}

TEST(ParseJob, JsonIsReadAsWell) {
  const auto answer = ParseJob(Request(
      R"({"name": "tiny", "world_size": 1, "model": {"mlp": {"inputs": 4, "hidden": [8],
          "classes": 3}}, "data": {"train": {"idx": {"images": "a", "labels": "b"}}},
          "optimizer": {"sgd": {"lr": 1e-1}}, "batch": {"per_rank": 2},
          "stages": [{"fit": {"steps": 3}}]})"));
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_TRUE(answer->problems().empty()) << answer->DebugString();
  EXPECT_EQ(answer->spec().optimizer().sgd().lr(), 0.1);
}

TEST(ParseJob, EveryProblemIsToldWithItsPlace) {
  v1::ParseJobRequest request = Request(absl::StrCat(kGood, "colour: red\n"));
  request.add_settings("world_size=none");
  const auto answer = ParseJob(request);
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_FALSE(answer->has_spec());
  ASSERT_EQ(answer->problems_size(), 2) << answer->DebugString();
  EXPECT_EQ(answer->problems(0).line(), 11);
  EXPECT_EQ(answer->problems(0).path(), "colour");
  EXPECT_EQ(answer->problems(1).path(), "world_size");
  EXPECT_EQ(answer->problems(1).source(), "--set world_size");
}

TEST(ParseJob, ATextThatIsNoYamlIsAProblemWithItsLine) {
  const auto answer = ParseJob(Request("name: tiny\nmodel: [\n"));
  ASSERT_TRUE(answer.ok()) << answer.status();
  ASSERT_EQ(answer->problems_size(), 1);
  EXPECT_THAT(answer->problems(0).message(), HasSubstr("YAML"));
  EXPECT_GT(answer->problems(0).line(), 0);
}

TEST(ParseJob, AtMostAHundredProblemsAreTold) {
  std::string text = kGood;
  for (int i = 0; i < 250; ++i) absl::StrAppend(&text, "nonsense", i, ": 1\n");
  const auto answer = ParseJob(Request(text));
  ASSERT_TRUE(answer.ok()) << answer.status();
  ASSERT_EQ(answer->problems_size(), 101);
  EXPECT_EQ(answer->problems(100).message(), "and 150 more problems");
  EXPECT_EQ(answer->problems(100).path(), "");
}

TEST(ParseJob, ProblemsOfSettingsAndOfTheTextAreCountedTogether) {
  std::string text = kGood;
  for (int i = 0; i < 150; ++i) absl::StrAppend(&text, "nonsense", i, ": 1\n");
  v1::ParseJobRequest request = Request(text);
  request.add_settings("colour=red");
  const auto answer = ParseJob(request);
  ASSERT_TRUE(answer.ok()) << answer.status();
  ASSERT_EQ(answer->problems_size(), 101);
  EXPECT_EQ(answer->problems(100).message(), "and 51 more problems");
}

TEST(ParseJob, PathsOfSettingsMayBeRelativeToAnotherFolder) {
  v1::ParseJobRequest request = Request(kGood);
  request.add_settings("data.train.idx.images=mine");
  request.set_settings_folder("/tmp/bob");
  const auto answer = ParseJob(request);
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->spec().data().train().idx().images(0), "/tmp/bob/mine");
}

TEST(ParseJob, SettingsThatWouldTakeLongAreRefusedBeforeTheyAreRead) {
  constexpr Limits kLimits;
  v1::ParseJobRequest request = Request(kGood);
  const std::string half(kLimits.job_settings_bytes / 2 - 5, ' ');
  request.add_settings("seed=" + half);
  request.add_settings("seed=" + half);
  EXPECT_NE(RefusalReason(ParseJob(request).status()), "FIELD_TOO_LONG");
  request.add_settings("x");
  EXPECT_EQ(RefusalReason(ParseJob(request).status()), "FIELD_TOO_LONG");

  request = Request(absl::StrCat(kGood, "# ", std::string(60000, 'x'), "\n"));
  const size_t most = kLimits.job_settings_times_text_bytes / request.yaml().size();
  for (size_t i = 0; i < most; ++i) request.add_settings("seed=1");
  EXPECT_NE(RefusalReason(ParseJob(request).status()), "FIELD_TOO_LONG");
  request.add_settings("seed=1");
  EXPECT_EQ(RefusalReason(ParseJob(request).status()), "FIELD_TOO_LONG");
}

TEST(ParseJob, AFolderThatIsNotAbsoluteIsRefused) {
  for (const char* folder : {"", "home/alice"}) {
    v1::ParseJobRequest request = Request(kGood);
    request.set_base_folder(folder);
    EXPECT_EQ(RefusalReason(ParseJob(request).status()), "FOLDER_NOT_ABSOLUTE");
  }
  v1::ParseJobRequest request = Request(kGood);
  request.set_settings_folder("here");
  EXPECT_EQ(ParseJob(request).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace muster::service
