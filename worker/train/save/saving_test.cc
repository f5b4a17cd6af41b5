#include "worker/train/save/saving.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/synchronization/notification.h"
#include "common/files/temp_dir.h"
#include "worker/models/spec_from_json.h"
#include "worker/train/ranks/rank_threads.h"
#include "worker/train/step/finite.h"
#include "worker/train/training/setup.h"

namespace muster::train {
namespace {

using testing::ElementsAre;
using testing::SizeIs;
using testing::StartsWith;

class Events : public EventSink {
 public:
  void Report(const Event& event) override {
    if (const auto* failed = std::get_if<CheckpointFailed>(&event)) failed_.push_back(*failed);
    if (const auto* written = std::get_if<CheckpointWritten>(&event)) written_.push_back(*written);
  }
  void Progress(int64_t, const char*, const char* doing) override {
    if (on_progress_) on_progress_(doing);
  }
  std::vector<CheckpointFailed> failed_;
  std::vector<CheckpointWritten> written_;
  std::function<void(const std::string& doing)> on_progress_;
};

class Source : public StateSource {
 public:
  Source(const models::Model& model, parallel::Strategy& strategy)
      : model_(model), strategy_(strategy), finite_(model) {}
  absl::Status AwaitState() override {
    const absl::Status awaited = strategy_.AwaitParameters();
    if (!awaited.ok()) return awaited;
    const absl::Status finite = finite_.CheckBuffers(3);
    return finite.ok() ? strategy_.VerifyParametersEqual(3) : finite;
  }
  absl::Status AwaitWeights() override { return AwaitState(); }
  checkpoint::State State() const override { return TrainingState(model_, {}, 1); }
  absl::StatusOr<checkpoint::ModelRecords> Records(const checkpoint::State&) const override {
    return checkpoint::ModelRecords();
  }

 private:
  const models::Model& model_;
  parallel::Strategy& strategy_;
  const FiniteCheck finite_;
};

// The only rank of a job: a model, its strategy, and a folder for checkpoints.
class SavingTest : public testing::Test {
 protected:
  // Runs `body`, which may save, with the folder. `recorded`: the checkpoints that count. With
  // recorded checkpoints, Saving starts from the restored checkpoint. Without them, Saving starts
  // from none, although an existing checkpoint may be restored.
  void On(const std::vector<std::string>& recorded,
          const std::function<void(const Checkpoints::Restored& restored)>& body) {
    RunRanks(1, [&](int, comm::Communicator& control, comm::Communicator& data,
                    comm::Communicator& parameters, comm::Communicator& files) {
      Job job;
      *job.spec.mutable_model() =
          models::SpecFromText("mlp", R"({"inputs": 3, "hidden": [4], "classes": 2})");
      const auto model = *BuildModel(job);
      const auto strategy = *BuildStrategy(job, *model, &data);
      const auto trained = *TrainedParameters::Create(model->Parameters(), {{true, "*.bias"}});
      trained->RestorePending({"layers.0.bias"});
      const SessionReports reports(0, &events_, &session_state_);
      const Attempts attempts(absl::ZeroDuration(), &reports, [this](absl::Duration) { ++tries_; });
      const Identity identity = {"job", "instance", ++generation_, 0, "i"};
      const auto checkpoints =
          *Checkpoints::Open(identity, {.directory = folder_.Path("ckpt")}, {.recorded = recorded},
                             "ddp", model->kind(), &files, &events_, [this] {
                               if (during_commit_) during_commit_();
                               return still_mine_;
                             });
      Source source(*model, *strategy);
      parameter_ = model->Parameters()[0].tensor;
      const auto restored =
          checkpoints->Restore([&](const manifest::Manifest&) { return source.State(); });
      ASSERT_TRUE(restored.ok()) << restored.status();
      Background background(&files, &reports);
      background_ = &background;
      Saving saving({.rank = 0,
                     .generation = generation_,
                     .jobs_rate = 0.5,
                     .while_training = while_training_,
                     .background = &background,
                     .writing = &writing_,
                     .checkpoints = checkpoints.get(),
                     .communicator = &files,
                     .trained = trained.get(),
                     .commands = &commands_,
                     .attempts = &attempts,
                     .session_state = &session_state_,
                     .reports = &reports,
                     .source = &source,
                     .restored = recorded.empty() ? Checkpoints::Restored() : *restored});
      saving_ = &saving;
      body(*restored);
    });
  }
  // Returns what Saving told, or the error of the session.
  Saving::Saved Save() {
    Saving::Saved told = absl::UnknownError("nothing was told");
    absl::Status end = saving_->Save(0, [&](const Saving::Saved& saved) { told = saved; });
    if (end.ok()) end = background_->Await();
    return end.ok() ? told : end;
  }
  Saving::Saved SaveLast() {
    auto saved = saving_->SaveLast();
    return saved.ok() ? *saved : saved.status();
  }

  files::TempDir folder_;
  Events events_;
  SessionState session_state_{.step = 3, .position = {1, 8}, .learning_rate = 0.25};
  CommandSchedule commands_{{.taken = 6, .waiting = {5}}};
  absl::Status still_mine_;
  std::function<void()> during_commit_;
  at::Tensor expected_;
  int tries_ = 0;
  int64_t generation_ = 0;
  bool while_training_ = true;
  checkpoint::Writing writing_;
  at::Tensor parameter_;  // a parameter of the model
  Background* background_ = nullptr;
  Saving* saving_ = nullptr;
};

TEST_F(SavingTest, ParametersThatAreNotFiniteAreNotWritten) {
  const auto expect_refused = [&](bool while_training, const std::function<Saving::Saved()>& save) {
    while_training_ = while_training;
    On({}, [&](const Checkpoints::Restored&) {
      parameter_.detach().fill_(NAN);
      const absl::Status status = save().status();
      EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange) << status;
      EXPECT_THAT(std::string(status.message()), StartsWith("after step 3 parameter 'layers.0."));
    });
  };
  expect_refused(true, [this] { return Save(); });
  expect_refused(false, [this] { return Save(); });
  expect_refused(true, [this] { return SaveLast(); });
  EXPECT_TRUE(events_.written_.empty());
}

TEST_F(SavingTest, ACheckpointContainsTheStateOfTheSession) {
  std::string path;
  On({}, [&](const Checkpoints::Restored&) {
    const Saving::Saved saved = Save();
    ASSERT_TRUE(saved.ok()) << saved.status();
    path = saved->path;
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
    // A checkpoint of this step exists.
    still_mine_ = absl::InternalError("nothing more is written");
    EXPECT_EQ(Save()->path, path);
    const Saving::Saved last = SaveLast();
    ASSERT_TRUE(last.ok()) << last.status();
    EXPECT_EQ(last->generation, 1);
  });
}

TEST_F(SavingTest, OneThatFailsOnTheWayIsReportedAndNotTriedAgain) {
  On({}, [&](const Checkpoints::Restored&) {
    still_mine_ = absl::ResourceExhaustedError("full");
    EXPECT_TRUE(absl::IsResourceExhausted(Save().status()));
    still_mine_ = absl::OkStatus();
    EXPECT_TRUE(Save().ok()) << "there was none of this step";
  });
  EXPECT_EQ(tries_, 0);
  ASSERT_THAT(events_.failed_, SizeIs(1));
  EXPECT_EQ(events_.failed_[0].step, 3);
}

TEST_F(SavingTest, TheLastOneIsTriedThreeTimes) {
  On({}, [&](const Checkpoints::Restored&) {
    still_mine_ = absl::ResourceExhaustedError("full");
    EXPECT_FALSE(SaveLast().ok());
  });
  EXPECT_EQ(tries_, 2);
  EXPECT_THAT(events_.failed_, SizeIs(1));
}

TEST_F(SavingTest, WithoutALeaseNothingIsSaidOfTheFiles) {
  On({}, [&](const Checkpoints::Restored&) {
    still_mine_ = absl::UnavailableError("the lease is over");
    const auto last = saving_->SaveLast();
    EXPECT_TRUE(absl::IsUnavailable(last.status())) << last.status();
    bool told = false;
    EXPECT_TRUE(saving_->Save(0, [&](const Saving::Saved&) { told = true; }).ok());
    EXPECT_TRUE(absl::IsUnavailable(background_->Await()));
    EXPECT_FALSE(told);
    EXPECT_TRUE(absl::IsUnavailable(saving_->Save())) << "the session is over";
  });
  EXPECT_EQ(tries_, 0);
  EXPECT_THAT(events_.failed_, SizeIs(0));
}

TEST_F(SavingTest, ACheckpointHasTheStateOfItsStepAlthoughTrainingContinues) {
  std::string path;
  On({}, [&](const Checkpoints::Restored&) {
    const at::Tensor before = parameter_.detach().clone();
    absl::Notification changed;
    during_commit_ = [&] { changed.WaitForNotification(); };
    ASSERT_TRUE(saving_->Save(0, [&](const Saving::Saved& saved) { path = saved->path; }).ok());
    parameter_.detach().fill_(7);
    ++session_state_.step;
    changed.Notify();
    ASSERT_TRUE(background_->Await().ok());
    during_commit_ = nullptr;
    expected_ = before;
  });
  On({path}, [&](const Checkpoints::Restored& restored) {
    EXPECT_EQ(restored.point.step, 3);
    EXPECT_TRUE(parameter_.equal(expected_));
  });
}

// All ranks must know the end of the first save before any rank decides about the second save.
TEST_F(SavingTest, WhoAsksForTheOneThatIsBeingWrittenGetsItOrAnotherIfItFails) {
  for (const bool fails : {false, true}) {
    On({}, [&](const Checkpoints::Restored&) {
      std::atomic<int> commits = 0;
      during_commit_ = [&] {
        still_mine_ = fails && ++commits == 1 ? absl::InternalError("a fault") : absl::OkStatus();
      };
      std::vector<Saving::Saved> told;
      const auto note = [&](const Saving::Saved& saved) { told.push_back(saved); };
      ASSERT_TRUE(saving_->Save(0, note).ok());
      ASSERT_TRUE(saving_->Save(7, note).ok());
      ASSERT_TRUE(background_->Await().ok());
      ASSERT_THAT(told, SizeIs(2));
      EXPECT_EQ(told[0].ok(), !fails);
      ASSERT_TRUE(told[1].ok()) << told[1].status();
      if (!fails) {
        EXPECT_EQ(told[0]->path, told[1]->path);
      }
      during_commit_ = nullptr;
    });
  }
}

TEST_F(SavingTest, OneWaitsForTheOneBefore) {
  On({}, [&](const Checkpoints::Restored&) {
    std::vector<int64_t> steps;
    std::atomic<int> told = 0;
    const auto note = [&](const Saving::Saved& saved) {
      steps.push_back(saved->step);
      ++told;
    };
    absl::Notification first_may_end;
    during_commit_ = [&] { first_may_end.WaitForNotification(); };
    ASSERT_TRUE(saving_->Save(0, note).ok());
    ++session_state_.step;
    events_.on_progress_ = [&](const std::string& doing) {
      if (doing != "waiting for files that are being written") return;
      EXPECT_EQ(told, 0);
      first_may_end.Notify();
    };
    ASSERT_TRUE(saving_->Save(0, note).ok());
    events_.on_progress_ = nullptr;
    ASSERT_TRUE(background_->Await().ok());
    EXPECT_THAT(steps, ElementsAre(3, 4));
  });
  ASSERT_THAT(events_.written_, SizeIs(2));
  EXPECT_GT(events_.written_[0].bytes, 0u);
  EXPECT_GT(events_.written_[0].stall_seconds, 0);
  EXPECT_GE(events_.written_[0].seconds, events_.written_[0].stall_seconds);
}

// The manifest of a checkpoint marks the best checkpoint.
TEST_F(SavingTest, ACheckpointOfTheBestPassSaysSoAndOneOfAnEarlierSessionThatDoesNotIsNoneOfIt) {
  std::string path;
  On({}, [&](const Checkpoints::Restored&) {
    path = Save()->path;
    EXPECT_FALSE(events_.written_[0].best);
  });
  On({path}, [&](const Checkpoints::Restored& restored) {
    EXPECT_EQ(Save()->path, path) << "there is one of this step";
    session_state_.validations.best = {.step = 3, .generation = generation_, .value = 1};
    const Saving::Saved best = Save();
    EXPECT_NE(best->path, path);
    EXPECT_TRUE(best->best);
    EXPECT_EQ(SaveLast()->path, best->path);
    path = best->path;
  });
  On({path}, [&](const Checkpoints::Restored& restored) {
    EXPECT_EQ(restored.point.steering.validations, session_state_.validations);
    EXPECT_EQ(Save()->path, path);
    ++session_state_.step;
    EXPECT_FALSE(Save()->best) << "the best one is of another step";
  });
  EXPECT_THAT(events_.written_, SizeIs(3));
}

TEST_F(SavingTest, WhereTrainingWaitsNothingIsCopied) {
  while_training_ = false;
  On({}, [&](const Checkpoints::Restored&) {
    during_commit_ = [&] { EXPECT_GT(writing_.Read().total, 0u); };
    bool told = false;
    ASSERT_TRUE(saving_->Save(0, [&](const Saving::Saved&) { told = true; }).ok());
    EXPECT_TRUE(told);
  });
  ASSERT_THAT(events_.written_, SizeIs(1));
  EXPECT_EQ(events_.written_[0].stall_seconds, events_.written_[0].seconds);
  EXPECT_EQ(writing_.Read(), checkpoint::Writing::Now());
}

}  // namespace
}  // namespace muster::train
