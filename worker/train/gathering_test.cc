#include "worker/train/gathering.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <string>

#include "ATen/ops/full.h"
#include "absl/synchronization/notification.h"
#include "common/files/files.h"
#include "common/files/temp_dir.h"
#include "common/safetensors/safetensors.h"
#include "worker/train/rank_threads.h"

namespace muster::train {
namespace {

constexpr int64_t kElements = 6;

class Outside : public EventSink, public LeaseHolder {
 public:
  void Report(const Event&) override {}
  void Progress(int64_t, const char*, const char*) override {}
  absl::Status StillMine() const override {
    if (before_name) before_name();
    return absl::OkStatus();
  }
  std::function<void()> before_name;
};

// The only rank of a job whose optimizer has one moment.
class GatheringTest : public testing::Test {
 protected:
  void On(const std::function<void(Gathering&)>& body) {
    RunRanks(1, [&](int, comm::Communicator&, comm::Communicator&, comm::Communicator&,
                    comm::Communicator& files) {
      const SessionReports reports(0, &outside_, &session_state_);
      const optim::Schedule rates;
      Background background(&files, &reports);
      background_ = &background;
      Gathering gathering(
          {.identity = {"job", "instance", 1, 0, "0a1b2c3d-4e5f-4a6b-8c9d-0e1f2a3b4c5d"},
           .lease = &outside_,
           .learning_rates = &rates,
           .session_state = &session_state_,
           .reports = &reports,
           .communicator = &files,
           .background = &background,
           .writing = &writing_,
           .state =
               [this] {
                 return checkpoint::Replicated(
                     {{"param", "w", at::full({kElements}, 9.0f)}, {"exp_avg", "w", moment_}}, 1);
               },
           .records =
               [](const checkpoint::State&) {
                 checkpoint::ModelRecords records;
                 records.optimizer = {.kind = "adam", .groups = {{{"lr", {0.1}}}}};
                 records.parameters = {{.name = "w",
                                        .shape = {kElements},
                                        .dtype = "F32",
                                        .trainable = true,
                                        .ever_trained = true}};
                 return records;
               }});
      body(gathering);
    });
  }
  absl::Status Gather(Gathering& gathering, bool hold) {
    return gathering.Gather({.path = folder_.Path("state"),
                             .format = optimizerfile::Format::kSafetensors,
                             .hold = hold},
                            /*command=*/4, [this](const auto& gathered) { told_ = gathered; });
  }
  // The first element of the moment in the file.
  float InFile() const {
    const auto file = safetensors::File::Open(folder_.Path("state"));
    if (!file.ok()) return -1;
    const auto bytes = files::ReadFile(folder_.Path("state"));
    float value = 0;
    std::memcpy(&value, bytes->data() + bytes->size() - kElements * sizeof(float), sizeof(float));
    return value;
  }
  bool NothingIsLeft() const { return std::filesystem::is_empty(folder_.path()); }

  files::TempDir folder_;
  Outside outside_;
  SessionState session_state_{.step = 3};
  checkpoint::Writing writing_;
  at::Tensor moment_ = at::full({kElements}, 1.0f);
  absl::StatusOr<OptimizerStateGathered> told_ = absl::UnknownError("nothing was told");
  Background* background_ = nullptr;
};

TEST_F(GatheringTest, AFileHasTheStateOfItsStepAlthoughTrainingContinues) {
  absl::Notification changed;
  outside_.before_name = [&] {
    changed.WaitForNotification();
    EXPECT_EQ(writing_.Read(), (checkpoint::Writing::Now{4, 4 * kElements, 4 * kElements}));
  };
  On([&](Gathering& gathering) {
    ASSERT_TRUE(Gather(gathering, /*hold=*/false).ok());
    moment_.fill_(2);
    ++session_state_.step;
    changed.Notify();
    ASSERT_TRUE(background_->Await().ok());
  });
  ASSERT_TRUE(told_.ok()) << told_.status();
  EXPECT_EQ(told_->step, 3);
  EXPECT_EQ(told_->bytes, std::filesystem::file_size(folder_.Path("state")));
  EXPECT_GT(told_->stall_seconds, 0);
  EXPECT_GE(told_->seconds, told_->stall_seconds);
  EXPECT_EQ(InFile(), 1.0f);
  EXPECT_EQ(writing_.Read(), checkpoint::Writing::Now());
}

TEST_F(GatheringTest, WithHoldTheFileIsThereWhenTrainingContinues) {
  On([&](Gathering& gathering) {
    ASSERT_TRUE(Gather(gathering, /*hold=*/true).ok());
    ASSERT_TRUE(told_.ok()) << told_.status();
    EXPECT_EQ(told_->stall_seconds, told_->seconds);
  });
  EXPECT_EQ(InFile(), 1.0f);
}

TEST_F(GatheringTest, ItIsCancelledUntilItsFileIsComplete) {
  absl::Notification cancelling;
  outside_.before_name = [&] { cancelling.WaitForNotification(); };
  On([&](Gathering& gathering) {
    EXPECT_FALSE(*gathering.Cancel(4)) << "it was not begun";
    ASSERT_TRUE(Gather(gathering, /*hold=*/false).ok());
    EXPECT_FALSE(*gathering.Cancel(3)) << "another command";
    // Here the file is complete, so it is too late.
    cancelling.Notify();
    ASSERT_TRUE(background_->Await().ok());
    EXPECT_FALSE(*gathering.Cancel(4));
    ASSERT_TRUE(told_.ok()) << told_.status();
    std::filesystem::remove(folder_.Path("state"));
  });
  EXPECT_TRUE(NothingIsLeft());
}

}  // namespace
}  // namespace muster::train
