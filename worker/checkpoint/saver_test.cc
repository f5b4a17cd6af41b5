#include "worker/checkpoint/saver.h"

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "ATen/core/Tensor.h"
#include "ATen/ops/arange.h"
#include "ATen/ops/full.h"
#include "ATen/ops/zeros.h"
#include "common/files/files.h"
#include "common/files/temp_dir.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/checkpoint/directory.h"
#include "worker/comm/local/local_group.h"

namespace muster::checkpoint {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::vector<StateTensor> Tensors(float offset) {
  return {{"param", "w", at::arange(100, at::kFloat).add_(offset)},
          {"step", "w", at::full({}, offset, at::kFloat)},
          {"buffer", "n", at::full({}, int64_t{1} << 40, at::kLong).add_(int64_t(offset))}};
}

std::vector<StateTensor> Blanks() {
  return {{"param", "w", at::zeros({100}, at::kFloat)},
          {"step", "w", at::zeros({}, at::kFloat)},
          {"buffer", "n", at::zeros({}, at::kLong)}};
}

class BrokenDisk : public files::Disk {
 public:
  absl::Status Sync(int, const std::string& path) override {
    return files::ErrnoStatus(EIO, "fsync", path);
  }
};

class SaverTest : public ::testing::TestWithParam<int> {
 protected:
  State MakeState(float offset) { return Replicated(Tensors(offset), GetParam()); }
  State Blank() { return Replicated(Blanks(), GetParam()); }

  // Runs `body` as every rank of a fresh group.
  void Run(int64_t generation, const std::function<void(int rank, Saver& saver)>& body,
           int broken_rank = -1) {
    const int ranks = GetParam();
    auto group = comm::LocalGroup::Create(ranks);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank) {
      threads.emplace_back([&, rank, communicator = std::move(group[rank])] {
        BrokenDisk broken;
        const std::string directory = static_cast<size_t>(rank) < directories_.size()
                                          ? directories_[rank]
                                          : dir_.Path("ckpt");
        Saver saver({directory, "j", generation, "ddp", "toy"}, communicator.get(),
                    rank == broken_rank ? broken : files::Disk::Real());
        body(rank, saver);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  std::string SaveStep(int64_t step, int64_t generation) {
    Run(generation, [&](int, Saver& saver) {
      const auto outcome = saver.Save({step, 1, 2, 3}, MakeState(step));
      EXPECT_TRUE(outcome.ok() && outcome->status.ok());
    });
    return dir_.Path("ckpt/" + FinalName(step, generation));
  }

  files::TempDir dir_;
  std::vector<std::string> directories_;  // by rank, when they differ
};

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

// What only rank 0 does.
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
      // It does not count as saved: the same point is tried again.
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

// Rank r of N has a parameter and elements [50 r / N, 50 (r + 1) / N) of its moment; element i of both is `values` + i.
State Sliced(int rank, int ranks, float values) {
  StateBuilder builder(ranks);
  builder.AddReplicated("param", "w", at::arange(100, at::kFloat).add_(values));
  std::vector<StateBuilder::Part> parts;
  for (int r = 0; r < ranks; ++r) parts.push_back({r, 50 * r / ranks, 50 * (r + 1) / ranks});
  builder.AddSharded({"exp_avg", "w", {50}}, parts);
  const int64_t begin = parts[rank].begin;
  builder.Hold(begin, at::arange(begin, parts[rank].end, at::kFloat).add_(values));
  return builder.Build();
}

TEST_P(SaverTest, SlicesAreRestoredToSlicesAndToWholeTensors) {
  Run(1, [&](int rank, Saver& saver) {
    const auto saved = saver.Save({10, 0, 0, 0}, Sliced(rank, GetParam(), 1));
    ASSERT_TRUE(saved.ok() && saved->status.ok()) << saved->status;
    const State slices = Sliced(rank, GetParam(), 1000);
    const auto restored = saver.Restore({"step-10-g1"}, slices);
    ASSERT_TRUE(restored.ok() && restored->status.ok()) << restored->status;
    const State expected = Sliced(rank, GetParam(), 1);
    for (int i : {0, 1}) EXPECT_TRUE(slices.held[i].tensor.equal(expected.held[i].tensor)) << rank;

    const State whole = Replicated(
        {{"param", "w", at::zeros({100}, at::kFloat)}, {"exp_avg", "w", at::zeros({50}, at::kFloat)}},
        GetParam());
    const auto gathered = saver.Restore({"step-10-g1"}, whole);
    ASSERT_TRUE(gathered.ok() && gathered->status.ok()) << gathered->status;
    EXPECT_TRUE(whole.held[1].tensor.equal(at::arange(50, at::kFloat).add_(1))) << rank;
  });
}

TEST_P(SaverTest, WhatNobodyWritesFailsTheSaveBeforeAnythingIsWritten) {
  Run(1, [&](int rank, Saver& saver) {
    State state = Sliced(rank, GetParam(), 1);
    state.written.holders.back().pop_back();
    const auto outcome = saver.Save({10, 0, 0, 0}, state);
    ASSERT_TRUE(outcome.ok());
    EXPECT_EQ(outcome->status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(outcome->status.message()),
                AllOf(HasSubstr("checkpoint step-10-g1: rank 0: "), HasSubstr("'exp_avg/w': elements [")));
    EXPECT_FALSE(fs::exists(dir_.Path("ckpt")));
    // It does not count as saved.
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
                AllOf(HasSubstr(": rank " + who + ": state of rank " + who + ": exp_avg/w: writes elements ["),
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
    EXPECT_EQ(outcome->status,
              absl::InvalidArgumentError("checkpoint step-10-g1: rank 1: its items, or who writes what "
                                         "of them, are not those of rank 0"));
  });
  EXPECT_FALSE(fs::exists(dir_.Path("ckpt")));
}

TEST_P(SaverTest, ABrokenCheckpointIsSetAsideAndTheOneBeforeUsed) {
  SaveStep(1, 1);
  const std::string newest = SaveStep(2, 1);
  fs::resize_file(newest + "/rank-0.safetensors", 20);
  Run(2, [&](int, Saver& saver) {
    const State state = Blank();
    const auto outcome = saver.Restore({"step-2-g1", "step-1-g1"}, state);
    ASSERT_TRUE(outcome.ok() && outcome->status.ok()) << outcome->status;
    EXPECT_EQ(outcome->name, "step-1-g1");
    ASSERT_EQ(outcome->rejected.size(), 1u);
    EXPECT_EQ(outcome->rejected[0].name, "step-2-g1");
    EXPECT_TRUE(outcome->rejected[0].damaged);
    EXPECT_THAT(outcome->rejected[0].reason, HasSubstr("rank 0: "));
    EXPECT_EQ(state.held[1].tensor.item<float>(), 1);
  });
  EXPECT_TRUE(fs::exists(newest + ".bad"));
  EXPECT_FALSE(fs::exists(newest));
}

// They may be there again tomorrow.
TEST_P(SaverTest, WhatCannotBeFoundOrReadIsNotSetAside) {
  const std::string whole = SaveStep(1, 1);
  const std::string without_manifest = SaveStep(2, 1);
  fs::remove(without_manifest + "/MANIFEST.json");
  const std::string without_file = SaveStep(3, 1);
  fs::remove(without_file + "/rank-0.safetensors");
  const std::string unreadable = SaveStep(4, 1);
  fs::remove(unreadable + "/rank-0.safetensors");
  fs::create_directory(unreadable + "/rank-0.safetensors");  // reading gives EISDIR, also to root
  Run(2, [&](int, Saver& saver) {
    const State state = Blank();
    const auto outcome =
        saver.Restore({"step-7-g1", "step-4-g1", "step-3-g1", "step-2-g1"}, state);
    ASSERT_TRUE(outcome.ok());
    EXPECT_EQ(outcome->status.code(), absl::StatusCode::kNotFound);
    EXPECT_THAT(std::string(outcome->status.message()), HasSubstr("no checkpoint can be read in "));
    ASSERT_EQ(outcome->rejected.size(), 4u);
    for (const Rejected& rejected : outcome->rejected) EXPECT_FALSE(rejected.damaged) << rejected.name;
    EXPECT_EQ(state.held[1].tensor.item<float>(), 0);
    EXPECT_EQ(std::string(saver.Restore(std::vector<std::string>(), state)->status.message()),
              "no checkpoint to restore from");
    EXPECT_EQ(saver.Restore({"step-7-g1", "step-1-g1"}, state)->name, "step-1-g1");
  });
  for (const std::string& path : {whole, without_manifest, without_file, unreadable}) {
    EXPECT_TRUE(fs::exists(path)) << path;
    EXPECT_FALSE(fs::exists(path + ".bad")) << path;
  }
}

TEST_P(SaverTest, AnEditedManifestIsDamage) {
  const std::string path = SaveStep(66, 1);
  std::string text = *files::ReadFile(path + "/MANIFEST.json");
  const std::string step = "\"step\": 66";
  text.replace(text.find(step), step.size(), "\"step\": 1066");
  ASSERT_TRUE(files::WriteAtomically(path + "/MANIFEST.json", text).ok());
  Run(2, [&](int, Saver& saver) {
    const auto outcome = saver.Restore({"step-66-g1"}, Blank());
    ASSERT_TRUE(outcome.ok());
    ASSERT_EQ(outcome->rejected.size(), 1u);
    EXPECT_TRUE(outcome->rejected[0].damaged);
  });
  EXPECT_TRUE(fs::exists(path + ".bad"));
}

TEST_P(SaverTest, AnotherJobsCheckpointIsNotTaken) {
  const std::string path = SaveStep(1, 1);
  auto group = comm::LocalGroup::Create(GetParam());
  std::vector<std::thread> threads;
  for (int rank = 0; rank < GetParam(); ++rank) {
    threads.emplace_back([&, communicator = std::move(group[rank])] {
      Saver saver({dir_.Path("ckpt"), "other", 2, "ddp", "toy"}, communicator.get());
      const State state = Blank();
      const auto taken = [&state](const manifest::Manifest&) { return state; };
      const auto own = saver.Restore({{.name = "step-1-g1", .put_aside = false}}, taken);
      ASSERT_TRUE(own.ok());
      EXPECT_THAT(std::string(own->status.message()),
                  HasSubstr("expected a checkpoint of job 'other', found one of job 'j'"));
      // Where somebody says so, it is.
      const auto told = saver.Restore({{.name = path, .put_aside = false, .own = false}}, taken);
      ASSERT_TRUE(told.ok() && told->status.ok()) << told->status;
      EXPECT_EQ(told->manifest.job, "j");
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(fs::exists(path));
}

TEST_P(SaverTest, ACheckpointOfAnotherModelIsRefusedButNotSetAside) {
  const std::string path = SaveStep(1, 1);
  Run(2, [&](int, Saver& saver) {
    State state = Blank();
    state.items[0].parameter = "v";
    const auto outcome = saver.Restore({"step-1-g1"}, state);
    ASSERT_TRUE(outcome.ok());
    EXPECT_EQ(outcome->status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_TRUE(outcome->rejected.empty());
  });
  EXPECT_TRUE(fs::exists(path));
}

// Its view of the file system is at fault, not the checkpoint.
TEST_P(SaverTest, WhatOnlyOneRankMissesIsNotSetAside) {
  if (GetParam() == 1) return;  // one rank is all ranks
  const std::string path = SaveStep(1, 1);
  directories_.assign(GetParam(), dir_.Path("ckpt"));
  directories_.back() = dir_.Path("elsewhere");
  Run(2, [&](int, Saver& saver) {
    const State state = Blank();
    const auto outcome = saver.Restore({"step-1-g1"}, state);
    ASSERT_TRUE(outcome.ok());
    // Not NOT_FOUND, on which the job would start over.
    EXPECT_EQ(outcome->status.code(), absl::StatusCode::kInternal) << outcome->status;
    EXPECT_EQ(outcome->at_fault, std::vector<int64_t>{GetParam() - 1});
    EXPECT_TRUE(outcome->rejected.empty());
    EXPECT_EQ(state.held[1].tensor.item<float>(), 0);
  });
  EXPECT_TRUE(fs::exists(path));
}

TEST_P(SaverTest, OneRanksBadReadDoesNotCondemn) {
  if (GetParam() == 1) return;
  const std::string path = SaveStep(1, 1);
  directories_.assign(GetParam(), dir_.Path("ckpt"));
  directories_.back() = dir_.Path("elsewhere");
  fs::copy(dir_.Path("ckpt"), directories_.back(), fs::copy_options::recursive);
  fs::resize_file(directories_.back() + "/step-1-g1/rank-0.safetensors", 20);
  Run(2, [&](int, Saver& saver) {
    const auto outcome = saver.Restore({"step-1-g1"}, Blank());
    ASSERT_TRUE(outcome.ok());
    EXPECT_EQ(outcome->status.code(), absl::StatusCode::kInternal) << outcome->status;
    EXPECT_EQ(outcome->at_fault, std::vector<int64_t>{GetParam() - 1});
  });
  EXPECT_TRUE(fs::exists(path));
  EXPECT_TRUE(fs::exists(directories_.back() + "/step-1-g1"));
}

// The only one that could read it may be the one at fault.
TEST_P(SaverTest, WhatOneRankFindsDamagedAndNoOtherCanReadIsNotSetAside) {
  if (GetParam() == 1) return;
  const std::string path = SaveStep(1, 1);
  fs::resize_file(path + "/rank-0.safetensors", 20);
  directories_.assign(GetParam(), dir_.Path("elsewhere"));
  directories_[0] = dir_.Path("ckpt");
  Run(2, [&](int, Saver& saver) {
    const auto outcome = saver.Restore({"step-1-g1"}, Blank());
    ASSERT_TRUE(outcome.ok());
    EXPECT_EQ(outcome->status.code(), absl::StatusCode::kNotFound) << outcome->status;
    ASSERT_EQ(outcome->rejected.size(), 1u);
    EXPECT_FALSE(outcome->rejected[0].damaged);
  });
  EXPECT_TRUE(fs::exists(path));
}

// Two generations in one folder, as after a partition: the older one is stopped at any point before its rename.
TEST_P(SaverTest, AnOlderGenerationCommitsNothingOnceANewerOneHasBegun) {
  const std::string folder = dir_.Path("ckpt");
  ASSERT_TRUE(files::CreateDirectories(folder).ok());
  const Epoch older{2, "instance", "p"};
  const Epoch newer{3, "instance", "q"};
  // Begins the newer generation while the older one's file is being made durable.
  class Overtaken : public files::Disk {
   public:
    Overtaken(std::string folder, Epoch epoch) : folder_(std::move(folder)), epoch_(std::move(epoch)) {}
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

// The mount is gone: its empty directory is no place for a checkpoint.
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
  if (stray == 0) return;  // one rank sees what it sees
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
    if (rank == GetParam() - 1) return;  // its communicator goes
    EXPECT_EQ(saver.CheckSharedDirectory().status().code(), absl::StatusCode::kUnavailable);
    EXPECT_EQ(saver.Save({1, 0, 0, 0}, MakeState(1)).status().code(),
              absl::StatusCode::kUnavailable);
  });
}

}  // namespace
}  // namespace muster::checkpoint
