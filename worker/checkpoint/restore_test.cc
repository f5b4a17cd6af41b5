// Restoring by all ranks together: which checkpoints are used, refused, or renamed as damaged.
#include <atomic>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "ATen/ops/arange.h"
#include "ATen/ops/zeros.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/activity/activity.h"
#include "common/files/disk.h"
#include "common/files/files.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/checkpoint/epoch.h"
#include "worker/checkpoint/saver.h"
#include "worker/checkpoint/saver_fixture.h"
#include "worker/checkpoint/state.h"
#include "worker/comm/local/local_group.h"

namespace muster::checkpoint {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

TEST_P(SaverTest, SlicesAreRestoredToSlicesAndToWholeTensors) {
  Run(1, [&](int rank, Saver& saver) {
    const auto saved = saver.Save({10, 0, 0, 0}, Sliced(rank, GetParam(), 1));
    ASSERT_TRUE(saved.ok() && saved->status.ok()) << saved->status;
    const State slices = Sliced(rank, GetParam(), 1000);
    const auto restored = saver.Restore({"step-10-g1"}, slices);
    ASSERT_TRUE(restored.ok() && restored->status.ok()) << restored->status;
    const State expected = Sliced(rank, GetParam(), 1);
    for (int i : {0, 1}) EXPECT_TRUE(slices.held[i].tensor.equal(expected.held[i].tensor)) << rank;

    const State whole = Replicated({{"param", "w", at::zeros({100}, at::kFloat)},
                                    {"exp_avg", "w", at::zeros({50}, at::kFloat)}},
                                   GetParam());
    const auto gathered = saver.Restore({"step-10-g1"}, whole);
    ASSERT_TRUE(gathered.ok() && gathered->status.ok()) << gathered->status;
    EXPECT_TRUE(whole.held[1].tensor.equal(at::arange(50, at::kFloat).add_(1))) << rank;
  });
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

// Only rank 0 reads the epoch, but all ranks stop.
TEST_P(SaverTest, ABrokenCheckpointIsNotSetAsideOnceANewerGenerationHasBegun) {
  const std::string path = SaveStep(1, 1);
  fs::resize_file(path + "/rank-0.safetensors", 20);
  ASSERT_TRUE(BeginEpoch(dir_.Path("ckpt"), {3, "instance", "q"}).ok());
  Run(2, [&](int, Saver& saver) {
    saver.SetEpoch({2, "instance", "p"});
    const auto outcome = saver.Restore({"step-1-g1"}, Blank());
    EXPECT_EQ(outcome.status().code(), absl::StatusCode::kAborted) << outcome.status();
    EXPECT_EQ(NewerGeneration(outcome.status()), 3);
  });
  EXPECT_TRUE(fs::exists(path));
}

// Such checkpoints may be readable again later.
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
    const auto outcome = saver.Restore({"step-7-g1", "step-4-g1", "step-3-g1", "step-2-g1"}, state);
    ASSERT_TRUE(outcome.ok());
    EXPECT_EQ(outcome->status.code(), absl::StatusCode::kNotFound);
    EXPECT_THAT(std::string(outcome->status.message()), HasSubstr("no checkpoint can be read in "));
    ASSERT_EQ(outcome->rejected.size(), 4u);
    for (const Rejected& rejected : outcome->rejected) {
      EXPECT_FALSE(rejected.damaged) << rejected.name;
    }
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
      const auto own = saver.Restore({{.name = "step-1-g1", .recorded = false}}, taken);
      ASSERT_TRUE(own.ok());
      EXPECT_THAT(std::string(own->status.message()),
                  HasSubstr("expected a checkpoint of job 'other', found one of job 'j'"));
      // The same checkpoint is used if the caller allows another job's.
      const auto told = saver.Restore({{.name = path, .recorded = false, .own = false}}, taken);
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

// The rank's view of the file system is at fault, not the checkpoint.
TEST_P(SaverTest, WhatOnlyOneRankMissesIsNotSetAside) {
  if (GetParam() == 1) return;  // the case needs two ranks
  const std::string path = SaveStep(1, 1);
  directories_.assign(GetParam(), dir_.Path("ckpt"));
  directories_.back() = dir_.Path("elsewhere");
  Run(2, [&](int, Saver& saver) {
    const State state = Blank();
    const auto outcome = saver.Restore({"step-1-g1"}, state);
    ASSERT_TRUE(outcome.ok());
    // The code is not NOT_FOUND, because the job would then start from step 0.
    EXPECT_EQ(outcome->status.code(), absl::StatusCode::kInternal) << outcome->status;
    EXPECT_EQ(outcome->at_fault, std::vector<int64_t>{GetParam() - 1});
    EXPECT_TRUE(outcome->rejected.empty());
    EXPECT_EQ(state.held[1].tensor.item<float>(), 0);
  });
  EXPECT_TRUE(fs::exists(path));
}

TEST_P(SaverTest, OneRanksBadReadIsNotDamage) {
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

// The only rank that could read the checkpoint may be the one at fault.
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

// A disk on which the file is whole, but the page cache of the node is bad.
class BadPageCache : public files::Disk {
 public:
  // `path` contains the data of the page cache, and `on_disk` the data of the disk.
  BadPageCache(std::string path, std::string on_disk)
      : path_(std::move(path)), on_disk_(std::move(on_disk)) {}

  absl::Status DropPages(const std::string& path) override {
    // The file is changed in place, because other ranks are listing the directory.
    if (path == path_) {
      std::call_once(dropped_, [this] { std::ofstream(path_, std::ios::binary) << on_disk_; });
    }
    return absl::OkStatus();
  }

 private:
  const std::string path_;
  const std::string on_disk_;
  std::once_flag dropped_;
};

TEST_P(SaverTest, DamageInThePageCacheOfTheOnlyNodeDoesNotCondemn) {
  SaveStep(1, 1);
  const std::string newest = SaveStep(2, 1);
  const std::string file = newest + "/rank-0.safetensors";
  const std::string whole = *files::ReadFile(file);
  std::string bad = whole;
  bad.back() ^= 1;
  std::ofstream(file, std::ios::binary) << bad;
  BadPageCache disk(file, whole);
  disk_ = &disk;
  Run(2, [&](int, Saver& saver) {
    const auto outcome = saver.Restore({"step-2-g1", "step-1-g1"}, Blank());
    ASSERT_TRUE(outcome.ok() && outcome->status.ok()) << outcome->status;
    EXPECT_EQ(outcome->name, "step-2-g1");
    EXPECT_TRUE(outcome->rejected.empty());
  });
  EXPECT_TRUE(fs::exists(newest));
  EXPECT_FALSE(fs::exists(newest + ".bad"));
}

class CountingDisk : public files::Disk {
 public:
  absl::Status DropPages(const std::string& path) override {
    ++drops;
    return Disk::DropPages(path);
  }
  std::atomic<int> drops = 0;
};

TEST_P(SaverTest, TheOnlyNodeDropsThePagesOfEveryFileOnceBeforeItCondemns) {
  const std::string path = SaveStep(1, 1);
  fs::resize_file(path + "/rank-0.safetensors", 20);
  CountingDisk disk;
  disk_ = &disk;
  Run(2, [&](int, Saver& saver) {
    const auto outcome = saver.Restore({"step-1-g1"}, Blank());
    ASSERT_TRUE(outcome.ok());
    ASSERT_EQ(outcome->rejected.size(), 1u);
    EXPECT_TRUE(outcome->rejected[0].damaged);
  });
  const int files = GetParam() + 1;  // shards and the manifest
  EXPECT_EQ(disk.drops.load(), GetParam() * files);
  EXPECT_TRUE(fs::exists(path + ".bad"));
}

TEST_P(SaverTest, DamageThatTwoNodesFindCounts) {
  if (GetParam() == 1) return;
  const std::string path = SaveStep(1, 1);
  fs::resize_file(path + "/rank-0.safetensors", 20);
  nodes_.assign(GetParam(), "a");
  nodes_.back() = "b";
  Run(2, [&](int, Saver& saver) {
    const auto outcome = saver.Restore({"step-1-g1"}, Blank());
    ASSERT_TRUE(outcome.ok());
    ASSERT_EQ(outcome->rejected.size(), 1u);
    EXPECT_TRUE(outcome->rejected[0].damaged);
  });
  EXPECT_TRUE(fs::exists(path + ".bad"));
}

// The damaged node may have any number of ranks.
TEST_P(SaverTest, DamageThatOneOfTwoNodesFindsDoesNotCondemn) {
  if (GetParam() == 1) return;
  const std::string path = SaveStep(1, 1);
  fs::resize_file(path + "/rank-0.safetensors", 20);
  nodes_.assign(GetParam(), "a");
  nodes_.back() = "b";
  directories_.assign(GetParam(), dir_.Path("ckpt"));
  directories_.back() = dir_.Path("elsewhere");
  Run(2, [&](int, Saver& saver) {
    const auto outcome = saver.Restore({"step-1-g1"}, Blank());
    ASSERT_TRUE(outcome.ok());
    EXPECT_EQ(outcome->status.code(), absl::StatusCode::kNotFound) << outcome->status;
    ASSERT_EQ(outcome->rejected.size(), 1u);
    EXPECT_FALSE(outcome->rejected[0].damaged);
  });
  EXPECT_TRUE(fs::exists(path));
  EXPECT_FALSE(fs::exists(path + ".bad"));
}

TEST_P(SaverTest, ANodeThatFindsDamageInWhatAnotherNodeReadsIsAtFault) {
  if (GetParam() == 1) return;
  const std::string path = SaveStep(1, 1);
  fs::copy(dir_.Path("ckpt"), dir_.Path("elsewhere"), fs::copy_options::recursive);
  fs::resize_file(path + "/rank-0.safetensors", 20);
  nodes_.assign(GetParam(), "a");
  nodes_.back() = "b";
  directories_.assign(GetParam(), dir_.Path("ckpt"));
  directories_.back() = dir_.Path("elsewhere");
  Run(2, [&](int, Saver& saver) {
    const auto outcome = saver.Restore({"step-1-g1"}, Blank());
    ASSERT_TRUE(outcome.ok());
    EXPECT_EQ(outcome->status.code(), absl::StatusCode::kInternal) << outcome->status;
    ASSERT_EQ(outcome->at_fault.size(), GetParam() - 1);
    EXPECT_EQ(outcome->at_fault.back(), GetParam() - 2);
  });
  EXPECT_TRUE(fs::exists(path));
}

TEST_P(SaverTest, AReadErrorThatPassesDoesNotCostTheCheckpoint) {
  SaveStep(1, 1);
  const std::string newest = SaveStep(2, 1);
  const std::string file = newest + "/rank-0.safetensors";
  fs::rename(file, dir_.Path("away"));
  fs::create_directory(file);  // reading gives EISDIR, also to root
  std::atomic<int> waits = 0;
  std::once_flag passed;
  wait_ = [&](absl::Duration duration) {
    EXPECT_EQ(duration, absl::Seconds(1));
    // All ranks have waited once before one of them waits again.
    if (waits.fetch_add(1) < GetParam()) return;
    std::call_once(passed, [&] {
      fs::remove(file);
      fs::rename(dir_.Path("away"), file);
    });
  };
  Run(2, [&](int, Saver& saver) {
    const auto outcome = saver.Restore({"step-2-g1", "step-1-g1"}, Blank());
    ASSERT_TRUE(outcome.ok() && outcome->status.ok()) << outcome->status;
    EXPECT_EQ(outcome->name, "step-2-g1");
    EXPECT_TRUE(outcome->rejected.empty());
  });
  EXPECT_EQ(waits.load(), 2 * GetParam());
}

TEST_P(SaverTest, AReadErrorThatStaysIsTriedTwiceMoreAndEachWaitCountsAsActivity) {
  const std::string path = SaveStep(1, 1);
  fs::remove(path + "/MANIFEST.json");
  fs::create_directory(path + "/MANIFEST.json");
  std::atomic<int> waits = 0;
  wait_ = [&](absl::Duration) { ++waits; };
  Run(2, [&](int, Saver& saver) {
    activity::Activity activity;
    const activity::Scope scope(&activity);
    const State state = Blank();
    ASSERT_TRUE(saver.Restore({"step-7-g1"}, state).ok());
    EXPECT_EQ(activity.count(), 0u) << "what is not there is not waited for";
    const auto outcome = saver.Restore({"step-1-g1"}, state);
    ASSERT_TRUE(outcome.ok());
    ASSERT_EQ(outcome->rejected.size(), 1u);
    EXPECT_FALSE(outcome->rejected[0].damaged);
    EXPECT_GE(activity.count(), 2u);
  });
  EXPECT_EQ(waits.load(), 2 * GetParam());
  EXPECT_TRUE(fs::exists(path));
}

}  // namespace
}  // namespace muster::checkpoint
