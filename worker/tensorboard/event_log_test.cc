#include "worker/tensorboard/event_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "common/files/disk.h"
#include "common/files/temp_dir.h"
#include "common/steady/test_bound.h"
#include "worker/tensorboard/event.h"
#include "worker/tensorboard/event.pb.h"
#include "worker/tensorboard/queue.h"

namespace muster::tensorboard {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;
using testing::StartsWith;
using testing::UnorderedElementsAre;

// A disk that can be full, fail to sync, or not answer.
class FaultyDisk : public files::Disk {
 public:
  absl::Status Write(int fd, const void* data, size_t size, const std::string& path) override {
    if (blocked_) released_.WaitForNotification();
    const bool fits = !full_ || allowed_-- > 0;
    if (on_write_) on_write_(fits);
    // A part may be written, as on a full disk.
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
  // A function that is called before each write; set before there is a log.
  std::function<void(bool fits)> on_write_;
  std::atomic<bool> unsynced_ = false;
  std::atomic<bool> blocked_ = false;
  std::atomic<int> syncs_ = 0;
  absl::Notification released_;
};

// The callbacks of the log so far.
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

Event Number(int64_t step, const std::string& tag, double value) {
  Event event = EventAt(step, 0);
  AddNumber(tag, value, &event);
  return event;
}

Event Loss(int64_t step, double value) { return Number(step, "loss", value); }

class EventLogTest : public testing::Test {
 protected:
  EventLog::Options Options(const std::string& writer = "writer") {
    return {
        .directory = dir_.Path("logs"),
        .job = "job",
        .writer = writer,
        .retry = absl::Milliseconds(1),
        .disk = &disk_,
        .on_trouble =
            [this](const absl::Status& error, const std::optional<Steps>& unsynced) {
              told_.Add("trouble: " + std::string(error.message()) +
                        (unsynced.has_value() ? ", without " + std::to_string(unsynced->first) +
                                                    " to " + std::to_string(unsynced->last)
                                              : ""));
            },
        .on_dropped = [this](int64_t step) { told_.Add("dropped from " + std::to_string(step)); },
        .on_recovered =
            [this](const std::optional<Steps>& lost) {
              told_.Add(lost.has_value() ? "recovered without " + std::to_string(lost->first) +
                                               " to " + std::to_string(lost->last)
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

  // The numbers of a tag, as the data server reads them. A START is ignored, and any value discards
  // the tag's values of its step and of later steps.
  std::vector<std::pair<int64_t, double>> OfDataServer(const std::string& tag) {
    std::vector<std::pair<int64_t, double>> found;
    for (const std::string& path : Files()) {
      std::ifstream file(path, std::ios::binary);
      while (const auto data = ReadRecord(file)) {
        Event event;
        EXPECT_TRUE(event.ParseFromString(*data));
        for (const Summary::Value& value : event.summary().value()) {
          if (value.tag() != tag) continue;
          std::erase_if(found, [&](const auto& number) { return number.first >= event.step(); });
          if (!value.has_tensor()) found.emplace_back(event.step(), value.simple_value());
        }
      }
    }
    return found;
  }

  // The pairs (step, value) of all losses, as TensorBoard's readers in Python read them. Each file
  // is read up to its damage, and a START discards its step and later steps.
  std::vector<std::pair<int64_t, double>> Losses() {
    std::vector<std::pair<int64_t, double>> losses;
    for (const std::string& path : Files()) {
      std::ifstream file(path, std::ios::binary);
      while (const auto data = ReadRecord(file)) {
        Event event;
        EXPECT_TRUE(event.ParseFromString(*data));
        if (event.session_log().status() == SessionLog::START) {
          std::erase_if(losses, [&](const auto& loss) { return loss.first >= event.step(); });
        }
        for (const Summary::Value& value : event.summary().value()) {
          if (value.tag() == "loss") losses.emplace_back(event.step(), value.simple_value());
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
  for (int64_t step = 1; step <= 100; ++step) log.Add(Loss(step, static_cast<double>(step) * 0.5));
  EXPECT_EQ(log.Finish(kTestBound), std::nullopt);
  const auto losses = Losses();
  ASSERT_EQ(losses.size(), 100u);
  for (int64_t step = 1; step <= 100; ++step) {
    EXPECT_EQ(losses[step - 1], std::pair(step, static_cast<double>(step) * 0.5));
  }
  EXPECT_EQ(Files().size(), 1u);
  EXPECT_THAT(told_.texts(), IsEmpty());
}

TEST_F(EventLogTest, ContinuesAfterAnEarlierSession) {
  {
    EventLog log(Options("first"));
    log.Begin(0, false);
    for (int64_t step = 1; step <= 5; ++step) log.Add(Loss(step, 1));
    log.Finish(kTestBound);
  }
  {
    EventLog log(Options("second"));
    log.Begin(3, true);
    for (int64_t step = 4; step <= 6; ++step) log.Add(Loss(step, 2));
    log.Finish(kTestBound);
  }
  EXPECT_THAT(Losses(), ElementsAre(std::pair(1, 1), std::pair(2, 1), std::pair(3, 1),
                                    std::pair(4, 2), std::pair(5, 2), std::pair(6, 2)));
  EXPECT_THAT(told_.texts(), IsEmpty());
  {
    EventLog log(Options("anew"));
    log.Begin(0, false);
    log.Add(Loss(1, 3));
    log.Finish(kTestBound);
  }
  EXPECT_THAT(Losses(), ElementsAre(std::pair(1, 3)));
}

TEST_F(EventLogTest, ContinuesAfterASessionThatDidNoStep) {
  for (const std::string writer : {"first", "second", "third"}) {
    EventLog log(Options(writer));
    log.Begin(writer == "first" ? 0 : 2, writer != "first");
    if (writer == "first") {
      for (int64_t step = 1; step <= 5; ++step) log.Add(Loss(step, 1));
    }
    if (writer == "second") log.Add(EventAt(2, 0));
    if (writer == "third") log.Add(Loss(3, 3));
    EXPECT_EQ(log.Finish(kTestBound), std::nullopt);
  }
  EXPECT_EQ(Files().size(), 3u);
  EXPECT_THAT(Losses(), ElementsAre(std::pair(1, 1), std::pair(2, 1), std::pair(3, 3)));
}

TEST_F(EventLogTest, TakesNumbersBackThatAreNotWrittenAgain) {
  {
    EventLog log(Options("first"));
    log.Begin(0, false);
    for (int64_t step = 1; step <= 5; ++step) log.Add(Loss(step, 1));
    log.Add(Number(2, "validation", 1));
    log.Add(Number(5, "validation", 1));
    log.Add(Number(5, "test", 1));
    log.Finish(kTestBound);
  }
  const auto begin = [&](const std::string& writer, bool continued) {
    EventLog log(Options(writer));
    log.Begin(continued ? 3 : 0, continued);
    log.Add(EventAt(continued ? 3 : 0, 0));
    EXPECT_EQ(log.Finish(kTestBound), std::nullopt);
  };
  begin("second", true);
  EXPECT_THAT(OfDataServer("loss"), ElementsAre(Pair(1, 1), Pair(2, 1), Pair(3, 1)));
  EXPECT_THAT(OfDataServer("validation"), ElementsAre(Pair(2, 1)));
  EXPECT_THAT(OfDataServer("test"), IsEmpty());
  EXPECT_THAT(Losses(), ElementsAre(Pair(1, 1), Pair(2, 1), Pair(3, 1)));
  begin("third", true);
  EXPECT_THAT(OfDataServer("loss"), ElementsAre(Pair(1, 1), Pair(2, 1), Pair(3, 1)));
  begin("fourth", false);
  EXPECT_THAT(OfDataServer("loss"), IsEmpty());
  EXPECT_THAT(OfDataServer("validation"), IsEmpty());
  EXPECT_THAT(Losses(), IsEmpty());
}

TEST_F(EventLogTest, TakesNumbersBackOnceADiskIsNotFullAnyMore) {
  {
    EventLog log(Options("first"));
    log.Begin(0, false);
    for (int64_t step = 1; step <= 5; ++step) log.Add(Loss(step, 1));
    log.Finish(kTestBound);
  }
  disk_.full_ = true;
  EventLog log(Options("second"));
  log.Begin(3, true);
  log.Add(EventAt(3, 0));
  told_.Await(1);
  disk_.full_ = false;
  EXPECT_EQ(log.Finish(kTestBound), std::nullopt);
  EXPECT_THAT(OfDataServer("loss"), ElementsAre(Pair(1, 1), Pair(2, 1), Pair(3, 1)));
}

TEST_F(EventLogTest, NamesItsFileBehindThoseOfAClockThatIsAhead) {
  fs::create_directories(dir_.Path("logs/job"));
  for (const std::string number : {"9000000000", "5", "9223372036854775807"}) {
    std::ofstream(dir_.Path("logs/job/events.out.tfevents." + number + ".other"));
  }
  EventLog log(Options());
  log.Begin(0, false);
  log.Add(Loss(1, 1));
  EXPECT_EQ(log.Finish(kTestBound), std::nullopt);
  EXPECT_TRUE(fs::exists(dir_.Path("logs/job/events.out.tfevents.9000000001.writer")));
}

TEST_F(EventLogTest, BeginsEachFileWithAStartOfAStepThatItHasNotWritten) {
  EventLog log(Options());
  log.Begin(0, false);
  log.Add(Loss(1, 1));
  EXPECT_TRUE(log.Sync(kTestBound));
  disk_.full_ = true;
  log.Add(Loss(2, 2));
  told_.Await(1);
  disk_.full_ = false;
  EXPECT_EQ(log.Finish(kTestBound), std::nullopt);
  std::vector<int64_t> starts;
  for (const std::string& path : Files()) {
    std::ifstream file(path, std::ios::binary);
    ReadRecord(file);
    Event start;
    EXPECT_TRUE(start.ParseFromString(ReadRecord(file).value()));
    EXPECT_EQ(start.session_log().status(), SessionLog::START);
    starts.push_back(start.step());
  }
  EXPECT_THAT(starts, ElementsAre(0, 2));
}

TEST_F(EventLogTest, SaysWhatEarlierSessionsLackOf) {
  {
    EventLog log(Options("first"));
    log.Begin(0, false);
    log.Add(Loss(1, 1));
    log.Finish(kTestBound);
  }
  EventLog log(Options("second"));
  log.Begin(3, true);
  log.Add(Loss(4, 2));
  log.Finish(kTestBound);
  EXPECT_THAT(told_.texts(), ElementsAre("gap 1 3"));
}

TEST_F(EventLogTest, WritesEverythingAfterAFullDisk) {
  EventLog log(Options());
  log.Begin(0, false);
  log.Add(Loss(1, 1));
  EXPECT_TRUE(log.Sync(kTestBound));
  log.Add(Loss(2, 2));
  disk_.full_ = true;
  log.Add(Loss(3, 3));
  told_.Await(1);
  EXPECT_FALSE(log.Sync(kTestBound)) << "nobody waits for a disk that is full";
  log.Add(Loss(4, 4));
  disk_.full_ = false;
  told_.Await(2);
  log.Add(Loss(5, 5));
  EXPECT_EQ(log.Finish(kTestBound), std::nullopt);
  EXPECT_THAT(Losses(), ElementsAre(std::pair(1, 1), std::pair(2, 2), std::pair(3, 3),
                                    std::pair(4, 4), std::pair(5, 5)));
  EXPECT_EQ(Files().size(), 2u) << "a file that failed is not used again";
  EXPECT_THAT(told_.texts(), ElementsAre(HasSubstr("No space left on device"), "recovered"));
}

TEST_F(EventLogTest, IsNotWellAgainAfterAPart) {
  Told writes;
  disk_.full_ = true;
  disk_.on_write_ = [&](bool fits) {
    if (fits || !writes.texts().empty()) writes.Add(fits ? "written" : "full");
  };
  EventLog::Options options = Options();
  options.batch = 1;
  EventLog log(options);
  log.Begin(0, false);
  for (int64_t step = 1; step <= 9; ++step) log.Add(Loss(step, 1));
  told_.Await(1);
  disk_.allowed_ = 3;
  writes.Await(4);
  EXPECT_THAT(writes.texts().back(), "full");
  EXPECT_EQ(told_.texts().size(), 1u) << "a part of the records is written";
  disk_.full_ = false;
  told_.Await(2);
  EXPECT_EQ(log.Finish(kTestBound), std::nullopt);
  const auto losses = Losses();
  ASSERT_EQ(losses.size(), 9u);
  for (int64_t step = 1; step <= 9; ++step) EXPECT_EQ(losses[step - 1].first, step);
  EXPECT_THAT(told_.texts(), ElementsAre(HasSubstr("No space left on device"), "recovered"));
}

TEST_F(EventLogTest, TriesOnceMoreAtTheEndWithoutWaiting) {
  EventLog::Options options = Options();
  options.retry = absl::Hours(1);
  disk_.full_ = true;
  EventLog log(options);
  log.Begin(0, false);
  log.Add(Loss(1, 1));
  told_.Await(1);
  disk_.full_ = false;
  EXPECT_EQ(log.Finish(kTestBound), std::nullopt);
  EXPECT_THAT(Losses(), ElementsAre(std::pair(1, 1)));
}

TEST_F(EventLogTest, SaysWhatAFailedSyncMayHaveLost) {
  EventLog log(Options());
  log.Begin(0, false);
  log.Add(Loss(1, 1));
  EXPECT_TRUE(log.Sync(kTestBound));
  disk_.unsynced_ = true;
  log.Add(Loss(2, 2));
  EXPECT_FALSE(log.Sync(kTestBound));
  told_.Await(1);
  EXPECT_THAT(told_.texts(), ElementsAre(HasSubstr("Input/output error, without 2 to 2")));
  disk_.unsynced_ = false;
  log.Add(Loss(3, 3));
  told_.Await(2);
  EXPECT_EQ(told_.texts().back(), "recovered without 2 to 2");
  EXPECT_EQ(log.Finish(kTestBound), std::nullopt);
  EXPECT_EQ(Files().size(), 2u) << "a file that failed is not used again";
}

TEST_F(EventLogTest, SaysWhatMayBeLostOfAFileThatFailed) {
  Told writes;
  disk_.on_write_ = [&](bool) { writes.Add("write"); };
  EventLog log(Options());
  log.Begin(0, false);
  log.Add(Loss(1, 1));
  EXPECT_TRUE(log.Sync(kTestBound));
  log.Add(Loss(2, 2));
  writes.Await(2);
  disk_.unsynced_ = true;
  disk_.full_ = true;
  log.Add(Loss(3, 3));
  told_.Await(1);
  disk_.unsynced_ = false;
  disk_.full_ = false;
  told_.Await(2);
  EXPECT_EQ(told_.texts().back(), "recovered without 2 to 2");
}

TEST_F(EventLogTest, SyncsOnlyWhenItIsAskedTo) {
  EventLog log(Options());
  log.Begin(0, false);
  log.Add(Loss(1, 1));
  EXPECT_TRUE(log.Sync(kTestBound));
  const int syncs = disk_.syncs_;
  for (int64_t step = 2; step <= 100; ++step) log.Add(Loss(step, 1));
  EXPECT_TRUE(log.Sync(kTestBound));
  EXPECT_EQ(disk_.syncs_, syncs + 1);
}

TEST_F(EventLogTest, WritesANewFileIfTheFileIsGone) {
  EventLog log(Options());
  log.Begin(0, false);
  log.Add(Loss(1, 1));
  EXPECT_TRUE(log.Sync(kTestBound));
  fs::remove(Files().front());
  log.Add(Loss(2, 2));
  told_.Await(2);
  EXPECT_EQ(log.Finish(kTestBound), std::nullopt);
  EXPECT_THAT(Losses(), ElementsAre(std::pair(2, 2))) << "what was durable is not kept in memory";
}

TEST_F(EventLogTest, WritesANewFileIfTheWholeDirectoryIsGone) {
  EventLog log(Options());
  log.Begin(0, false);
  log.Add(Loss(1, 1));
  EXPECT_TRUE(log.Sync(kTestBound));
  fs::remove_all(dir_.Path("logs"));
  log.Add(Loss(2, 2));
  told_.Await(2);
  EXPECT_EQ(log.Finish(kTestBound), std::nullopt);
  EXPECT_THAT(Losses(), ElementsAre(std::pair(2, 2)));
}

TEST_F(EventLogTest, WaitsForAFileSystemThatIsNotMounted) {
  // The mounted file system that goes away is "mount".
  EventLog::Options options = Options();
  options.directory = dir_.Path("mount/logs");
  fs::create_directory_symlink("mount/logs", dir_.Path("logs"));
  EventLog log(options);
  log.Begin(0, false);
  log.Add(Loss(1, 1));
  EXPECT_TRUE(log.Sync(kTestBound));
  fs::rename(dir_.Path("mount"), dir_.Path("away"));
  fs::create_directory(dir_.Path("mount"));
  log.Add(Loss(2, 2));
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
  options.limit = 10 * RecordOf(Loss(1, 1)).size();
  EventLog log(options);
  log.Begin(0, false);
  for (int64_t step = 1; step <= 30; ++step) log.Add(Loss(step, 1));
  told_.Await(2);
  EXPECT_THAT(told_.texts(), UnorderedElementsAre(StartsWith("trouble"), "dropped from 1"));
  disk_.full_ = false;
  told_.Await(3);
  EXPECT_EQ(told_.texts().back(), "recovered without 1 to 20");
  EXPECT_EQ(log.Finish(kTestBound), std::nullopt);
  EXPECT_EQ(Losses().size(), 10u);
}

TEST_F(EventLogTest, KeepsUpWithStepsThatAreFasterThanACall) {
  EventLog* used = nullptr;
  int64_t step = 1;
  std::atomic<int> writes = 0;
  absl::Notification done;
  disk_.on_write_ = [&](bool) {
    ++writes;
    for (int i = 0; i < 4 && step < 401; ++i) used->Add(Loss(++step, 1));
    if (step == 401 && !done.HasBeenNotified()) done.Notify();
  };
  EventLog::Options options = Options();
  options.limit = 50 * RecordOf(Loss(1, 1)).size();
  EventLog log(options);
  used = &log;
  log.Begin(0, false);
  log.Add(Loss(1, 1));
  done.WaitForNotification();
  EXPECT_EQ(log.Finish(kTestBound), std::nullopt);
  EXPECT_THAT(told_.texts(), IsEmpty());
  EXPECT_EQ(Losses().size(), 401u);
  EXPECT_EQ(writes, 101);
}

TEST_F(EventLogTest, SaysOnceThatADiskIsTooSlow) {
  EventLog* used = nullptr;
  int64_t step = 1;
  std::vector<std::string> before;  // what was told before the last record
  disk_.on_write_ = [&](bool) {
    if (step == 401) return;
    for (int i = 0; i < 4; ++i) used->Add(Loss(++step, 1));
    if (step == 401) before = told_.texts();
  };
  EventLog::Options options = Options();
  options.batch = 1;
  options.limit = 10 * RecordOf(Loss(1, 1)).size();
  EventLog log(options);
  used = &log;
  log.Begin(0, false);
  log.Add(Loss(1, 1));
  told_.Await(2);
  EXPECT_EQ(log.Finish(kTestBound), std::nullopt);
  EXPECT_THAT(before, ElementsAre(StartsWith("dropped from ")));
  EXPECT_THAT(told_.texts(), ElementsAre(before[0], StartsWith("recovered without ")));
}

TEST_F(EventLogTest, IsWellAgainAlthoughRecordsAlwaysWait) {
  EventLog* used = nullptr;
  int64_t step = 5;
  disk_.full_ = true;
  disk_.on_write_ = [&](bool fits) {
    if (fits && told_.texts().size() < 2 && step < 1000) used->Add(Loss(++step, 1));
  };
  EventLog::Options options = Options();
  options.batch = 1;
  EventLog log(options);
  used = &log;
  log.Begin(0, false);
  for (int64_t i = 1; i <= 5; ++i) log.Add(Loss(i, 1));
  told_.Await(1);
  disk_.full_ = false;
  told_.Await(2);
  EXPECT_EQ(log.Finish(kTestBound), std::nullopt);
  EXPECT_THAT(told_.texts(), ElementsAre(StartsWith("trouble"), "recovered"));
  EXPECT_LT(step, 1000);
  EXPECT_EQ(Losses().size(), step);
}

TEST_F(EventLogTest, TakesBackThePartOfAWriteThatFailed) {
  EventLog::Options options = Options();
  std::atomic<bool> held = false;
  absl::Notification go_on;
  options.still_mine = [&] {
    if (held) go_on.WaitForNotification();
    return absl::OkStatus();
  };
  EventLog log(options);
  log.Begin(0, false);
  log.Add(Loss(1, 1));
  EXPECT_TRUE(log.Sync(kTestBound));
  held = true;
  // The next file has a START of step 2, so that it does not take back values of step 1.
  log.Add(Loss(1, 7));
  log.Add(Loss(2, 2));
  log.Add(Loss(3, 3));
  disk_.full_ = true;
  go_on.Notify();
  told_.Await(1);
  disk_.full_ = false;
  EXPECT_EQ(log.Finish(kTestBound), std::nullopt);
  EXPECT_THAT(Losses(), ElementsAre(Pair(1, 1), Pair(1, 7), Pair(2, 2), Pair(3, 3)));
}

TEST_F(EventLogTest, SaysAtTheEndWhatIsNotWritten) {
  EventLog log(Options());
  log.Begin(0, false);
  log.Add(Loss(1, 1));
  EXPECT_TRUE(log.Sync(kTestBound));
  disk_.full_ = true;
  log.Add(Loss(2, 2));
  log.Add(Loss(3, 3));
  EXPECT_EQ(log.Finish(absl::ZeroDuration()), (Steps{2, 3}));
}

TEST_F(EventLogTest, DoesNotWaitForAFileSystemThatDoesNotAnswer) {
  // The abandoned thread uses the disk until the process ends.
  static FaultyDisk* const disk = new FaultyDisk;
  disk->blocked_ = true;
  {
    EventLog::Options options = Options();
    options.disk = disk;
    options.slow = absl::ZeroDuration();
    EventLog log(options);
    log.Begin(0, false);
    int64_t step = 0;
    while (told_.texts().empty()) log.Add(Loss(++step, 1));
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
  log.Add(Loss(1, 1));
  EXPECT_EQ(log.Finish(kTestBound), (Steps{1, 1}));
  EXPECT_FALSE(fs::exists(dir_.Path("logs")));
}

}  // namespace
}  // namespace muster::tensorboard
