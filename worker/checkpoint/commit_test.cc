// The commit rule without a communicator: ranks one after another, killed or failing at any call.
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "ATen/ops/arange.h"
#include "ATen/ops/full.h"
#include "ATen/ops/zeros_like.h"
#include "common/files/files.h"
#include "common/files/temp_dir.h"
#include "common/safetensors/safetensors.h"
#include "common/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/checkpoint/directory.h"
#include "worker/checkpoint/load.h"
#include "worker/checkpoint/save_in_turn.h"
#include "worker/checkpoint/shard.h"

namespace muster::checkpoint {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

std::vector<StateTensor> Tensors(float offset) {
  return {
      {"param", "w", at::arange(35, at::kFloat).add_(offset).view({5, 7})},
      {"exp_avg", "w", at::arange(35, at::kFloat).mul_(-1).add_(offset).view({5, 7})},
      {"step", "w", at::full({}, offset, at::kFloat)},
      {"param", "b", at::arange(3, at::kFloat).add_(100 + offset)},
      // The values exceed the whole numbers that float32 represents exactly. The tensor is long
      // enough to be cut.
      {"buffer", "n", at::arange(40, at::kLong).add_((int64_t{1} << 40) + 1 + int64_t(offset))}};
}

// The states of `ranks` ranks.
std::vector<State> MakeStates(float offset, int ranks) {
  return std::vector<State>(ranks, Replicated(Tensors(offset), ranks));
}

State MakeState(float offset) { return Replicated(Tensors(offset), 1); }

std::vector<StateTensor> EmptyTensors() {
  std::vector<StateTensor> tensors = Tensors(0);
  for (StateTensor& item : tensors) item.tensor = at::zeros_like(item.tensor).fill_(-7);
  return tensors;
}

State Empty() { return Replicated(EmptyTensors(), 1); }

bool Same(const State& a, const State& b) {
  for (size_t i = 0; i < a.held.size(); ++i) {
    if (a.held[i].tensor.scalar_type() != b.held[i].tensor.scalar_type()) return false;
    if (!a.held[i].tensor.equal(b.held[i].tensor)) return false;
  }
  return true;
}

TEST(CommitTest, RoundTripsAtEveryWorldSize) {
  for (int ranks : {1, 2, 3, 4, 9}) {
    files::TempDir dir;
    const std::vector<State> saved = MakeStates(3, ranks);
    ASSERT_TRUE(SaveInTurn(dir.path(), 5, saved).ok());
    EXPECT_FALSE(fs::exists(dir.Path("step-5-g1.tmp")));
    const State loaded = Empty();
    const auto manifest = Load(dir.Path("step-5-g1"), loaded);
    ASSERT_TRUE(manifest.ok()) << manifest.status();
    EXPECT_EQ(manifest->step, 5);
    EXPECT_TRUE(Same(saved[0], loaded)) << ranks;
  }
}

TEST(CommitTest, ShardsAreNearlyEven) {
  files::TempDir dir;
  const State state = Replicated({{"param", "w", at::arange(100000, at::kFloat)}}, 3);
  ASSERT_TRUE(SaveInTurn(dir.path(), 1, {state, state, state}).ok());
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_NEAR(fs::file_size(dir.Path("step-1-g1/" + ShardName(rank))), 400000.0 / 3, 300);
  }
}

// A disk that counts the calls and stops at one of them.
class BreakingDisk : public files::Disk {
 public:
  enum class Way { kFail, kKill };
  BreakingDisk(int at, Way way) : at_(at), way_(way) {}

  absl::Status Write(int fd, const void* data, size_t size, const std::string& path) override {
    if (Now()) {
      Disk::Write(fd, data, size / 2, path).IgnoreError();  // a torn write
      return Break(path);
    }
    return Disk::Write(fd, data, size, path);
  }
  absl::Status Sync(int fd, const std::string& path) override {
    return Now() ? Break(path) : Disk::Sync(fd, path);
  }
  absl::Status Rename(const std::string& from, const std::string& to) override {
    return Now() ? Break(to) : Disk::Rename(from, to);
  }
  absl::Status SyncDirectory(const std::string& path) override {
    return Now() ? Break(path) : Disk::SyncDirectory(path);
  }
  int calls() const { return calls_; }

 private:
  bool Now() { return calls_++ == at_; }
  absl::Status Break(const std::string& path) {
    if (way_ == Way::kKill) _exit(9);
    return files::ErrnoStatus(EIO, "break", path);
  }

  const int at_;
  const Way way_;
  int calls_ = 0;
};

int CallsOfASave() {
  files::TempDir dir;
  BreakingDisk counter(-1, BreakingDisk::Way::kFail);
  EXPECT_TRUE(SaveInTurn(dir.path(), 1, MakeStates(1, 2), counter).ok());
  return counter.calls();
}

TEST(CommitTest, AKillAtAnyCallLeavesTheLastGoodOneAndNothingThatLooksWhole) {
  const int calls = CallsOfASave();
  ASSERT_GT(calls, 10);
  for (int at = 0; at < calls; ++at) {
    files::TempDir dir;
    ASSERT_TRUE(SaveInTurn(dir.path(), 1, MakeStates(1, 2)).ok());
    const pid_t child = fork();
    if (child == 0) {
      BreakingDisk disk(at, BreakingDisk::Way::kKill);
      SaveInTurn(dir.path(), 2, MakeStates(2, 2), disk).IgnoreError();
      _exit(0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 9) << at;
    const State loaded = Empty();
    const bool whole = fs::exists(dir.Path("step-2-g1"));
    if (whole) {
      ASSERT_TRUE(Load(dir.Path("step-2-g1"), loaded).ok()) << at;
      EXPECT_TRUE(Same(loaded, MakeState(2)));
    }
    EXPECT_TRUE(RemoveLeftovers(dir.path(), /*generation=*/1).ok());
    ASSERT_TRUE(Load(dir.Path("step-1-g1"), loaded).ok()) << at;
    EXPECT_TRUE(Same(loaded, MakeState(1)));
    EXPECT_EQ(std::distance(fs::directory_iterator(dir.path()), {}), whole ? 2 : 1) << at;
    // The same step can be saved again unless the kill left a whole checkpoint.
    EXPECT_EQ(SaveInTurn(dir.path(), 2, MakeStates(2, 2)).ok(), !whole) << at;
  }
}

TEST(CommitTest, AFailureOfAnyCallIsAFailedSaveThatCanBeRepeated) {
  const int calls = CallsOfASave();
  for (int at = 0; at < calls; ++at) {
    files::TempDir dir;
    BreakingDisk disk(at, BreakingDisk::Way::kFail);
    const absl::Status status = SaveInTurn(dir.path(), 2, MakeStates(2, 2), disk);
    EXPECT_THAT(std::string(status.message()), HasSubstr("Input/output error")) << at;
    EXPECT_FALSE(fs::exists(dir.Path("step-2-g1"))) << at;
    EXPECT_TRUE(RemoveDirectory(dir.Path("step-2-g1.tmp")).ok());
    EXPECT_TRUE(SaveInTurn(dir.path(), 2, MakeStates(2, 2)).ok()) << at;
  }
}

TEST(CommitTest, AnExistingCheckpointIsNotReplaced) {
  files::TempDir dir;
  ASSERT_TRUE(SaveInTurn(dir.path(), 2, MakeStates(1, 2)).ok());
  const absl::Status again = SaveInTurn(dir.path(), 2, MakeStates(2, 2));
  EXPECT_EQ(again, absl::AlreadyExistsError(dir.Path("step-2-g1") + ": exists already"));
  const State loaded = Empty();
  ASSERT_TRUE(Load(dir.Path("step-2-g1"), loaded).ok());
  EXPECT_TRUE(Same(loaded, MakeState(1)));
}

TEST(CommitTest, IncompleteManifestsAreNotCommitted) {
  files::TempDir dir;
  ASSERT_TRUE(files::CreateDirectories(dir.Path("t")).ok());
  manifest::Manifest manifest;
  manifest.pieces = {{"param", "w", {4}, 0, 4, "rank-0.safetensors"}};
  EXPECT_EQ(Commit(dir.Path("t"), dir.Path("f"), manifest).code(), absl::StatusCode::kDataLoss);
  EXPECT_FALSE(fs::exists(dir.Path("f")));
}

// A disk that records the calls of a save: "sync rank-0.safetensors".
class RecordingDisk : public files::Disk {
 public:
  absl::Status Write(int fd, const void* data, size_t size, const std::string& path) override {
    if (calls.empty() || calls.back() != Call("write", path)) calls.push_back(Call("write", path));
    return Disk::Write(fd, data, size, path);
  }
  absl::Status Sync(int fd, const std::string& path) override {
    calls.push_back(Call("sync", path));
    return Disk::Sync(fd, path);
  }
  absl::Status Rename(const std::string& from, const std::string& to) override {
    calls.push_back(Call("rename to", to));
    return Disk::Rename(from, to);
  }
  absl::Status SyncDirectory(const std::string& path) override {
    calls.push_back(Call("sync directory", path));
    return Disk::SyncDirectory(path);
  }

  std::vector<std::string> calls;

 private:
  static std::string Call(const char* what, const std::string& path) {
    return std::string(what) + " " + fs::path(path).filename().string();
  }
};

// A crash of the machine loses unsynced data. So files are synced before the manifest, and
// everything before the rename to the final name.
TEST(CommitTest, EverythingIsSyncedBeforeItCounts) {
  files::TempDir dir;
  RecordingDisk disk;
  ASSERT_TRUE(SaveInTurn(dir.Path("ckpt"), 5, MakeStates(1, 2), disk).ok());
  EXPECT_THAT(disk.calls,
              ::testing::ElementsAre(
                  "write rank-0.safetensors", "sync rank-0.safetensors", "write rank-1.safetensors",
                  "sync rank-1.safetensors", "write MANIFEST.json", "sync MANIFEST.json",
                  "sync directory step-5-g1.tmp", "rename to step-5-g1", "sync directory ckpt"));
}

class DamagedLoadTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(SaveInTurn(dir_.path(), 1, MakeStates(1, 2)).ok()); }

  // Checks that loading fails with this code, and returns the message.
  std::string ErrorOf(absl::StatusCode code) {
    const State state = Empty();
    const absl::Status status = Load(path_, state).status();
    EXPECT_EQ(status.code(), code) << status;
    return std::string(status.message());
  }

  files::TempDir dir_;
  const std::string path_ = dir_.Path("step-1-g1");
};

TEST_F(DamagedLoadTest, EveryTruncationAndFlipOfAShardIsFound) {
  const std::string shard = path_ + "/rank-1.safetensors";
  const std::string good = *files::ReadFile(shard);
  for (size_t i = 0; i < good.size(); i += 7) {
    ASSERT_TRUE(files::WriteAtomically(shard, good.substr(0, i)).ok());
    EXPECT_THAT(ErrorOf(absl::StatusCode::kDataLoss), HasSubstr("rank-1.safetensors: expected"));
    std::string bad = good;
    bad[i] ^= 1;
    ASSERT_TRUE(files::WriteAtomically(shard, bad).ok());
    EXPECT_THAT(ErrorOf(absl::StatusCode::kDataLoss), HasSubstr("expected the hash"));
  }
}

TEST_F(DamagedLoadTest, MissingShardAndMissingManifestAreFound) {
  fs::remove(path_ + "/rank-0.safetensors");
  EXPECT_THAT(ErrorOf(absl::StatusCode::kNotFound), HasSubstr("rank-0.safetensors: No such file"));
  fs::remove(path_ + "/MANIFEST.json");
  EXPECT_THAT(ErrorOf(absl::StatusCode::kNotFound), HasSubstr("MANIFEST.json"));
}

TEST_F(DamagedLoadTest, AnotherModelIsRefusedWithEveryDifference) {
  std::vector<StateTensor> other = EmptyTensors();
  other[0].tensor = at::full({7, 5}, 1, at::kFloat);
  other[3].parameter = "bias";
  const std::string refusal =
      path_ +
      ": checkpoint of step 1 (model toy) does not fit: param/w: expected [7, 5], "
      "found [5, 7]; no param/bias; unexpected param/b";
  State state = Replicated(other, 1);
  EXPECT_EQ(Load(path_, state).status(), absl::FailedPreconditionError(refusal));
  state.held.clear();  // a rank without any part returns the same error
  EXPECT_EQ(Load(path_, state).status(), absl::FailedPreconditionError(refusal));
}

TEST_F(DamagedLoadTest, AnotherDtypeIsRefused) {
  std::vector<StateTensor> other = EmptyTensors();
  other[3].tensor = other[3].tensor.to(at::kLong);
  other[4].tensor = other[4].tensor.to(at::kFloat);
  EXPECT_EQ(Load(path_, Replicated(other, 1)).status(),
            absl::FailedPreconditionError(
                path_ + ": checkpoint of step 1 (model toy) does not fit: param/b: expected I64, "
                        "found F32; buffer/n: expected F32, found I64"));
}

TEST_F(DamagedLoadTest, ParametersAloneCanBeLoadedWhenTheRestMayBeIgnored) {
  const State some = Replicated({EmptyTensors()[0], EmptyTensors()[3]}, 1);
  EXPECT_FALSE(Load(path_, some).ok());
  ASSERT_TRUE(Load(path_, some, Surplus::kIgnore).ok());
  EXPECT_TRUE(some.held[0].tensor.equal(Tensors(1)[0].tensor));
  EXPECT_TRUE(some.held[1].tensor.equal(Tensors(1)[3].tensor));
}

TEST(ShardTest, StateThatDoesNotFitIsNeitherWrittenNorFilled) {
  files::TempDir dir;
  State state = MakeState(1);
  ASSERT_TRUE(SaveInTurn(dir.path(), 1, {state}).ok());
  state.held[0].tensor = at::arange(35, at::kFloat).view({7, 5}).t();
  EXPECT_EQ(WriteShard(dir.path(), 0, PartsByRank(state)[0], state).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(fs::exists(dir.Path(ShardName(0))));
  EXPECT_EQ(Load(dir.Path("step-1-g1"), state).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(ShardTest, FilesSayThatTheyHoldTensorsOfTorch) {
  files::TempDir dir;
  ASSERT_TRUE(SaveInTurn(dir.path(), 1, MakeStates(1, 1)).ok());
  const auto file = safetensors::File::Open(dir.Path("step-1-g1/rank-0.safetensors"));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->header().metadata, (safetensors::Metadata{{"format", "pt"}}));
}

}  // namespace
}  // namespace muster::checkpoint
