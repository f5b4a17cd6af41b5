// Checkpoints that some ranks write in parts and other numbers of ranks read in other parts.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "ATen/core/Formatting.h"
#include "ATen/core/Tensor.h"
#include "ATen/ops/arange.h"
#include "ATen/ops/full.h"
#include "common/files/files.h"
#include "common/files/temp_dir.h"
#include "common/manifest/manifest.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/checkpoint/load.h"
#include "worker/checkpoint/save_in_turn.h"
#include "worker/checkpoint/shard.h"

namespace muster::checkpoint {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

constexpr int64_t kBlank = -7;

// A disk that does not sync, because nothing must survive the test.
class UnsyncedDisk : public files::Disk {
 public:
  absl::Status Sync(int, const std::string&) override { return absl::OkStatus(); }
  absl::Status SyncDirectory(const std::string&) override { return absl::OkStatus(); }
};

// The items, and the flattened values that they must have.
struct Truth {
  std::vector<StateItem> items;
  std::vector<at::Tensor> values;
};

class Random {
 public:
  explicit Random(uint32_t seed) : engine_(seed) {}
  // A random number in [0, limit).
  int64_t Below(int64_t limit) { return static_cast<int64_t>(engine_() % limit); }
  template <typename T>
  void Shuffle(std::vector<T>& all) {
    for (size_t i = all.size(); i > 1; --i) std::swap(all[i - 1], all[Below(i)]);
  }

 private:
  std::mt19937 engine_;
};

Truth RandomTruth(Random& random) {
  Truth truth;
  const int64_t count = random.Below(10);
  for (int64_t i = 0; i < count; ++i) {
    StateItem item{random.Below(2) == 0 ? "param" : "exp_avg", "p" + std::to_string(i)};
    const int64_t dimensions = random.Below(4);  // 0: a scalar
    for (int64_t d = 0; d < dimensions; ++d) item.shape.push_back(random.Below(8));
    if (random.Below(4) == 0) item.type = at::kLong;
    // The values are whole numbers that float32 represents exactly, different in all items.
    truth.values.push_back(at::arange(Elements(item), at::kLong).add_(1 + 1000 * i).to(item.type));
    truth.items.push_back(std::move(item));
  }
  return truth;
}

// Returns writers for each item in up to `ranks` parts of random sizes, by random ranks, in no
// order.
sharding::Placement RandomWriters(const Truth& truth, int ranks, Random& random) {
  sharding::Placement written;
  written.holders.resize(ranks);
  for (size_t item = 0; item < truth.items.size(); ++item) {
    const int64_t elements = Elements(truth.items[item]);
    written.elements.push_back(elements);
    std::vector<int64_t> writers(ranks), ends;
    std::iota(writers.begin(), writers.end(), 0);
    random.Shuffle(writers);
    for (int64_t cuts = random.Below(ranks); cuts > 0; --cuts)
      ends.push_back(random.Below(elements + 1));
    ends.push_back(elements);
    std::sort(ends.begin(), ends.end());
    int64_t begin = 0;
    for (size_t i = 0; i < ends.size(); ++i) {
      if (ends[i] == begin) continue;
      written.holders[writers[i]].push_back({static_cast<int64_t>(item), begin, ends[i]});
      begin = ends[i];
    }
  }
  for (auto& ranges : written.holders) random.Shuffle(ranges);
  return written;
}

// Returns blank pieces on `rank`: of the written items, the written part and perhaps more; of other
// items a part, an empty part, or nothing.
State BlankState(const Truth& truth, const sharding::Placement& written, int rank, Random& random) {
  State state{truth.items, written, {}};
  for (size_t item = 0; item < truth.items.size(); ++item) {
    const int64_t elements = Elements(truth.items[item]);
    int64_t begin = random.Below(elements + 1);
    int64_t end = begin + random.Below(elements - begin + 1);
    bool writes = false;
    for (const sharding::Range& range : written.holders[rank]) {
      if (range.parameter != static_cast<int64_t>(item)) continue;
      writes = true;
      begin = random.Below(range.begin + 1);
      end = range.end + random.Below(elements - range.end + 1);
    }
    if (!writes && random.Below(3) == 0) continue;
    at::Tensor tensor = at::full({end - begin}, kBlank, truth.items[item].type);
    if ((end - begin) % 2 == 0 && random.Below(2) == 0)
      tensor = tensor.view({2, (end - begin) / 2});
    state.held.push_back({item, begin, tensor});
  }
  random.Shuffle(state.held);
  return state;
}

void ExpectTrue(const State& state, const Truth& truth) {
  for (const HeldPiece& piece : state.held) {
    const at::Tensor expected =
        truth.values[piece.item].slice(0, piece.begin, piece.begin + piece.tensor.numel());
    EXPECT_TRUE(piece.tensor.flatten().equal(expected))
        << Name(state.items[piece.item]) << " from " << piece.begin << ": " << piece.tensor;
  }
}

TEST(ReshardingTest, AnyRanksLoadWhatAnyOthersWroteElementForElement) {
  UnsyncedDisk disk;
  for (int seed = 0; seed < 150; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const Truth truth = RandomTruth(random);
    files::TempDir dir;
    // The first ranks start with the values; each following group loads the checkpoint of the
    // previous one.
    for (int step = 0; step < 4; ++step) {
      const int ranks = 1 + random.Below(5);
      const sharding::Placement written = RandomWriters(truth, ranks, random);
      std::vector<State> states;
      for (int rank = 0; rank < ranks; ++rank) {
        states.push_back(BlankState(truth, written, rank, random));
        if (step == 0) {
          for (const HeldPiece& piece : states[rank].held) {
            const at::Tensor& values = truth.values[piece.item];
            piece.tensor.copy_(values.slice(0, piece.begin, piece.begin + piece.tensor.numel())
                                   .view(piece.tensor.sizes()));
          }
        } else {
          const auto loaded = Load(dir.Path(FinalName(step - 1, 1)), states[rank]);
          ASSERT_TRUE(loaded.ok()) << loaded.status();
        }
        ExpectTrue(states[rank], truth);
      }
      const absl::Status saved = SaveInTurn(dir.path(), step, states, disk);
      ASSERT_TRUE(saved.ok()) << saved;
    }
  }
}

// Every rank holds everything, as in ddp, with the same bytes wherever a tensor is.
TEST(ReshardingTest, RanksThatHoldAllLoadWhatSlicesWroteAndTheOtherWayRound) {
  files::TempDir dir;
  const at::Tensor values = at::arange(100, at::kFloat);
  const auto slices = [](int rank, const at::Tensor& all) {
    StateBuilder builder(3);
    builder.AddSharded({"exp_avg", "w", {10, 10}},
                       {{0, 0, 48}, {2, 48, 100}});  // rank 1 has padding only
    if (rank == 0) builder.Hold(0, all.slice(0, 0, 48).clone());
    if (rank == 2) builder.Hold(48, all.slice(0, 48, 100).clone());
    return builder.Build();
  };
  ASSERT_TRUE(
      SaveInTurn(dir.path(), 1, {slices(0, values), slices(1, values), slices(2, values)}).ok());
  const State whole = Replicated({{"exp_avg", "w", at::full({10, 10}, kBlank, at::kFloat)}}, 2);
  ASSERT_TRUE(Load(dir.Path("step-1-g1"), whole).ok());
  EXPECT_TRUE(whole.held[0].tensor.flatten().equal(values));

  ASSERT_TRUE(SaveInTurn(dir.path(), 2, {whole, whole}).ok());
  for (int rank = 0; rank < 3; ++rank) {
    const State blank = slices(rank, at::full({100}, kBlank, at::kFloat));
    ASSERT_TRUE(Load(dir.Path("step-2-g1"), blank).ok());
    const State expected = slices(rank, values);
    ASSERT_EQ(blank.held.size(), expected.held.size());
    for (size_t i = 0; i < blank.held.size(); ++i) {
      EXPECT_TRUE(blank.held[i].tensor.equal(expected.held[i].tensor)) << rank;
    }
  }
}

// Three ranks with slices of three items, of uneven sizes.
class BrokenShardsTest : public ::testing::Test {
 protected:
  static State Slices(int rank, int64_t offset) {
    const auto values = [&](int64_t begin, int64_t end) {
      return at::arange(begin, end, at::kLong).add_(offset).to(at::kFloat);
    };
    StateBuilder builder(3);
    builder.AddReplicated("param", "w", values(0, 40));
    builder.AddSharded({"exp_avg", "w", {40}}, {{0, 0, 16}, {1, 16, 32}, {2, 32, 40}});
    builder.Hold(16 * rank, values(16 * rank, rank == 2 ? 40 : 16 * rank + 16));
    builder.AddSharded({"step", "w", {}}, {{1, 0, 1}});
    if (rank > 0) builder.Hold(0, values(0, 1).view(at::IntArrayRef{}));
    return builder.Build();
  }

  void SetUp() override {
    const absl::Status saved =
        SaveInTurn(dir_.path(), 1, {Slices(0, 1), Slices(1, 1), Slices(2, 1)});
    ASSERT_TRUE(saved.ok()) << saved;
  }

  // Checks the error of every rank. Every rank has elements in each file, and each file is one
  // block.
  void ExpectBroken(const ::testing::Matcher<std::string>& message) {
    for (int rank = 0; rank < 3; ++rank) {
      const absl::Status status = Load(path_, Slices(rank, 500)).status();
      EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
      EXPECT_THAT(std::string(status.message()), message);
    }
  }
  // Checks changes that no hash shows; only a check of all headers finds them.
  void ExpectOtherHeaders(const ::testing::Matcher<std::string>& message) {
    const absl::Status status = manifest::Verify(path_).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
    EXPECT_THAT(std::string(status.message()), message);
  }

  files::TempDir dir_;
  const std::string path_ = dir_.Path("step-1-g1");
};

TEST_F(BrokenShardsTest, WholeOnesAreLoaded) {
  for (int rank = 0; rank < 3; ++rank) {
    const State state = Slices(rank, 500);
    ASSERT_TRUE(Load(path_, state).ok());
    const State saved = Slices(rank, 1);
    for (size_t i = 0; i < state.held.size(); ++i) {
      EXPECT_TRUE(state.held[i].tensor.equal(saved.held[i].tensor)) << rank;
    }
  }
}

TEST_F(BrokenShardsTest, EveryTruncationAndFlipOfAnyShardIsFoundByAllRanks) {
  for (int writer = 0; writer < 3; ++writer) {
    const std::string shard = path_ + "/" + ShardName(writer);
    const std::string good = *files::ReadFile(shard);
    for (size_t i = 0; i < good.size(); i += 13) {
      ASSERT_TRUE(files::WriteAtomically(shard, good.substr(0, i)).ok());
      ExpectBroken(HasSubstr(ShardName(writer) + ": expected"));
      std::string bad = good;
      bad[i] ^= 0x10;
      ASSERT_TRUE(files::WriteAtomically(shard, bad).ok());
      ExpectBroken(
          AllOf(HasSubstr(ShardName(writer) + ": bytes 0 to "), HasSubstr("expected the hash")));
    }
    ASSERT_TRUE(files::WriteAtomically(shard, good).ok());
  }
}

TEST_F(BrokenShardsTest, SwappedShardsAreFound) {
  const std::string first = path_ + "/" + ShardName(0), second = path_ + "/" + ShardName(1);
  const std::string of_first = *files::ReadFile(first), of_second = *files::ReadFile(second);
  ASSERT_TRUE(files::WriteAtomically(first, of_second).ok());
  ASSERT_TRUE(files::WriteAtomically(second, of_first).ok());
  ExpectBroken(HasSubstr("rank-0.safetensors: expected"));
}

TEST_F(BrokenShardsTest, EveryPieceThatIsNotWhatAShardHoldsIsFound) {
  const manifest::Manifest good = *manifest::Read(path_);
  using Edit = std::function<void(std::vector<manifest::Piece>&, size_t)>;
  const std::map<std::string, Edit> edits = {
      {"begins earlier", [](auto& pieces, size_t i) { --pieces[i].begin; }},
      {"begins later", [](auto& pieces, size_t i) { ++pieces[i].begin; }},
      {"ends earlier", [](auto& pieces, size_t i) { --pieces[i].end; }},
      {"ends later", [](auto& pieces, size_t i) { ++pieces[i].end; }},
      {"lies further on", [](auto& pieces, size_t i) { ++pieces[i].begin, ++pieces[i].end; }},
      {"is missing", [](auto& pieces, size_t i) { pieces.erase(pieces.begin() + i); }},
      {"appears twice", [](auto& pieces, size_t i) { pieces.push_back(pieces[i]); }},
      {"has another dtype", [](auto& pieces, size_t i) { pieces[i].dtype = "I64"; }},
      {"has another shape", [](auto& pieces, size_t i) { pieces[i].shape.push_back(2); }},
      {"is elsewhere", [](auto& pieces, size_t i) { pieces[i].file = "rank-7.safetensors"; }},
      {"is another's",
       [](auto& pieces, size_t i) {
         pieces[i].file = ShardName(pieces[i].file == ShardName(0) ? 1 : 0);
       }},
  };
  ASSERT_EQ(good.pieces.size(), 7u);  // param and exp_avg in three files, step in one
  for (const auto& [what, edit] : edits) {
    for (size_t i = 0; i < good.pieces.size(); ++i) {
      SCOPED_TRACE(manifest::EntryName(good.pieces[i]) + " of " + good.pieces[i].file + " " + what);
      manifest::Manifest bad = good;
      edit(bad.pieces, i);
      ASSERT_TRUE(manifest::Write(bad, path_).ok());
      // A missing tensor means another model, not damage.
      if (what == "is missing" && good.pieces[i].slot == "step") {
        EXPECT_EQ(Load(path_, Slices(0, 500)).status().code(),
                  absl::StatusCode::kFailedPrecondition);
        continue;
      }
      ExpectOtherHeaders(
          AnyOf(HasSubstr(good.pieces[i].slot + "/w"), HasSubstr("rank-7.safetensors")));
    }
  }
}

TEST_F(BrokenShardsTest, BordersThatMovedBetweenTwoShardsAreFound) {
  manifest::Manifest bad = *manifest::Read(path_);
  for (manifest::Piece& piece : bad.pieces) {
    if (piece.slot != "exp_avg") continue;
    if (piece.begin == 16) piece.begin = 20;
    if (piece.end == 16) piece.end = 20;
  }
  ASSERT_TRUE(manifest::Write(bad, path_).ok());
  ExpectOtherHeaders(HasSubstr("exp_avg/w: 20 elements of F32 at byte "));
}

}  // namespace
}  // namespace muster::checkpoint
