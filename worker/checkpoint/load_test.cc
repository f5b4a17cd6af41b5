// A rank reads the blocks of its own ranges, and checks them.
#include "worker/checkpoint/load.h"

#include <unistd.h>

#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "ATen/ops/arange.h"
#include "ATen/ops/zeros.h"
#include "common/activity/activity.h"
#include "common/files/files.h"
#include "common/files/hash.h"
#include "common/files/temp_dir.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/checkpoint/save_in_turn.h"

namespace muster::checkpoint {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kInBlock = files::kHashedBlock / sizeof(float);
constexpr int64_t kElements = 5 * kInBlock;

// Elements [begin, end) of the only parameter, which two ranks write in halves.
State Part(int64_t begin, int64_t end, const at::Tensor& values) {
  StateBuilder builder(2);
  builder.AddSharded({"param", "w", {kElements}},
                     {{0, 0, kElements / 2}, {1, kElements / 2, kElements}});
  builder.Hold(begin, values);
  State state = builder.Build();
  EXPECT_EQ(values.numel(), end - begin);
  return state;
}

at::Tensor Numbers(int64_t begin, int64_t end) { return at::arange(begin, end, at::kFloat); }

class LoadTest : public ::testing::Test {
 protected:
  LoadTest() {
    const int64_t half = kElements / 2;
    EXPECT_TRUE(SaveInTurn(dir_.path(), 7,
                           {Part(0, half, Numbers(0, half)),
                            Part(half, kElements, Numbers(half, kElements))})
                    .ok());
  }

  std::string Shard(int rank) const {
    return dir_.Path("step-7-g1/rank-" + std::to_string(rank) + ".safetensors");
  }
  // Changes a bit of the element with this number of a rank's file.
  void Flip(int rank, int64_t element) {
    const auto reader = Reader::Open(dir_.Path("step-7-g1"));
    ASSERT_TRUE(reader.ok()) << reader.status();
    const int64_t at = reader->manifest().pieces[rank].offset + element * sizeof(float);
    std::fstream file(Shard(rank), std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(at);
    const char old = static_cast<char>(file.get());
    file.seekp(at);
    file.put(static_cast<char>(old ^ 1));
    ASSERT_TRUE(file.good());
  }
  absl::Status LoadPart(int64_t begin, int64_t end) {
    const at::Tensor values = at::zeros({end - begin}, at::kFloat);
    const absl::Status status = Load(dir_.Path("step-7-g1"), Part(begin, end, values)).status();
    if (status.ok()) EXPECT_TRUE(values.equal(Numbers(begin, end))) << begin << " to " << end;
    return status;
  }

  files::TempDir dir_;
};

TEST_F(LoadTest, RangesThatBeginAndEndAnywhereAreRead) {
  const int64_t half = kElements / 2;
  for (const auto& [begin, end] :
       std::vector<std::pair<int64_t, int64_t>>{{0, kElements},
                                                {0, 1},
                                                {1, 17},
                                                {half - 1, half + 1},
                                                {half, half + 5},
                                                {kElements - 1, kElements},
                                                {kInBlock - 40, 2 * kInBlock + 3}}) {
    EXPECT_TRUE(LoadPart(begin, end).ok());
  }
}

TEST_F(LoadTest, EachBlockThatIsReadCountsAsActivity) {
  activity::Activity activity;
  const activity::Scope scope(&activity);
  EXPECT_TRUE(LoadPart(0, kElements).ok());
  EXPECT_GE(activity.count(), 5u);
}

TEST_F(LoadTest, DamageInOtherBlocksIsNotReadAndThatInItsOwnIsNamed) {
  Flip(0, 2 * kInBlock);  // in its third block, as there is a header before the first element
  EXPECT_TRUE(LoadPart(0, kInBlock).ok());
  const absl::Status status = LoadPart(kInBlock, kElements);
  EXPECT_TRUE(absl::IsDataLoss(status));
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("rank-0.safetensors: bytes 8388608 to "),
                    HasSubstr(": expected the hash "), HasSubstr(", found ")));
}

TEST_F(LoadTest, WhatAnotherRankCouldNotReadIsReadToo) {
  Flip(1, 0);
  const auto reader = Reader::Open(dir_.Path("step-7-g1"));
  ASSERT_TRUE(reader.ok());
  Blocks failed;
  EXPECT_TRUE(reader->Read({}, Reader::Into::kNothing, {{"rank-0.safetensors", 0}}, &failed).ok());
  EXPECT_TRUE(failed.empty());
  const Blocks told = {{"rank-1.safetensors", 0}, {"rank-1.safetensors", 99}, {"unknown", 0}};
  EXPECT_TRUE(absl::IsDataLoss(reader->Read({}, Reader::Into::kNothing, told, &failed)));
  EXPECT_THAT(failed, ElementsAre(Block{"rank-1.safetensors", 0}));
}

TEST_F(LoadTest, AFileThatIsNotThereOrHasAnotherSizeIsFoundByWhomeverOpensIt) {
  ASSERT_EQ(truncate(Shard(1).c_str(), 100), 0);
  EXPECT_THAT(std::string(LoadPart(0, 1).message()), HasSubstr("rank-1.safetensors: expected "));
  unlink(Shard(1).c_str());
  EXPECT_TRUE(absl::IsNotFound(LoadPart(0, 1)));
}

}  // namespace
}  // namespace muster::checkpoint
