// The files that a gather leaves behind, whatever fails. tests/parity/optimizer_state_test reads
// the contents.
#include "worker/checkpoint/gather.h"

#include <atomic>
#include <filesystem>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "ATen/ops/arange.h"
#include "absl/strings/match.h"
#include "common/files/disk.h"
#include "common/files/files.h"
#include "common/safetensors/safetensors.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/checkpoint/joint_fixture.h"

namespace muster::checkpoint {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kRanks = 3;
constexpr int64_t kElements = 100;

// A state with a parameter that all ranks have, and a moment of which each rank has a part.
State WholeState(int rank) {
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

class GatherTest : public JointTest {
 protected:
  absl::StatusOr<std::unique_ptr<JointOutput>> Output(int rank) override {
    GatherOptions options = options_;
    options.temporary = Temporary(rank, temporary_);
    return OptimizerStateOutput(options, StateOf(rank), records_);
  }
  State StateOf(int rank) override { return Only(WholeState(rank), IsOptimizers); }
  // True if the folder contains only the file, or nothing.
  bool NothingElseIsLeft() const { return NothingIsLeftBut(options_.path); }
  // The moment in the file.
  std::vector<float> InFile() const {
    const auto file = safetensors::File::Open(options_.path);
    if (!file.ok()) return {};
    EXPECT_EQ(file->header().entries.size(), 1) << "a parameter is no state of the optimizer";
    const auto* entry = file->Find("momentum_buffer/w");
    if (entry == nullptr) return {};
    const auto* values = reinterpret_cast<const float*>(file->data(*entry));
    return {values, values + kElements};
  }
  static std::vector<float> Expected() {
    std::vector<float> expected(kElements);
    std::iota(expected.begin(), expected.end(), 0);
    return expected;
  }

  std::string temporary_ = ".state.tmp";
  GatherOptions options_{
      .path = dir_.Path("state"), .temporary = "", .format = optimizerfile::Format::kSafetensors};
  ModelRecords records_ = Records();
};

// A disk that cancels when the last rank has written its part.
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
  // The cancellation comes after all parts are written, and before the file gets its name.
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
  EXPECT_EQ(InFile(), Expected());
  EXPECT_TRUE(NothingElseIsLeft());
}

TEST_F(GatherTest, RanksThatDoNotSeeTheFolderSendTheirParts) {
  ASSERT_TRUE(Run()[0].status.ok());
  const std::string seen_by_all = *files::ReadFile(options_.path);
  options_.overwrite = true;
  for (const std::set<int>& elsewhere : {std::set<int>{1}, {2}, {1, 2}}) {
    elsewhere_ = elsewhere;
    // Both formats are tested, because only a torch file has CRCs.
    for (const auto format : {optimizerfile::Format::kSafetensors, optimizerfile::Format::kTorch}) {
      options_.format = format;
      const auto outcomes = Run();
      ASSERT_TRUE(outcomes[0].status.ok()) << outcomes[0].status;
      EXPECT_TRUE(NothingElseIsLeft());
      const std::string sent = *files::ReadFile(options_.path);
      elsewhere_.clear();
      ASSERT_TRUE(Run()[0].status.ok());
      EXPECT_EQ(sent == *files::ReadFile(options_.path), true);
      elsewhere_ = elsewhere;
    }
  }
}

TEST_F(GatherTest, WhatRankZeroCannotWriteForAnotherIsAnErrorOfAll) {
  elsewhere_ = {1, 2};
  // Rank 0 has written and synced its own part. The third call writes the parts of the other ranks.
  FailingDisk disk(3);
  EXPECT_THAT(Error(Run(disk)), AllOf(HasSubstr("rank 0: "), HasSubstr("full")));
  EXPECT_TRUE(NothingElseIsLeft());
  cancelled_ = true;
  EXPECT_TRUE(absl::IsCancelled(Run()[0].status));
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
    // The last call syncs the folder. After its failure the file exists, but may not survive a
    // crash.
    const bool placed = absl::StrContains(outcomes[0].status.message(), dir_.path() + ": fsync");
    EXPECT_EQ(*files::ReadFile(options_.path) == "old", !placed) << at;
  }
  EXPECT_EQ(failures, 3 * 2 + 4) << "a write and a sync of each rank, then of rank 0 a write, a "
                                    "sync, a rename and a sync of the folder";
}

TEST_F(GatherTest, AKillBeforeAnyWriteOrSyncLeavesTheOldFileOrTheNewOne) {
  options_.overwrite = true;
  int kills = 0, old_ones = 0;
  for (int at = 1;; ++at) {
    ASSERT_TRUE(files::WriteAtomically(options_.path, "old").ok());
    const bool killed = Killed(at);
    const bool old = *files::ReadFile(options_.path) == "old";
    if (!old) {
      EXPECT_TRUE(safetensors::File::Open(options_.path).ok()) << at;
    }
    // The next generation removes this leftover (common/exports).
    fs::remove(Temporary(0, temporary_));
    EXPECT_TRUE(NothingElseIsLeft()) << at;
    if (!killed) {
      EXPECT_FALSE(old);
      break;
    }
    ++kills;
    old_ones += old;
  }
  EXPECT_EQ(kills, 3 * 2 + 4) << "before each call";
  EXPECT_EQ(old_ones, kills - 1) << "only before the folder is synced the new one has its name";
}

TEST_F(GatherTest, WhoseLeaseIsOverGivesNoName) {
  still_mine_ = [] { return absl::UnavailableError("the lease is over"); };
  const auto outcomes = Run();
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

TEST_F(GatherTest, AFolderThatCannotBeMadeAndAnUnknownOptimizerAreNamed) {
  ASSERT_TRUE(files::WriteAtomically(dir_.Path("file"), "").ok());
  options_.path = dir_.Path("file/state");
  temporary_ = "file/.state.tmp";
  EXPECT_THAT(Error(Run()), AllOf(HasSubstr("rank 0: "), HasSubstr("file")));
  records_.optimizer.kind = "adagrad";
  EXPECT_THAT(Error(Run()),
              HasSubstr("expected adamw, adam, sgd, lion or adadelta, found 'adagrad'"));
}

}  // namespace
}  // namespace muster::checkpoint
