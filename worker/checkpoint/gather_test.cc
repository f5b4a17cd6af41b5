// What a gather leaves behind, whatever fails. What it writes is read by
// tests/parity/optimizer_state_test.
#include "worker/checkpoint/gather.h"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "ATen/ops/arange.h"
#include "absl/strings/match.h"
#include "common/files/disk.h"
#include "common/files/files.h"
#include "common/files/temp_dir.h"
#include "common/safetensors/safetensors.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/comm/local/local_group.h"

namespace muster::checkpoint {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kRanks = 3;
constexpr int64_t kElements = 100;

// A parameter that all ranks have, and a moment of which each rank has a part.
State StateOf(int rank) {
  StateBuilder builder(kRanks);
  builder.AddReplicated("param", "w", at::arange(kElements, at::kFloat));
  std::vector<StateBuilder::Part> parts;
  for (int r = 0; r < kRanks; ++r) {
    parts.push_back({r, kElements * r / kRanks, kElements * (r + 1) / kRanks});
  }
  builder.AddSharded({"momentum_buffer", "w", {kElements}}, parts);
  builder.Hold(parts[rank].begin, at::arange(parts[rank].begin, parts[rank].end, at::kFloat));
  return builder.Build();
}

ModelRecords Records() {
  return {.optimizer = {"sgd", {{{"lr", {0.5}}, {"momentum", {0.9}}, {"nesterov", {0}}}}},
          .parameters = {{"w", {kElements}, "F32", true, true, 0}}};
}

// Fails in the call with this number, counted over all ranks and from 1.
class FailingDisk : public files::Disk {
 public:
  explicit FailingDisk(int at) : at_(at) {}
  absl::Status Write(int fd, const void* data, size_t size, const std::string& path) override {
    return Fails() ? absl::ResourceExhaustedError(path + ": full")
                   : Disk::Write(fd, data, size, path);
  }
  absl::Status Sync(int fd, const std::string& path) override {
    return Fails() ? absl::InternalError(path + ": fsync") : Disk::Sync(fd, path);
  }
  absl::Status Rename(const std::string& from, const std::string& to) override {
    return Fails() ? absl::InternalError(to + ": rename") : Disk::Rename(from, to);
  }
  absl::Status SyncDirectory(const std::string& path) override {
    return Fails() ? absl::InternalError(path + ": fsync") : Disk::SyncDirectory(path);
  }
  int calls() const { return calls_; }

 protected:
  virtual bool Fails() { return ++calls_ == at_; }

 private:
  const int at_;
  std::atomic<int> calls_ = 0;
};

class GatherTest : public ::testing::Test {
 protected:
  std::vector<GatherOutcome> Run(files::Disk& disk = files::Disk::Real(),
                                 const std::function<absl::Status()>& still_mine = nullptr) {
    auto group = comm::LocalGroup::Create(kRanks);
    std::vector<GatherOutcome> outcomes(kRanks);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < kRanks; ++rank) {
      threads.emplace_back([&, rank, communicator = std::move(group[rank])] {
        GatherOptions options = options_;
        if (rank == elsewhere_) options.temporary = dir_.Path("elsewhere/.state.tmp");
        const auto outcome = GatherOptimizerState(options, Only(StateOf(rank), IsOptimizers),
                                                  records_, communicator.get(), still_mine, disk);
        ASSERT_TRUE(outcome.ok()) << outcome.status();
        outcomes[rank] = *outcome;
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const GatherOutcome& outcome : outcomes) {
      EXPECT_EQ(outcome.status, outcomes[0].status) << "all ranks know the same";
    }
    return outcomes;
  }
  std::string Error(const std::vector<GatherOutcome>& outcomes) {
    return std::string(outcomes[0].status.message());
  }
  // Only the file, if there is one.
  bool NothingElseIsLeft() const {
    for (const auto& entry : fs::directory_iterator(dir_.path())) {
      if (entry.path() != options_.path) return false;
    }
    return true;
  }

  files::TempDir dir_;
  GatherOptions options_{.path = dir_.Path("state"),
                         .temporary = dir_.Path(".state.tmp"),
                         .format = optimizerfile::Format::kSafetensors};
  ModelRecords records_ = Records();
  std::atomic<bool> cancelled_ = false;
  int elsewhere_ = -1;  // a rank that sees another file system
};

// Cancels when the last rank has written its part.
class CancellingDisk : public files::Disk {
 public:
  explicit CancellingDisk(std::atomic<bool>* cancelled) : cancelled_(cancelled) {}
  absl::Status Sync(int fd, const std::string& path) override {
    if (++syncs_ == kRanks) *cancelled_ = true;
    return Disk::Sync(fd, path);
  }

 private:
  std::atomic<bool>* const cancelled_;
  std::atomic<int> syncs_ = 0;
};

TEST_F(GatherTest, OnceItIsCancelledThereIsNoFile) {
  options_.cancelled = &cancelled_;
  // Before the file gets its name, when all parts are written.
  CancellingDisk disk(&cancelled_);
  const auto late = Run(disk);
  EXPECT_TRUE(absl::IsCancelled(late[0].status)) << late[0].status;
  EXPECT_FALSE(fs::exists(options_.path));
  EXPECT_TRUE(NothingElseIsLeft());
  ASSERT_TRUE(cancelled_);
  const auto early = Run();
  EXPECT_TRUE(absl::IsCancelled(early[0].status)) << early[0].status;
  EXPECT_TRUE(NothingElseIsLeft());
}

TEST_F(GatherTest, TheRanksPartsAreOneTensor) {
  const auto outcomes = Run();
  ASSERT_TRUE(outcomes[0].status.ok()) << outcomes[0].status;
  EXPECT_EQ(outcomes[1].bytes, fs::file_size(options_.path));
  const auto file = safetensors::File::Open(options_.path);
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_EQ(file->header().entries.size(), 1) << "a parameter is no state of the optimizer";
  const auto* entry = file->Find("momentum_buffer/w");
  ASSERT_NE(entry, nullptr);
  const auto* values = reinterpret_cast<const float*>(file->data(*entry));
  for (int64_t i = 0; i < kElements; ++i) EXPECT_EQ(values[i], i);
  EXPECT_TRUE(NothingElseIsLeft());
}

TEST_F(GatherTest, EveryFailureOfTheDiskLeavesTheOldFileAndNothingElse) {
  options_.overwrite = true;
  int failures = 0;
  for (int at = 1;; ++at) {
    ASSERT_TRUE(files::WriteAtomically(options_.path, "old").ok());
    FailingDisk disk(at);
    const auto outcomes = Run(disk);
    EXPECT_TRUE(NothingElseIsLeft()) << at;
    if (disk.calls() < at) {
      EXPECT_TRUE(outcomes[0].status.ok()) << outcomes[0].status;
      break;
    }
    ++failures;
    EXPECT_FALSE(outcomes[0].status.ok()) << at;
    // The last call syncs the folder: then the file is there, and whether that lasts is not known.
    const bool placed = absl::StrContains(outcomes[0].status.message(), dir_.path() + ": fsync");
    EXPECT_EQ(*files::ReadFile(options_.path) == "old", !placed) << at;
  }
  EXPECT_EQ(failures, 3 * 2 + 4) << "a write and a sync of each rank, then of rank 0 a write, a "
                                    "sync, a rename and a sync of the folder";
}

// Ends its process, as kill -9 does, before the `at`th call.
class KillingDisk : public FailingDisk {
 public:
  explicit KillingDisk(int at) : FailingDisk(at) {}

 protected:
  bool Fails() override {
    if (FailingDisk::Fails()) _exit(kKilled);
    return false;
  }

 public:
  static constexpr int kKilled = 9;
};

TEST_F(GatherTest, AKillBeforeAnyWriteOrSyncLeavesTheOldFileOrTheNewOne) {
  options_.overwrite = true;
  int kills = 0, old_ones = 0;
  for (int at = 1;; ++at) {
    ASSERT_TRUE(files::WriteAtomically(options_.path, "old").ok());
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      KillingDisk disk(at);
      Run(disk);
      _exit(0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status)) << status;
    const bool old = *files::ReadFile(options_.path) == "old";
    if (!old) {
      EXPECT_TRUE(safetensors::File::Open(options_.path).ok()) << at;
    }
    // What the next generation removes (common/exports).
    fs::remove(options_.temporary);
    EXPECT_TRUE(NothingElseIsLeft()) << at;
    if (WEXITSTATUS(status) == 0) {
      EXPECT_FALSE(old);
      break;
    }
    ASSERT_EQ(WEXITSTATUS(status), KillingDisk::kKilled);
    ++kills;
    old_ones += old;
  }
  EXPECT_EQ(kills, 3 * 2 + 4) << "before each call";
  EXPECT_EQ(old_ones, kills - 1) << "only before the folder is synced the new one has its name";
}

TEST_F(GatherTest, WhoseLeaseIsOverGivesNoName) {
  const auto outcomes =
      Run(files::Disk::Real(), [] { return absl::UnavailableError("the lease is over"); });
  EXPECT_EQ(outcomes[0].status, absl::UnavailableError("the lease is over"));
  EXPECT_FALSE(fs::exists(options_.path));
  EXPECT_TRUE(NothingElseIsLeft());
}

TEST_F(GatherTest, AFileThatExistsIsReplacedOnlyIfItMayBe) {
  ASSERT_TRUE(files::WriteAtomically(options_.path, "somebody's").ok());
  const auto outcomes = Run();
  EXPECT_TRUE(absl::IsAlreadyExists(outcomes[0].status)) << outcomes[0].status;
  EXPECT_EQ(*files::ReadFile(options_.path), "somebody's");
  options_.path = dir_.Path("folder");
  fs::create_directory(options_.path);
  options_.overwrite = true;
  EXPECT_THAT(Error(Run()), HasSubstr("folder: is no regular file"));
}

TEST_F(GatherTest, ARankThatDoesNotSeeTheFolderIsNamed) {
  elsewhere_ = 1;
  EXPECT_THAT(Error(Run()), AllOf(HasSubstr("rank 1: all ranks must see the folder of the file"),
                                  HasSubstr("No such file")));
  EXPECT_FALSE(fs::exists(options_.path));
  EXPECT_TRUE(NothingElseIsLeft());
}

TEST_F(GatherTest, AFolderThatCannotBeMadeAndAnUnknownOptimizerAreNamed) {
  ASSERT_TRUE(files::WriteAtomically(dir_.Path("file"), "").ok());
  options_.path = dir_.Path("file/state");
  options_.temporary = dir_.Path("file/.state.tmp");
  EXPECT_THAT(Error(Run()), AllOf(HasSubstr("rank 0: "), HasSubstr("file")));
  records_.optimizer.kind = "adagrad";
  EXPECT_THAT(Error(Run()),
              HasSubstr("expected adamw, adam, sgd, lion or adadelta, found 'adagrad'"));
}

}  // namespace
}  // namespace muster::checkpoint
