// Every changed bit of a checkpoint is found, whoever reads it and wherever it lies.
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "ATen/ops/rand.h"
#include "common/files/temp_dir.h"
#include "common/manifest/manifest.h"
#include "worker/checkpoint/load.h"
#include "worker/checkpoint/save_in_turn.h"

namespace muster::checkpoint {
namespace {

constexpr int kFlips = 1000;
constexpr int kRanks = 3;

State MakeState() {
  std::vector<StateTensor> tensors;
  for (const char* const name : {"a.weight", "a.bias", "b.weight"}) {
    for (const char* const slot : {"param", "exp_avg"}) {
      tensors.push_back({slot, name, at::rand({41, 17})});
    }
  }
  return Replicated(tensors, kRanks);
}

TEST(BitFlipsTest, EachIsFoundByVerifyAndByLoading) {
  const files::TempDir dir;
  const State saved = MakeState();
  ASSERT_TRUE(SaveInTurn(dir.path(), 7, {saved, saved, saved}).ok());
  const std::string folder = dir.Path("step-7-g1");
  const State state = MakeState();
  std::vector<std::filesystem::path> paths;
  std::vector<uint64_t> ends;  // of the bytes of all files up to this one
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    paths.push_back(file.path());
    ends.push_back((ends.empty() ? 0 : ends.back()) + file.file_size());
  }
  ASSERT_EQ(paths.size(), kRanks + 1u);
  ASSERT_TRUE(Load(folder, state).ok());
  std::mt19937_64 chance(1);
  for (int i = 0; i < kFlips; ++i) {
    const uint64_t place = chance() % ends.back();
    size_t number = 0;
    while (place >= ends[number]) ++number;
    const uint64_t byte = place - (number == 0 ? 0 : ends[number - 1]);
    std::fstream file(paths[number], std::ios::in | std::ios::out | std::ios::binary);
    const auto flip = [&, bit = static_cast<char>(1 << (chance() % 8))] {
      file.seekg(byte);
      const char found = static_cast<char>(file.get());
      file.seekp(byte);
      file.put(static_cast<char>(found ^ bit)).flush();
    };
    flip();
    EXPECT_FALSE(manifest::Verify(folder).ok()) << paths[number] << ", byte " << byte;
    // A header of a shard does not matter to who reads the blocks of tensors, unless they share
    // one. Here each file is one block.
    EXPECT_FALSE(Load(folder, state).ok()) << paths[number] << ", byte " << byte;
    flip();
  }
  EXPECT_TRUE(manifest::Verify(folder).ok()) << "all bits are as they were";
  EXPECT_TRUE(Load(folder, state).ok());
}

}  // namespace
}  // namespace muster::checkpoint
