#include "worker/tensorboard/sink.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/match.h"
#include "absl/synchronization/mutex.h"
#include "common/files/disk.h"
#include "common/files/temp_dir.h"
#include "common/steady/test_bound.h"
#include "worker/tensorboard/event.h"
#include "worker/tensorboard/event.pb.h"
#include "worker/train/reports/coordinator_interface.h"

namespace muster::tensorboard {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

class Commands : public train::CommandSource {
 public:
  int64_t Newest() const override { return static_cast<int64_t>(commands_.size()); }
  train::Command Get(int64_t number) const override { return commands_.at(number - 1); }

  std::vector<train::Command> commands_;
};

class Reported : public train::EventSink {
 public:
  void Report(const train::Event& event) override {
    absl::MutexLock lock(&mutex_);
    events_.push_back(event);
  }
  void Progress(int64_t, const char*, const char*) override {}
  std::vector<train::Event> Take() {
    absl::MutexLock lock(&mutex_);
    return std::exchange(events_, {});
  }

 private:
  absl::Mutex mutex_;
  std::vector<train::Event> events_ ABSL_GUARDED_BY(mutex_);
};

v1::StepMetrics Measured(int64_t step) {
  v1::StepMetrics metrics;
  metrics.set_step(step);
  metrics.set_loss(0.5);
  return metrics;
}

train::TrainabilityReport Trained(int64_t elements) {
  train::TrainabilityReport report;
  report.trained = elements;
  return report;
}

train::TrainabilityReport Changed(int64_t elements, int64_t step, int64_t command) {
  train::TrainabilityReport report = Trained(elements);
  report.change = train::TrainabilityChange{.step = step, .command = command, .trained = elements};
  return report;
}

class SinkTest : public testing::Test {
 protected:
  // Reports these events in a session of its own.
  void RunSession(int64_t step, const std::vector<train::Event>& events) {
    ++generation_;
    Sink sink({.directory = dir_.Path("logs"),
               .job = "job",
               .generation = generation_,
               .ranks = 1,
               .node = "node",
               .start = {},
               .commands = &commands_},
              &reported_);
    train::SessionStarted started{.step = step};
    if (generation_ > 1) started.checkpoint_path = "/checkpoints/job/a";
    sink.Report(started);
    for (const train::Event& event : events) sink.Report(event);
    sink.Finish(kTestBound);
  }

  // The files' numbers and texts by tag, with their steps, as TensorBoard's reader reads them.
  using Numbers = std::vector<std::pair<int64_t, float>>;
  using Texts = std::vector<std::pair<int64_t, std::string>>;
  void Read() {
    numbers_.clear();
    texts_.clear();
    std::set<std::string> paths;
    for (const auto& file : std::filesystem::directory_iterator(dir_.Path("logs/job"))) {
      paths.insert(file.path().string());
    }
    for (const std::string& path : paths) {
      std::ifstream file(path, std::ios::binary);
      while (const auto data = ReadRecord(file)) {
        Event event;
        ASSERT_TRUE(event.ParseFromString(*data));
        const auto forget = [&](auto& values) {
          for (auto& [tag, all] : values) {
            std::erase_if(all, [&](const auto& value) { return value.first >= event.step(); });
          }
        };
        if (event.session_log().status() == SessionLog::START) {
          forget(numbers_);
          forget(texts_);
        }
        for (const Summary::Value& value : event.summary().value()) {
          for (const std::string& text : value.tensor().string_val()) {
            texts_[value.tag()].emplace_back(event.step(), text);
          }
          if (!value.has_tensor()) {
            numbers_[value.tag()].emplace_back(event.step(), value.simple_value());
          }
        }
      }
    }
  }

  files::TempDir dir_;
  Commands commands_;
  Reported reported_;
  int64_t generation_ = 0;
  std::map<std::string, Numbers> numbers_;
  std::map<std::string, Texts> texts_;
};

TEST_F(SinkTest, PassesEventsOnAndWritesWhatTheyMeasure) {
  RunSession(0, {Measured(1), Measured(2)});
  EXPECT_EQ(reported_.Take().size(), 3u);
  Read();
  EXPECT_THAT(numbers_["train/loss"], ElementsAre(Pair(1, 0.5), Pair(2, 0.5)));
}

TEST_F(SinkTest, WritesHowManyElementsAreTrainedWithTheFirstStepThatTrainsThem) {
  // A step is reported after the changes that take effect after it.
  RunSession(0, {Trained(10), Measured(1), Measured(2), Changed(7, 3, 0), Measured(3), Measured(4),
                 Changed(6, 4, 0), Changed(5, 4, 0), Measured(5)});
  Read();
  EXPECT_THAT(numbers_["train/trainable_parameters"],
              ElementsAre(Pair(1, 10), Pair(4, 7), Pair(5, 5)));
}

TEST_F(SinkTest, WritesHowManyElementsAreTrainedOnceForAStepThatIsDoneAgain) {
  RunSession(0, {Trained(10), Measured(1), Measured(2), Measured(3)});
  RunSession(2, {Trained(10)});
  RunSession(2, {Trained(10), Changed(7, 2, 0), Measured(3)});
  Read();
  EXPECT_THAT(numbers_["train/trainable_parameters"], ElementsAre(Pair(1, 10), Pair(3, 7)));
  EXPECT_THAT(numbers_["train/loss"], ElementsAre(Pair(1, 0.5), Pair(2, 0.5), Pair(3, 0.5)));
}

TEST_F(SinkTest, MarksACommandOnceThatTakesEffectAgain) {
  v1::Command command;
  command.set_number(1);
  command.mutable_set_trainability();
  commands_.commands_ = {command};
  const std::vector<train::Event> effect = {Changed(7, 2, 1), train::CommandApplied{1, 2}};
  RunSession(0, effect);
  commands_.commands_[0].set_replay(true);
  RunSession(2, effect);
  Read();
  EXPECT_EQ(texts_["marks/operations"].size(), 2u) << "the change, and the command";
  EXPECT_EQ(texts_["marks/generations"].size(), 2u);
  // The START of a session that continues from before the command removes the marks.
  RunSession(1, effect);
  Read();
  EXPECT_EQ(texts_["marks/operations"].size(), 2u);
}

TEST_F(SinkTest, AMarkSaysWithWhatACommandWasGiven) {
  v1::Command rate;
  rate.set_number(1);
  rate.mutable_set_learning_rate()->set_learning_rate(0.25);
  v1::Command skip;
  skip.set_number(2);
  skip.mutable_skip_data()->set_samples(12);
  commands_.commands_ = {rate, skip};
  RunSession(0, {train::CommandApplied{1, 2}, train::CommandApplied{2, 2}});
  Read();
  EXPECT_THAT(texts_["marks/operations"], ElementsAre(Pair(2, "set-lr 0.25 (operation job/1)"),
                                                      Pair(2, "skip-data 12 (operation job/2)")));
}

// A disk that can fail to write or to sync.
class FaultyDisk : public files::Disk {
 public:
  absl::Status Write(int fd, const void* data, size_t size, const std::string& path) override {
    if (full_) return files::ErrnoStatus(ENOSPC, "write", path);
    return Disk::Write(fd, data, size, path);
  }
  absl::Status Sync(int fd, const std::string& path) override {
    return unsynced_ ? files::ErrnoStatus(EIO, "sync", path) : Disk::Sync(fd, path);
  }

  std::atomic<bool> full_ = false;
  std::atomic<bool> unsynced_ = false;
};

TEST_F(SinkTest, SaysWhatMayBeMissingOnlyAfterAFailedSync) {
  FaultyDisk disk;
  for (std::atomic<bool>* fault : {&disk.full_, &disk.unsynced_}) {
    Sink sink({.directory = dir_.Path("logs"),
               .job = "job",
               .generation = 1,
               .ranks = 1,
               .node = "node",
               .start = {},
               .commands = &commands_,
               .disk = &disk},
              &reported_);
    sink.Report(train::SessionStarted{.step = 0});
    sink.Report(Measured(1));
    sink.Settle(kTestBound);
    *fault = true;
    sink.Report(Measured(2));
    sink.Settle(kTestBound);
    *fault = false;
    sink.Report(Measured(3));
    sink.Finish(kTestBound);
    std::string failed;
    for (const train::Event& event : reported_.Take()) {
      const auto* notice = std::get_if<train::Notice>(&event);
      if (notice != nullptr && notice->reason == "TENSORBOARD_FAILED") failed = notice->message;
    }
    EXPECT_TRUE(absl::StrContains(failed, "training goes on")) << failed;
    EXPECT_EQ(absl::StrContains(failed, "step 2 were written and could not be synced"),
              fault == &disk.unsynced_)
        << failed;
    EXPECT_EQ(absl::StrContains(failed, "missing"), fault == &disk.unsynced_) << failed;
  }
}

TEST_F(SinkTest, SaysWhichStepsTheFilesLackBeforeTheSession) {
  RunSession(0, {Measured(1)});
  EXPECT_EQ(reported_.Take().size(), 2u);
  RunSession(4, {Measured(5)});
  std::vector<std::string> told;
  for (const train::Event& event : reported_.Take()) {
    if (const auto* notice = std::get_if<train::Notice>(&event)) told.push_back(notice->message);
  }
  ASSERT_EQ(told.size(), 1u);
  EXPECT_TRUE(absl::StrContains(told[0], "end with step 1, and this generation continues after "
                                         "step 4"))
      << told[0];
}

}  // namespace
}  // namespace muster::tensorboard
