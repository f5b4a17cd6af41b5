#include "worker/tensorboard/event_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "common/files/disk.h"
#include "common/files/temp_dir.h"
#include "common/steady/test_bound.h"
#include "worker/tensorboard/event.h"
#include "worker/tensorboard/record.h"

namespace muster::tensorboard {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// A disk that can be full, fail to sync, or not answer.
class FaultyDisk : public files::Disk {
 public:
  absl::Status Write(int fd, const void* data, size_t size, const std::string& path) override {
    if (blocked_) released_.WaitForNotification();
    const bool fits = !full_ || allowed_-- > 0;
    if (on_write_) on_write_(size, fits);
    // As on a full disk, a part may be written.
    if (!fits) {
      Disk::Write(fd, data, size / 2, path).IgnoreError();
      return files::ErrnoStatus(ENOSPC, "write", path);
    }
    return Disk::Write(fd, data, size, path);
  }
  absl::Status Sync(int fd, const std::string& path) override {
    ++syncs_;
    return unsynced_ ? files::ErrnoStatus(EIO, "sync", path) : Disk::Sync(fd, path);
  }

  std::atomic<bool> full_ = false;
  std::atomic<int> allowed_ = 0;  // writes that succeed although the disk is full
  // Before each write, set before there is a log: its size, and whether it succeeds.
  std::function<void(size_t size, bool fits)> on_write_;
  std::atomic<bool> unsynced_ = false;
  std::atomic<bool> blocked_ = false;
  std::atomic<int> syncs_ = 0;
  absl::Notification released_;
};

// What the log has called back.
class Told {
 public:
  void Add(const std::string& text) {
    absl::MutexLock lock(&mutex_);
    texts_.push_back(text);
  }
  void Await(size_t count) {
    absl::MutexLock lock(&mutex_);
    const auto there = [&]()
                           ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return texts_.size() >= count; };
    ASSERT_TRUE(mutex_.AwaitWithTimeout(absl::Condition(&there), kTestBound));
  }
  std::vector<std::string> texts() {
    absl::MutexLock lock(&mutex_);
    return texts_;
  }

 private:
  absl::Mutex mutex_;
  std::vector<std::string> texts_ ABSL_GUARDED_BY(mutex_);
};

Entry Loss(int64_t step, double value) {
  return {.step = step, .wall_time = 0, .tag = "loss", .value = value};
}

class EventLogTest : public testing::Test {
 protected:
  EventLog::Options Options(const std::string& writer = "writer") {
    return {
        .directory = dir_.Path("logs"),
        .job = "job",
        .writer = writer,
        .retry = absl::Milliseconds(1),
        .longest_retry = absl::Milliseconds(1),
        .disk = &disk_,
        .on_trouble =
            [this](const absl::Status& error) {
              told_.Add("trouble: " + std::string(error.message()));
            },
        .on_recovered =
            [this](const std::optional<LostSteps>& dropped) {
              told_.Add(dropped.has_value()
                            ? "recovered without " + std::to_string(dropped->first) + " to " +
                                  std::to_string(dropped->last)
                            : "recovered");
            },
        .on_gap =
            [this](std::optional<int64_t> newest, int64_t step) {
              told_.Add("gap " + std::to_string(newest.value_or(-1)) + " " + std::to_string(step));
            }};
  }

  std::vector<std::string> Files() {
    std::vector<std::string> files;
    for (const auto& entry : fs::directory_iterator(dir_.Path("logs/job"))) {
      files.push_back(entry.path().string());
    }
    std::sort(files.begin(), files.end());
    return files;
  }

  // (step, value) of all losses, as TensorBoard's reader has them: file after file, each as far as
  // it is whole, and a START discards its step and later ones.
  std::vector<std::pair<int64_t, double>> Losses() {
    std::vector<std::pair<int64_t, double>> losses;
    for (const std::string& path : Files()) {
      std::ifstream file(path, std::ios::binary);
      while (const auto data = ReadRecord(file)) {
        const auto event = ParseEvent(*data);
        if (event->start.has_value()) {
          std::erase_if(losses, [&](const auto& loss) { return loss.first >= *event->start; });
        }
        for (const Entry& entry : event->entries) {
          losses.emplace_back(entry.step, std::get<double>(entry.value));
        }
      }
    }
    return losses;
  }

  files::TempDir dir_;
  FaultyDisk disk_;
  Told told_;
};

TEST_F(EventLogTest, WritesWithoutBeingAskedTo) {
  EventLog log(Options());
  log.Begin(0, false);
  for (int64_t step = 1; step <= 100; ++step) log.Add({Loss(step, step * 0.1)});
  EXPECT_EQ(log.Finish(kTestBound), std::nullopt);
  const auto losses = Losses();
  ASSERT_EQ(losses.size(), 100u);
  for (int64_t step = 1; step <= 100; ++step) {
    EXPECT_EQ(losses[step - 1], std::pair(step, step * 0.1));
  }
  EXPECT_EQ(Files().size(), 1u);
  EXPECT_THAT(told_.texts(), IsEmpty());
}

TEST_F(EventLogTest, ContinuesAfterAnEarlierSession) {
  {
    EventLog log(Options("first"));
    log.Begin(0, false);
    for (int64_t step = 1; step <= 5; ++step) log.Add({Loss(step, 1)});
    log.Finish(kTestBound);
  }
  {
    EventLog log(Options("second"));
    log.Begin(3, true);
    for (int64_t step = 4; step <= 6; ++step) log.Add({Loss(step, 2)});
    log.Finish(kTestBound);
  }
  EXPECT_THAT(Losses(), ElementsAre(std::pair(1, 1), std::pair(2, 1), std::pair(3, 1),
                                    std::pair(4, 2), std::pair(5, 2), std::pair(6, 2)));
  EXPECT_THAT(told_.texts(), IsEmpty());
  {
    EventLog log(Options("anew"));
    log.Begin(0, false);
    log.Add({Loss(1, 3)});
    log.Finish(kTestBound);
  }
  EXPECT_THAT(Losses(), ElementsAre(std::pair(1, 3)));
}

TEST_F(EventLogTest, SaysWhatEarlierSessionsLackOf) {
  {
    EventLog log(Options("first"));
    log.Begin(0, false);
    log.Add({Loss(1, 1)});
    log.Finish(kTestBound);
  }
  EventLog log(Options("second"));
  log.Begin(3, true);
  log.Add({Loss(4, 2)});
  log.Finish(kTestBound);
  EXPECT_THAT(told_.texts(), ElementsAre("gap 1 3"));
}

TEST_F(EventLogTest, WritesEverythingAgainAfterAFullDisk) {
  EventLog log(Options());
  log.Begin(0, false);
  log.Add({Loss(1, 1)});
  EXPECT_TRUE(log.Sync(kTestBound));
  log.Add({Loss(2, 2)});
  disk_.full_ = true;
  log.Add({Loss(3, 3)});
  told_.Await(1);
  EXPECT_FALSE(log.Sync(kTestBound)) << "nobody waits for a disk that is full";
  log.Add({Loss(4, 4)});
  disk_.full_ = false;
  told_.Await(2);
  log.Add({Loss(5, 5)});
  EXPECT_EQ(log.Finish(kTestBound), std::nullopt);
  EXPECT_THAT(Losses(), ElementsAre(std::pair(1, 1), std::pair(2, 2), std::pair(3, 3),
                                    std::pair(4, 4), std::pair(5, 5)));
  EXPECT_EQ(Files().size(), 2u) << "a file that failed is not used again";
  EXPECT_THAT(told_.texts(), ElementsAre(HasSubstr("No space left on device"), "recovered"));
}

// About `bytes` of losses from step 1 on; returns the last step.
int64_t AddMuch(EventLog& log, size_t bytes) {
  const auto last = static_cast<int64_t>(bytes / SizeOf(Loss(1, 1)));
  for (int64_t step = 1; step <= last; ++step) log.Add({Loss(step, 1)});
  return last;
}

TEST_F(EventLogTest, AttemptsOnAFullDiskWriteLittleHoweverMuchIsHeld) {
  std::atomic<size_t> largest = 0;
  Told attempts;
  disk_.full_ = true;
  disk_.on_write_ = [&](size_t size, bool) {
    largest = std::max(largest.load(), size);
    attempts.Add("attempt");
  };
  EventLog log(Options());
  log.Begin(0, false);
  AddMuch(log, size_t{8} << 20);
  // The one that runs may have begun earlier.
  attempts.Await(attempts.texts().size() + 2);
  EXPECT_LE(largest, size_t{2} << 20);
}

TEST_F(EventLogTest, IsNotWellAgainAfterAPart) {
  Told writes;
  disk_.full_ = true;
  disk_.on_write_ = [&](size_t, bool fits) {
    if (fits || !writes.texts().empty()) writes.Add(fits ? "written" : "full");
  };
  EventLog log(Options());
  log.Begin(0, false);
  const int64_t last = AddMuch(log, size_t{3} << 20);
  told_.Await(1);
  disk_.allowed_ = 1;
  writes.Await(2);
  EXPECT_THAT(writes.texts().back(), "full");
  EXPECT_EQ(told_.texts().size(), 1u) << "a part of the entries is written";
  disk_.full_ = false;
  told_.Await(2);
  EXPECT_EQ(log.Finish(kTestBound), std::nullopt);
  const auto losses = Losses();
  ASSERT_EQ(losses.size(), static_cast<size_t>(last));
  for (int64_t step = 1; step <= last; ++step) EXPECT_EQ(losses[step - 1].first, step);
  EXPECT_THAT(told_.texts(), ElementsAre(HasSubstr("No space left on device"), "recovered"));
}

TEST_F(EventLogTest, TriesOnceMoreAtTheEndWithoutWaiting) {
  EventLog::Options options = Options();
  options.retry = options.longest_retry = absl::Hours(1);
  disk_.full_ = true;
  EventLog log(options);
  log.Begin(0, false);
  log.Add({Loss(1, 1)});
  told_.Await(1);
  disk_.full_ = false;
  EXPECT_EQ(log.Finish(kTestBound), std::nullopt);
  EXPECT_THAT(Losses(), ElementsAre(std::pair(1, 1)));
}

TEST(RetryAfter, DoublesWithEachFailureUpToALimit) {
  std::vector<absl::Duration> waits;
  for (const int64_t failures : {1, 2, 3, 5, 6, 1000}) {
    waits.push_back(RetryAfter(failures, absl::Seconds(1), absl::Seconds(30)));
  }
  EXPECT_THAT(waits, ElementsAre(absl::Seconds(1), absl::Seconds(2), absl::Seconds(4),
                                 absl::Seconds(16), absl::Seconds(30), absl::Seconds(30)));
}

TEST_F(EventLogTest, WritesEverythingAgainAfterAFailedSync) {
  EventLog log(Options());
  log.Begin(0, false);
  log.Add({Loss(1, 1)});
  EXPECT_TRUE(log.Sync(kTestBound));
  disk_.unsynced_ = true;
  log.Add({Loss(2, 2)});
  EXPECT_FALSE(log.Sync(kTestBound));
  told_.Await(1);
  const std::string first = Files().front();
  const auto size = fs::file_size(first);
  disk_.unsynced_ = false;
  told_.Await(2);
  log.Add({Loss(3, 3)});
  EXPECT_EQ(log.Finish(kTestBound), std::nullopt);
  EXPECT_THAT(Losses(), ElementsAre(std::pair(1, 1), std::pair(2, 2), std::pair(3, 3)));
  EXPECT_EQ(fs::file_size(first), size);
}

TEST_F(EventLogTest, SyncsOnlyWhenItIsAskedTo) {
  EventLog log(Options());
  log.Begin(0, false);
  log.Add({Loss(1, 1)});
  EXPECT_TRUE(log.Sync(kTestBound));
  const int syncs = disk_.syncs_;
  for (int64_t step = 2; step <= 100; ++step) log.Add({Loss(step, 1)});
  EXPECT_TRUE(log.Sync(kTestBound));
  EXPECT_EQ(disk_.syncs_, syncs + 1);
}

TEST_F(EventLogTest, WritesANewFileIfTheFileIsGone) {
  EventLog log(Options());
  log.Begin(0, false);
  log.Add({Loss(1, 1)});
  EXPECT_TRUE(log.Sync(kTestBound));
  fs::remove(Files().front());
  log.Add({Loss(2, 2)});
  told_.Await(2);
  EXPECT_EQ(log.Finish(kTestBound), std::nullopt);
  EXPECT_THAT(Losses(), ElementsAre(std::pair(2, 2))) << "what was durable is not kept in memory";
}

TEST_F(EventLogTest, WritesANewFileIfTheWholeDirectoryIsGone) {
  EventLog log(Options());
  log.Begin(0, false);
  log.Add({Loss(1, 1)});
  EXPECT_TRUE(log.Sync(kTestBound));
  fs::remove_all(dir_.Path("logs"));
  log.Add({Loss(2, 2)});
  told_.Await(2);
  EXPECT_EQ(log.Finish(kTestBound), std::nullopt);
  EXPECT_THAT(Losses(), ElementsAre(std::pair(2, 2)));
}

TEST_F(EventLogTest, WaitsForAFileSystemThatIsNotMounted) {
  // What is mounted and goes away is "mount".
  EventLog::Options options = Options();
  options.directory = dir_.Path("mount/logs");
  fs::create_directory_symlink("mount/logs", dir_.Path("logs"));
  EventLog log(options);
  log.Begin(0, false);
  log.Add({Loss(1, 1)});
  EXPECT_TRUE(log.Sync(kTestBound));
  fs::rename(dir_.Path("mount"), dir_.Path("away"));
  fs::create_directory(dir_.Path("mount"));
  log.Add({Loss(2, 2)});
  told_.Await(1);
  EXPECT_THAT(told_.texts().front(), HasSubstr("find "));
  fs::remove(dir_.Path("mount"));
  fs::rename(dir_.Path("away"), dir_.Path("mount"));
  told_.Await(2);
  EXPECT_EQ(log.Finish(kTestBound), std::nullopt);
  EXPECT_THAT(Losses(), ElementsAre(std::pair(1, 1), std::pair(2, 2)));
}

TEST_F(EventLogTest, SaysWhatItHadToDrop) {
  disk_.full_ = true;
  EventLog::Options options = Options();
  options.limit = 10 * SizeOf(Loss(1, 1));
  EventLog log(options);
  log.Begin(0, false);
  for (int64_t step = 1; step <= 30; ++step) log.Add({Loss(step, 1)});
  told_.Await(1);
  disk_.full_ = false;
  told_.Await(2);
  EXPECT_EQ(told_.texts().back(), "recovered without 1 to 20");
  EXPECT_EQ(log.Finish(kTestBound), std::nullopt);
  EXPECT_EQ(Losses().size(), 10u);
}

TEST_F(EventLogTest, SaysAtTheEndWhatIsNotWritten) {
  EventLog log(Options());
  log.Begin(0, false);
  log.Add({Loss(1, 1)});
  EXPECT_TRUE(log.Sync(kTestBound));
  disk_.full_ = true;
  log.Add({Loss(2, 2), Loss(3, 3)});
  EXPECT_EQ(log.Finish(absl::ZeroDuration()), (LostSteps{2, 3, 2}));
}

TEST_F(EventLogTest, DoesNotWaitForAFileSystemThatDoesNotAnswer) {
  // The thread that is left behind uses it until the process ends.
  static FaultyDisk* const disk = new FaultyDisk;
  disk->blocked_ = true;
  {
    EventLog::Options options = Options();
    options.disk = disk;
    options.slow = absl::ZeroDuration();
    EventLog log(options);
    log.Begin(0, false);
    int64_t step = 0;
    while (told_.texts().empty()) log.Add({Loss(++step, 1)});
    EXPECT_THAT(told_.texts(), ElementsAre(HasSubstr("has not answered")));
    EXPECT_FALSE(log.Sync(kTestBound));
  }
  disk->released_.Notify();
}

TEST_F(EventLogTest, WritesNothingOnceItsLeaseIsOver) {
  EventLog::Options options = Options();
  options.still_mine = [] { return absl::UnavailableError("the lease is over"); };
  EventLog log(options);
  log.Begin(0, false);
  log.Add({Loss(1, 1)});
  EXPECT_EQ(log.Finish(kTestBound), (LostSteps{1, 1, 1}));
  EXPECT_FALSE(fs::exists(dir_.Path("logs")));
}

}  // namespace
}  // namespace muster::tensorboard
