// Restoring by ranks that read different ranges: damage that one rank finds, and checkpoints that
// do not count yet.
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "ATen/ops/arange.h"
#include "absl/status/status.h"
#include "common/files/files.h"
#include "common/manifest/manifest.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/checkpoint/saver.h"
#include "worker/checkpoint/saver_fixture.h"
#include "worker/checkpoint/state.h"

namespace muster::checkpoint {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

// A state of which each rank holds, writes and reads its own slice.
State OwnSlice(int rank, int ranks, float values) {
  StateBuilder builder(ranks);
  std::vector<StateBuilder::Part> parts;
  for (int r = 0; r < ranks; ++r) parts.push_back({r, 50 * r / ranks, 50 * (r + 1) / ranks});
  builder.AddSharded({"exp_avg", "w", {50}}, parts);
  const int64_t begin = parts[rank].begin;
  builder.Hold(begin, at::arange(begin, parts[rank].end, at::kFloat).add_(values));
  return builder.Build();
}

// The other ranks read the blocks that one rank found damaged, so that the memory of one rank does
// not condemn the checkpoint.
TEST_P(SaverTest, DamageThatOnlyOneRankWouldReadIsReadByAllBeforeItCounts) {
  for (const int64_t step : {1, 2}) {
    Run(1, [&](int rank, Saver& saver) {
      const auto saved = saver.Save({step, 0, 0, 0}, OwnSlice(rank, GetParam(), step));
      ASSERT_TRUE(saved.ok() && saved->status.ok());
    });
  }
  const std::string newest = dir_.Path("ckpt/step-2-g1");
  const std::string file = newest + "/rank-" + std::to_string(GetParam() - 1) + ".safetensors";
  std::string bytes = *files::ReadFile(file);
  bytes.back() ^= 1;
  std::ofstream(file, std::ios::binary) << bytes;
  Run(2, [&](int rank, Saver& saver) {
    const State state = OwnSlice(rank, GetParam(), 1000);
    const auto outcome = saver.Restore({"step-2-g1", "step-1-g1"}, state);
    ASSERT_TRUE(outcome.ok() && outcome->status.ok()) << outcome->status;
    EXPECT_EQ(outcome->name, "step-1-g1");
    ASSERT_EQ(outcome->rejected.size(), 1u);
    EXPECT_TRUE(outcome->rejected[0].damaged);
    EXPECT_THAT(outcome->rejected[0].reason, HasSubstr("rank 0: ")) << "it read it, too";
    EXPECT_TRUE(state.held[0].tensor.equal(OwnSlice(rank, GetParam(), 1).held[0].tensor)) << rank;
  });
  EXPECT_TRUE(fs::exists(newest + ".bad"));
}

// Each of two ranks sees another block as damaged, so each block is whole for some rank.
TEST_P(SaverTest, DifferentDamageOnDifferentRanksDoesNotCondemn) {
  if (GetParam() == 1) return;
  Run(1, [&](int rank, Saver& saver) {
    ASSERT_TRUE(saver.Save({1, 0, 0, 0}, OwnSlice(rank, GetParam(), 1))->status.ok());
  });
  directories_.assign(GetParam(), dir_.Path("ckpt"));
  nodes_.assign(GetParam(), "a");
  const int last = GetParam() - 1;
  directories_[last] = dir_.Path("elsewhere");
  nodes_[last] = "b";
  fs::copy(dir_.Path("ckpt"), directories_[last], fs::copy_options::recursive);
  for (const int rank : {0, last}) {
    const std::string file =
        directories_[rank] + "/step-1-g1/rank-" + std::to_string(rank) + ".safetensors";
    std::string bytes = *files::ReadFile(file);
    bytes.back() ^= 1;
    std::ofstream(file, std::ios::binary) << bytes;
  }
  Run(2, [&](int rank, Saver& saver) {
    const auto outcome = saver.Restore({"step-1-g1"}, OwnSlice(rank, GetParam(), 1000));
    ASSERT_TRUE(outcome.ok());
    for (const Rejected& rejected : outcome->rejected) EXPECT_FALSE(rejected.damaged);
  });
  EXPECT_TRUE(fs::exists(dir_.Path("ckpt/step-1-g1")));
}

TEST_P(SaverTest, OfACheckpointThatDoesNotCountNothingIsTakenUnlessAllOfItIsWhole) {
  const std::string path = SaveStep(1, 1);
  const std::string file = path + "/rank-" + std::to_string(GetParam() - 1) + ".safetensors";
  std::string bytes = *files::ReadFile(file);
  bytes.back() ^= 1;
  std::ofstream(file, std::ios::binary) << bytes;
  Run(2, [&](int, Saver& saver) {
    const State state = Blank();
    bool asked = false;
    const auto outcome =
        saver.Restore({{.name = "step-1-g1", .recorded = false}}, [&](const manifest::Manifest&) {
          asked = true;
          return state;
        });
    ASSERT_TRUE(outcome.ok());
    EXPECT_EQ(outcome->status.code(), absl::StatusCode::kNotFound) << outcome->status;
    EXPECT_FALSE(asked);
    for (const HeldPiece& piece : state.held)
      EXPECT_EQ(piece.tensor.count_nonzero().item<int64_t>(), 0);
  });
  EXPECT_TRUE(fs::exists(path)) << "it is not set aside";
}

}  // namespace
}  // namespace muster::checkpoint
