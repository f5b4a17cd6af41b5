// Saving by all ranks together: the written files, and the files that a failure leaves behind.
#include "worker/checkpoint/saver.h"

#include <filesystem>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "common/files/files.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/checkpoint/epoch.h"
#include "worker/checkpoint/saver_fixture.h"
#include "worker/comm/local/local_group.h"

namespace muster::checkpoint {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

// The tests of all files that use this fixture.
INSTANTIATE_TEST_SUITE_P(WorldSizes, SaverTest, ::testing::Values(1, 2, 3, 4));

TEST_P(SaverTest, SavesAndRestoresWithTheSameOutcomeOnAllRanks) {
  Run(4, [&](int, Saver& saver) {
    const auto shared = saver.CheckSharedDirectory();
    ASSERT_TRUE(shared.ok() && shared->status.ok()) << shared->status;
    const auto saved = saver.Save({10, 5, 1, 64}, MakeState(1));
    ASSERT_TRUE(saved.ok() && saved->status.ok()) << saved->status;
    EXPECT_EQ(saved->name, "step-10-g4");
    EXPECT_EQ(saved->manifest.files.size(), GetParam());
    const State state = Blank();
    const auto restored = saver.Restore({"step-10-g4"}, state);
    ASSERT_TRUE(restored.ok() && restored->status.ok()) << restored->status;
    EXPECT_EQ(restored->manifest, saved->manifest);
    EXPECT_EQ(restored->manifest.last_command, 5);
    EXPECT_EQ(restored->manifest.cursor, 64);
    EXPECT_EQ(restored->manifest.world_size, GetParam());
    EXPECT_TRUE(state.held[0].tensor.equal(Tensors(1)[0].tensor));
    EXPECT_EQ(state.held[1].tensor.item<float>(), 1);
    EXPECT_EQ(state.held[2].tensor.item<int64_t>(), (int64_t{1} << 40) + 1);
  });
  EXPECT_EQ(std::distance(fs::directory_iterator(dir_.Path("ckpt")), {}), 1);
}

TEST_P(SaverTest, SavingThePointAgainGivesTheFirstOutcome) {
  Run(1, [&](int, Saver& saver) {
    const auto first = saver.Save({10, 5, 1, 64}, MakeState(1));
    const auto again = saver.Save({10, 5, 1, 64}, MakeState(1));
    ASSERT_TRUE(again.ok() && again->status.ok());
    EXPECT_EQ(again->manifest, first->manifest);
    EXPECT_EQ(saver.Save({10, 6, 1, 64}, MakeState(1))->status,
              absl::AlreadyExistsError("step-10-g1 was saved after command 5 already"));
    EXPECT_TRUE(saver.Save({11, 6, 1, 64}, MakeState(1))->status.ok());
  });
}

TEST_P(SaverTest, OneRanksFailureFailsTheSaveOnAllByNameAndLeavesNothing) {
  const int broken = GetParam() - 1;
  Run(
      1,
      [&](int, Saver& saver) {
        const auto outcome = saver.Save({10, 0, 0, 0}, MakeState(1));
        ASSERT_TRUE(outcome.ok());
        EXPECT_THAT(
            std::string(outcome->status.message()),
            AllOf(HasSubstr("checkpoint step-10-g1: rank " + std::to_string(broken) + ": fsync"),
                  HasSubstr("Input/output error")));
      },
      broken);
  EXPECT_TRUE(fs::is_empty(dir_.Path("ckpt")));
  SaveStep(10, 1);  // training goes on, and the next attempt works
}

TEST_P(SaverTest, WithoutItsLeaseRank0GivesTheCheckpointNoName) {
  Run(1, [&](int, Saver& saver) {
    saver.SetStillMine([] { return absl::UnavailableError("the lease is over"); });
    const auto outcome = saver.Save({10, 0, 0, 0}, MakeState(1));
    ASSERT_TRUE(outcome.ok());
    EXPECT_THAT(std::string(outcome->status.message()), HasSubstr("the lease is over"));
  });
  EXPECT_TRUE(fs::is_empty(dir_.Path("ckpt")));
}

// A disk that fails in a call that only rank 0 makes.
class DiskThatCannotRename : public files::Disk {
 public:
  absl::Status Rename(const std::string&, const std::string& to) override {
    return files::ErrnoStatus(EIO, "rename", to);
  }
};

TEST_P(SaverTest, AFailedCommitFailsTheSaveOnAllAndLeavesNothing) {
  auto group = comm::LocalGroup::Create(GetParam());
  std::vector<std::thread> threads;
  for (int rank = 0; rank < GetParam(); ++rank) {
    threads.emplace_back([&, communicator = std::move(group[rank])] {
      DiskThatCannotRename disk;
      Saver saver({dir_.Path("ckpt"), "j", 1, "ddp", "toy"}, communicator.get(), disk);
      const auto outcome = saver.Save({10, 0, 0, 0}, MakeState(1));
      ASSERT_TRUE(outcome.ok());
      EXPECT_THAT(std::string(outcome->status.message()),
                  HasSubstr("checkpoint step-10-g1: rank 0: rename"));
      EXPECT_EQ(outcome->manifest, manifest::Manifest());
      // The point does not count as saved, so the next call tries again.
      EXPECT_FALSE(saver.Save({10, 0, 0, 0}, MakeState(1))->status.ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(fs::is_empty(dir_.Path("ckpt")));
}

TEST_P(SaverTest, TheManifestTellsWhoWroteWhat) {
  Run(4, [&](int, Saver& saver) {
    const manifest::Manifest manifest = saver.Save({10, 5, 1, 64}, MakeState(1))->manifest;
    EXPECT_EQ(manifest.job, "j");
    EXPECT_EQ(manifest.step, 10);
    EXPECT_EQ(manifest.generation, 4);
    EXPECT_EQ(manifest.last_command, 5);
    EXPECT_EQ(manifest.epoch, 1);
    EXPECT_EQ(manifest.cursor, 64);
    EXPECT_EQ(manifest.world_size, GetParam());
    EXPECT_EQ(manifest.strategy, "ddp");
    EXPECT_EQ(manifest.model_kind, "toy");
    const auto read = manifest::Read(dir_.Path("ckpt/step-10-g4"));
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(*read, manifest);
  });
}

TEST_P(SaverTest, WhatNobodyWritesFailsTheSaveBeforeAnythingIsWritten) {
  Run(1, [&](int rank, Saver& saver) {
    State state = Sliced(rank, GetParam(), 1);
    state.written.holders.back().pop_back();
    const auto outcome = saver.Save({10, 0, 0, 0}, state);
    ASSERT_TRUE(outcome.ok());
    EXPECT_EQ(outcome->status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(
        std::string(outcome->status.message()),
        AllOf(HasSubstr("checkpoint step-10-g1: rank 0: "), HasSubstr("'exp_avg/w': elements [")));
    EXPECT_FALSE(fs::exists(dir_.Path("ckpt")));
    // The point does not count as saved.
    EXPECT_FALSE(saver.Save({10, 0, 0, 0}, state)->status.ok());
  });
  EXPECT_FALSE(fs::exists(dir_.Path("ckpt")));
}

TEST_P(SaverTest, ARankThatDoesNotHoldWhatItWritesIsNamedBeforeAnythingIsWritten) {
  const int lacking = GetParam() - 1;
  Run(1, [&](int rank, Saver& saver) {
    State state = Sliced(rank, GetParam(), 1);
    if (rank == lacking) state.held.pop_back();
    const auto outcome = saver.Save({10, 0, 0, 0}, state);
    ASSERT_TRUE(outcome.ok());
    const std::string who = std::to_string(lacking);
    EXPECT_THAT(std::string(outcome->status.message()),
                AllOf(HasSubstr(": rank " + who + ": state of rank " + who +
                                ": exp_avg/w: writes elements ["),
                      HasSubstr("but holds none")));
  });
  EXPECT_FALSE(fs::exists(dir_.Path("ckpt")));
}

TEST_P(SaverTest, RanksThatDisagreeOnWhoWritesWhatAreNamedBeforeAnythingIsWritten) {
  if (GetParam() == 1) return;
  Run(1, [&](int rank, Saver& saver) {
    State state = MakeState(1);
    if (rank == 1) std::swap(state.written.holders[0], state.written.holders[1]);
    const auto outcome = saver.Save({10, 0, 0, 0}, state);
    ASSERT_TRUE(outcome.ok());
    EXPECT_EQ(outcome->status, absl::InvalidArgumentError(
                                   "checkpoint step-10-g1: rank 1: its items, or the ranks that "
                                   "write them, differ from those of rank 0"));
  });
  EXPECT_FALSE(fs::exists(dir_.Path("ckpt")));
}

// Two generations use one folder, as after a partition. The older generation is stopped at any
// point before its rename.
TEST_P(SaverTest, AnOlderGenerationCommitsNothingOnceANewerOneHasBegun) {
  const std::string folder = dir_.Path("ckpt");
  ASSERT_TRUE(files::CreateDirectories(folder).ok());
  const Epoch older{2, "instance", "p"};
  const Epoch newer{3, "instance", "q"};
  // A disk that begins the newer generation while the older generation's file is being synced.
  class Overtaken : public files::Disk {
   public:
    Overtaken(std::string folder, Epoch epoch)
        : folder_(std::move(folder)), epoch_(std::move(epoch)) {}
    absl::Status Sync(int fd, const std::string& path) override {
      if (path.find("rank-0") != std::string::npos) EXPECT_TRUE(BeginEpoch(folder_, epoch_).ok());
      return files::Disk::Sync(fd, path);
    }

   private:
    const std::string folder_;
    const Epoch epoch_;
  };
  for (const bool before_the_save : {false, true}) {
    fs::remove_all(folder);
    ASSERT_TRUE(files::CreateDirectories(folder).ok());
    ASSERT_TRUE(BeginEpoch(folder, older).ok());
    if (before_the_save) ASSERT_TRUE(BeginEpoch(folder, newer).ok());
    auto group = comm::LocalGroup::Create(GetParam());
    std::vector<std::thread> threads;
    for (int rank = 0; rank < GetParam(); ++rank) {
      threads.emplace_back([&, rank, communicator = std::move(group[rank])] {
        Overtaken disk(folder, newer);
        Saver saver({folder, "j", 2, "ddp", "toy", older}, communicator.get(),
                    before_the_save ? files::Disk::Real() : disk);
        const auto outcome = saver.Save({10, 0, 0, 0}, MakeState(1));
        EXPECT_EQ(outcome.status().code(), absl::StatusCode::kAborted) << outcome.status();
        EXPECT_EQ(NewerGeneration(outcome.status()), 3);
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_FALSE(fs::exists(folder + "/step-10-g2"));
    EXPECT_FALSE(fs::exists(folder + "/step-10-g2.tmp"));
  }
}

// The mount is missing, so no checkpoint may be written to its empty mount point.
TEST_P(SaverTest, WithoutItsEpochFileNothingIsWritten) {
  const std::string folder = dir_.Path("ckpt");
  auto group = comm::LocalGroup::Create(GetParam());
  std::vector<std::thread> threads;
  for (int rank = 0; rank < GetParam(); ++rank) {
    threads.emplace_back([&, communicator = std::move(group[rank])] {
      Saver saver({folder, "j", 2, "ddp", "toy", Epoch{2, "instance", "p"}}, communicator.get());
      const auto outcome = saver.Save({10, 0, 0, 0}, MakeState(1));
      ASSERT_TRUE(outcome.ok());  // training goes on
      EXPECT_THAT(std::string(outcome->status.message()), HasSubstr("is its file system mounted"));
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(fs::exists(folder));
}

TEST_P(SaverTest, RanksThatSeeAnotherDirectoryAreNamed) {
  const int stray = GetParam() - 1;
  if (stray == 0) return;  // the case needs two ranks
  directories_.assign(GetParam(), dir_.Path("ckpt"));
  directories_[stray] = dir_.Path("elsewhere");
  Run(1, [&](int, Saver& saver) {
    const auto shared = saver.CheckSharedDirectory();
    ASSERT_TRUE(shared.ok());
    EXPECT_EQ(shared->status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(shared->at_fault, std::vector<int64_t>{stray});
    EXPECT_THAT(std::string(shared->status.message()),
                HasSubstr("is not the one that rank 0 sees: rank " + std::to_string(stray) + ": "));
  });
  EXPECT_TRUE(fs::is_empty(dir_.Path("ckpt")));
}

TEST_P(SaverTest, ADirectoryThatCannotBeMadeIsAnOutcome) {
  ASSERT_TRUE(files::WriteAtomically(dir_.Path("ckpt"), "a file").ok());
  Run(1, [&](int, Saver& saver) {
    const auto shared = saver.CheckSharedDirectory();
    ASSERT_TRUE(shared.ok());
    EXPECT_THAT(std::string(shared->status.message()), HasSubstr("rank 0: make directory"));
    EXPECT_FALSE(saver.Save({1, 0, 0, 0}, MakeState(1))->status.ok());
  });
}

TEST_P(SaverTest, ADeadPeerIsTheCommunicatorsError) {
  if (GetParam() == 1) return;
  Run(1, [&](int rank, Saver& saver) {
    if (rank == GetParam() - 1) return;  // its communicator is destroyed
    EXPECT_EQ(saver.CheckSharedDirectory().status().code(), absl::StatusCode::kUnavailable);
    EXPECT_EQ(saver.Save({1, 0, 0, 0}, MakeState(1)).status().code(),
              absl::StatusCode::kUnavailable);
  });
}

}  // namespace
}  // namespace muster::checkpoint
