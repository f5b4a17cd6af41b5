#include "worker/train/save/weights_export.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/exports/target.h"
#include "common/files/files.h"
#include "common/files/temp_dir.h"
#include "worker/models/spec_from_json.h"
#include "worker/train/ranks/failure.h"
#include "worker/train/ranks/rank_threads.h"

namespace muster::train {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

class Events : public EventSink {
 public:
  void Report(const Event& event) override {
    if (std::holds_alternative<ExportReady>(event)) told_.push_back("ready");
    if (std::holds_alternative<Exported>(event)) told_.push_back("exported");
  }
  void Progress(int64_t, const char*, const char*) override {}
  std::vector<std::string> told_;
};

class Gate : public ExportGate {
 public:
  bool WaitForGrant(const std::string&, absl::Duration) override { return --not_yet_ < 0; }
  absl::Duration grant_timeout() const override { return absl::Seconds(3); }
  int not_yet_ = 0;
};

class Lease : public LeaseHolder {
 public:
  absl::Status StillMine() const override { return status_; }
  absl::Status status_;
};

// A communicator on which a gather fails after the Wait for it.
class FailedLater : public comm::Communicator {
 public:
  int rank() const override { return 0; }
  int world_size() const override { return 2; }
  c10::Device device() const override { return c10::kCPU; }
  std::unique_ptr<comm::Work> AllGather(const at::Tensor&, const at::Tensor&,
                                        comm::OpLabel) override {
    return nullptr;
  }
  std::unique_ptr<comm::Work> AllReduceSum(const at::Tensor&, comm::OpLabel, double) override {
    return nullptr;
  }
  std::unique_ptr<comm::Work> ReduceScatterSum(const at::Tensor&, const at::Tensor&, comm::OpLabel,
                                               double) override {
    return nullptr;
  }
  std::unique_ptr<comm::Work> AllToAll(const at::Tensor&, const std::vector<int64_t>&,
                                       const at::Tensor&, const std::vector<int64_t>&,
                                       comm::OpLabel) override {
    return nullptr;
  }
  std::unique_ptr<comm::Work> Broadcast(const at::Tensor&, int, comm::OpLabel) override {
    return nullptr;
  }
  int64_t bytes_sent() const override { return 0; }
  absl::Status failure() override { return absl::UnavailableError("rank 1 is gone"); }
  void Abort(const absl::Status&) override {}
};

class WeightsExportTest : public testing::Test {
 protected:
  WeightsExportTest() {
    config_ = {.path = folder_.Path("out/model.safetensors"), .job_name = "name"};
  }

  // Returns the result of `body` on each of two ranks.
  std::vector<absl::Status> OnTwoRanks(
      const std::function<absl::Status(const WeightsExport&, const models::Model&)>& body) {
    std::vector<absl::Status> statuses(2);
    RunRanks(2, [&](int rank, comm::Communicator& control, comm::Communicator& gradients,
                    comm::Communicator& parameters) {
      Events others;
      const SessionState session_state;
      const SessionReports reports(rank, rank == 0 ? &events_ : &others, &session_state);
      const Attempts attempts(absl::ZeroDuration(), &reports, [](absl::Duration) {});
      const auto model = *models::CreateFromJson(kind_, settings_, 1);
      const WeightsExport weights(
          {.identity = {"job", "instance", 1, rank, "i"},
           .config = config_,
           .control = &control,
           .communicators = {&gradients, failed_later_ ? &failed_ : &parameters},
           .gate = rank == 0 ? &gate_ : nullptr,
           .lease = &lease_,
           .attempts = &attempts,
           .session_state = &session_state,
           .reports = &reports,
           .inputs = inputs_});
      statuses[rank] = body(weights, *model);
    });
    return statuses;
  }
  std::vector<absl::Status> Write() {
    return OnTwoRanks([](const WeightsExport& weights, const models::Model& model) {
      return weights.Write(model, nullptr);
    });
  }
  size_t FilesInFolder() const {
    const auto all = std::filesystem::directory_iterator(folder_.Path("out"));
    return std::distance(begin(all), end(all));
  }

  files::TempDir folder_;
  ExportConfig config_;
  Events events_;
  Gate gate_;
  Lease lease_;
  std::string kind_ = "mlp";
  nlohmann::json settings_ = {{"inputs", 3}, {"hidden", {4}}, {"classes", 2}};
  exports::Inputs inputs_;
  bool failed_later_ = false;
  FailedLater failed_;
};

TEST_F(WeightsExportTest, TheWeightsTakeTheirPlaceOnceTheyMay) {
  gate_.not_yet_ = 2;
  for (const absl::Status& status :
       OnTwoRanks([](const WeightsExport& weights, const models::Model& model) {
         const absl::Status prepared = weights.Prepare();
         return prepared.ok() ? weights.Write(model, nullptr) : prepared;
       })) {
    EXPECT_TRUE(status.ok()) << status;
  }
  EXPECT_TRUE(std::filesystem::exists(config_.path));
  // No temporary file is left.
  EXPECT_EQ(FilesInFolder(), 1);
  EXPECT_THAT(events_.told_, ElementsAre("ready", "exported"));
}

TEST_F(WeightsExportTest, WhatAnotherWroteIsRefusedAtTheStart) {
  std::filesystem::create_directories(folder_.Path("out"));
  ASSERT_TRUE(files::WriteAtomically(config_.path, "somebody's").ok());
  const auto statuses = OnTwoRanks(
      [](const WeightsExport& weights, const models::Model&) { return weights.Prepare(); });
  EXPECT_THAT(std::string(statuses[0].message()), StartsWith("export.path: "));
  EXPECT_TRUE(statuses[1].ok());  // rank 0 writes and checks
}

TEST_F(WeightsExportTest, WhatIsNoRegularFileOrReadByTheJobIsNeverReplaced) {
  std::filesystem::create_directories(folder_.Path("out"));
  ASSERT_TRUE(files::WriteAtomically(folder_.Path("first"), "weights").ok());
  inputs_ = {{"model.weights", folder_.Path("first")}};
  config_.overwrite = true;
  const std::function<void()> things[] = {
      [&] { ASSERT_EQ(mkfifo(config_.path.c_str(), 0600), 0); },
      [&] { ASSERT_EQ(symlink("nothing", config_.path.c_str()), 0); },
      [&] { std::filesystem::create_directory(config_.path); },
      [&] { std::filesystem::create_hard_link(folder_.Path("first"), config_.path); },
  };
  for (const auto& thing : things) {
    thing();
    const auto prepared = OnTwoRanks(
        [](const WeightsExport& weights, const models::Model&) { return weights.Prepare(); });
    EXPECT_TRUE(absl::IsFailedPrecondition(prepared[0])) << prepared[0];
    for (const absl::Status& status : Write()) {
      EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
      EXPECT_EQ(CauseOf(status), Cause::kFinalSaveFailed);
    }
    std::filesystem::remove_all(folder_.Path("out"));
    std::filesystem::create_directories(folder_.Path("out"));
  }
  EXPECT_EQ(*files::ReadFile(folder_.Path("first")), "weights");
}

TEST_F(WeightsExportTest, AConfigOfSomebodyElseIsNotReplaced) {
  kind_ = "gpt2";
  settings_ = {{"vocab_size", 16}, {"context", 4}, {"layers", 1}, {"heads", 1}, {"width", 8}};
  std::filesystem::create_directories(folder_.Path("out"));
  const std::string config = folder_.Path("out/config.json");
  ASSERT_TRUE(files::WriteAtomically(config, "{\"model_type\": \"theirs\"}").ok());
  config_.overwrite = true;  // allowed for the weights
  const auto prepared = OnTwoRanks([](const WeightsExport& weights, const models::Model& model) {
    return weights.PrepareConfig(model);
  });
  EXPECT_TRUE(absl::IsFailedPrecondition(prepared[0])) << prepared[0];
  EXPECT_THAT(std::string(prepared[0].message()), HasSubstr(config + " exists"));
  for (const absl::Status& status : Write()) EXPECT_TRUE(absl::IsFailedPrecondition(status));
  EXPECT_EQ(*files::ReadFile(config), "{\"model_type\": \"theirs\"}");
  EXPECT_FALSE(std::filesystem::exists(config_.path)) << "both, or neither";

  std::filesystem::remove(config);
  for (const absl::Status& status : Write()) EXPECT_TRUE(status.ok()) << status;
  const std::string first = *files::ReadFile(config);
  // The next export of this job has another model. The config.json is still the job's own.
  settings_["width"] = 16;
  for (const absl::Status& status : Write()) EXPECT_TRUE(status.ok()) << status;
  EXPECT_NE(*files::ReadFile(config), first);
  // Another job's export in the same folder would need another config.json.
  settings_["width"] = 32;
  config_.path = folder_.Path("out/another.safetensors");
  config_.job_name = "another";
  for (const absl::Status& status : Write()) EXPECT_TRUE(absl::IsFailedPrecondition(status));
  settings_["width"] = 16;
  for (const absl::Status& status : Write()) EXPECT_TRUE(status.ok()) << status;
}

TEST_F(WeightsExportTest, WithoutTheCoordinatorsWordTheyStayWhereTheyAre) {
  std::filesystem::create_directories(folder_.Path("out"));
  gate_.not_yet_ = 1000;
  for (const absl::Status& status : Write()) {
    EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
    EXPECT_EQ(CauseOf(status), Cause::kFinalSaveFailed);
    EXPECT_THAT(std::string(status.message()), HasSubstr("the weights are in "));
  }
  EXPECT_FALSE(std::filesystem::exists(config_.path));
  EXPECT_EQ(FilesInFolder(), 1);
}

TEST_F(WeightsExportTest, WhoseLeaseIsOverPlacesNothingAndHasFailedAtNothing) {
  std::filesystem::create_directories(folder_.Path("out"));
  lease_.status_ = absl::UnavailableError("the lease is over");
  const auto statuses = Write();
  EXPECT_EQ(statuses[0], lease_.status_);
  EXPECT_FALSE(std::filesystem::exists(config_.path));
}

TEST_F(WeightsExportTest, ValuesOfAGatherThatFailedAfterwardsAreNotPlaced) {
  std::filesystem::create_directories(folder_.Path("out"));
  failed_later_ = true;
  for (const absl::Status& status : Write()) EXPECT_EQ(status, failed_.failure());
  EXPECT_FALSE(std::filesystem::exists(config_.path));
  EXPECT_THAT(events_.told_, IsEmpty());
}

}  // namespace
}  // namespace muster::train
