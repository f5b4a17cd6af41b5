#include "worker/train/saving.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/files/temp_dir.h"
#include "worker/models/spec_from_json.h"
#include "worker/train/rank_threads.h"
#include "worker/train/setup.h"

namespace muster::train {
namespace {

using testing::ElementsAre;
using testing::SizeIs;

class Events : public EventSink {
 public:
  void Report(const Event& event) override {
    if (const auto* failed = std::get_if<CheckpointFailed>(&event)) failed_.push_back(*failed);
  }
  void Progress(int64_t, const char*, const char*) override {}
  std::vector<CheckpointFailed> failed_;
};

// The only rank of a job: a model, its strategy, and a folder for checkpoints.
class SavingTest : public testing::Test {
 protected:
  // Runs `body`, which may save, on the folder; `recorded` are the checkpoints that count.
  void On(const std::vector<std::string>& recorded,
          const std::function<void(const Checkpoints::Restored& restored)>& body) {
    RunRanks(1, [&](int, comm::Communicator& control, comm::Communicator& data,
                    comm::Communicator& parameters) {
      Job job;
      *job.spec.mutable_model() =
          models::SpecFromText("mlp", R"({"inputs": 3, "hidden": [4], "classes": 2})");
      const auto model = *BuildModel(job);
      const auto strategy = *BuildStrategy(job, *model, &data);
      const FiniteCheck finite(*model);
      const auto trained = *TrainedParameters::Create(model->Parameters(), {{true, "*.bias"}});
      trained->RestorePending({"layers.0.bias"});
      const SessionReports reports(0, &events_, &session_state_);
      const Attempts attempts(absl::ZeroDuration(), &reports, [this](absl::Duration) { ++tries_; });
      const Identity identity = {"job", "instance", ++generation_, 0, "i"};
      const auto checkpoints =
          *Checkpoints::Open(identity, {.directory = folder_.Path("ckpt")}, {.recorded = recorded},
                             "ddp", model->kind(), &control, &events_);
      checkpoints->SetStillMine([this] { return still_mine_; });
      const auto state = [&] { return TrainingState(*model, {}, 1); };
      const auto restored =
          checkpoints->Restore([&](const manifest::Manifest&) { return state(); });
      ASSERT_TRUE(restored.ok()) << restored.status();
      Saving saving(
          {.generation = generation_,
           .jobs_rate = 0.5,
           .checkpoints = checkpoints.get(),
           .finite = &finite,
           .trained = trained.get(),
           .commands = &commands_,
           .attempts = &attempts,
           .session_state = &session_state_,
           .reports = &reports,
           .strategy = [&]() -> parallel::Strategy& { return *strategy; },
           .await_parameters = [&] { return strategy->AwaitParameters(); },
           .state = state,
           .records = [](const checkpoint::State&) { return checkpoint::ModelRecords(); }});
      saving_ = &saving;
      body(*restored);
    });
  }
  absl::Status Save(SaveKind kind) {
    const auto result = saving_->Save(kind);
    return result.ok() ? result->files : result.status();
  }

  files::TempDir folder_;
  Events events_;
  SessionState session_state_{.step = 3, .position = {1, 8}, .learning_rate = 0.25};
  CommandSchedule commands_{{.taken = 6, .waiting = {5}}};
  absl::Status still_mine_;
  int tries_ = 0;
  int64_t generation_ = 0;
  Saving* saving_ = nullptr;
};

TEST_F(SavingTest, ACheckpointContainsTheStateOfTheSession) {
  std::string path;
  On({}, [&](const Checkpoints::Restored&) {
    ASSERT_TRUE(Save(SaveKind::kOnTheWay).ok());
    ASSERT_TRUE(saving_->newest().has_value());
    path = saving_->newest()->path;
  });
  On({path}, [&](const Checkpoints::Restored& restored) {
    EXPECT_EQ(restored.path, path);
    const checkpoint::SavePoint& point = restored.point;
    EXPECT_EQ(point.step, 3);
    EXPECT_EQ(point.epoch, 1);
    EXPECT_EQ(point.cursor, 8);
    EXPECT_EQ(point.last_command, 6);
    EXPECT_THAT(point.steering.waiting_commands, ElementsAre(5));
    EXPECT_EQ(point.steering.learning_rate, 0.25);
    EXPECT_EQ(point.steering.trainability_version, 1);
    EXPECT_THAT(point.steering.rules, ElementsAre(TrainableRule{true, "*.bias"}));
    EXPECT_THAT(point.steering.pending, ElementsAre("layers.0.bias"));
    // One of this step is there already.
    saving_->ResumeFrom(restored);
    still_mine_ = absl::InternalError("nothing more is written");
    EXPECT_TRUE(Save(SaveKind::kLast).ok());
    EXPECT_EQ(saving_->newest()->generation, 1);
  });
}

TEST_F(SavingTest, OneThatFailsOnTheWayIsReportedAndNotTriedAgain) {
  On({}, [&](const Checkpoints::Restored&) {
    still_mine_ = absl::ResourceExhaustedError("full");
    EXPECT_TRUE(absl::IsResourceExhausted(Save(SaveKind::kOnTheWay)));
    EXPECT_FALSE(saving_->newest().has_value());
  });
  EXPECT_EQ(tries_, 0);
  ASSERT_THAT(events_.failed_, SizeIs(1));
  EXPECT_EQ(events_.failed_[0].step, 3);
}

TEST_F(SavingTest, TheLastOneIsTriedThreeTimes) {
  On({}, [&](const Checkpoints::Restored&) {
    still_mine_ = absl::ResourceExhaustedError("full");
    EXPECT_FALSE(Save(SaveKind::kLast).ok());
  });
  EXPECT_EQ(tries_, 2);
  EXPECT_THAT(events_.failed_, SizeIs(1));
}

TEST_F(SavingTest, WithoutALeaseNothingIsSaidOfTheFiles) {
  On({}, [&](const Checkpoints::Restored&) {
    still_mine_ = absl::UnavailableError("the lease is over");
    const auto result = saving_->Save(SaveKind::kLast);
    EXPECT_TRUE(absl::IsUnavailable(result.status())) << result.status();
  });
  EXPECT_EQ(tries_, 0);
  EXPECT_THAT(events_.failed_, SizeIs(0));
}

}  // namespace
}  // namespace muster::train
