// Every change of a checkpoint's files is found, whoever reads it and wherever it is.
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "ATen/ops/rand.h"
#include "common/files/files.h"
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

// A committed checkpoint of `saved`, whose files are changed.
class ChangesTest : public testing::Test {
 protected:
  void Save(const State& saved) {
    ASSERT_TRUE(SaveInTurn(dir_.path(), 7, std::vector<State>(kRanks, saved)).ok());
    for (const auto& file : std::filesystem::directory_iterator(folder_)) {
      paths_.push_back(file.path());
    }
    ASSERT_EQ(paths_.size(), kRanks + 1u) << "the ranks' files and the manifest";
  }
  // Checks that Verify, and Load into `state`, both fail if the file has these bytes.
  void ExpectFound(const std::filesystem::path& path, const std::string& bytes, const State& state,
                   const std::string& what) {
    const std::string good = *files::ReadFile(path);
    ASSERT_NE(bytes, good);
    ASSERT_TRUE(files::WriteAtomically(path, bytes).ok());
    EXPECT_FALSE(manifest::Verify(folder_).ok()) << path << ": " << what;
    EXPECT_FALSE(Load(folder_, state).ok()) << path << ": " << what;
    ASSERT_TRUE(files::WriteAtomically(path, good).ok());
  }
  void ExpectGood(const State& state) {
    EXPECT_TRUE(manifest::Verify(folder_).ok());
    EXPECT_TRUE(Load(folder_, state).ok());
  }

  const files::TempDir dir_;
  const std::string folder_ = dir_.Path("step-7-g1");
  std::vector<std::filesystem::path> paths_;
};

TEST_F(ChangesTest, EachFlippedBitIsFound) {
  Save(MakeState());
  const State state = MakeState();
  ExpectGood(state);
  std::vector<uint64_t> ends;  // of the bytes of all files up to this one
  for (const auto& path : paths_) {
    ends.push_back((ends.empty() ? 0 : ends.back()) + std::filesystem::file_size(path));
  }
  std::mt19937_64 chance(1);
  for (int i = 0; i < kFlips; ++i) {
    const uint64_t place = chance() % ends.back();
    size_t number = 0;
    while (place >= ends[number]) ++number;
    const uint64_t byte = place - (number == 0 ? 0 : ends[number - 1]);
    std::fstream file(paths_[number], std::ios::in | std::ios::out | std::ios::binary);
    const auto flip = [&, bit = static_cast<char>(1 << (chance() % 8))] {
      file.seekg(byte);
      const char found = static_cast<char>(file.get());
      file.seekp(byte);
      file.put(static_cast<char>(found ^ bit)).flush();
    };
    flip();
    EXPECT_FALSE(manifest::Verify(folder_).ok()) << paths_[number] << ", byte " << byte;
    EXPECT_FALSE(Load(folder_, state).ok()) << paths_[number] << ", byte " << byte;
    flip();
  }
  ExpectGood(state);  // all bits are as they were
}

// The state is so small that some ranks' files contain only a header, of which no rank reads
// anything.
TEST_F(ChangesTest, EachFlippedBitOfAFileWithoutElementsIsFound) {
  const auto make = [] { return Replicated({{"param", "w", at::rand({4})}}, kRanks); };
  Save(make());
  const State state = make();
  size_t without = 0;
  for (const auto& path : paths_) {
    if (path.filename() == manifest::kFileName) continue;
    const std::string good = *files::ReadFile(path);
    without += good.find("param/w") == std::string::npos ? 1 : 0;
    for (size_t byte = 0; byte < good.size(); ++byte) {
      std::string bad = good;
      bad[byte] = static_cast<char>(bad[byte] ^ (1 << (byte % 8)));
      ExpectFound(path, bad, state, "byte " + std::to_string(byte));
    }
  }
  EXPECT_EQ(without, kRanks - 1u);
  ExpectGood(state);
}

TEST_F(ChangesTest, EachTruncationAndWhatIsAppendedIsFound) {
  Save(MakeState());
  const State state = MakeState();
  for (const auto& path : paths_) {
    const std::string good = *files::ReadFile(path);
    for (const size_t size : {size_t{0}, size_t{1}, good.size() / 2, good.size() - 1}) {
      ExpectFound(path, good.substr(0, size), state, "truncated");
    }
    for (const char* more : {" ", "\n", "x", "{}"}) {
      ExpectFound(path, good + more, state, "appended");
    }
    ExpectFound(path, std::string(good.size(), '\0'), state, "zeros");
  }
  ExpectGood(state);
}

TEST_F(ChangesTest, EachEditedOrRenamedMemberOfTheManifestIsFound) {
  Save(MakeState());
  const State state = MakeState();
  const std::string path = folder_ + "/" + manifest::kFileName;
  const std::string good = *files::ReadFile(path);
  const std::pair<const char*, const char*> edits[] = {
      {"\"step\": 7", "\"step\": 1007"},
      {"\"generation\": 1", "\"generation\": 2"},
      {"\"cursor\": 0", "\"cursor\": 64"},
      {"\"epoch\": 0", "\"epoch\": 1"},
      {"\"last_command\": 0", "\"last_command\": 9"},
      {"\"version\": 3", "\"version\": 2"},
      {"\"version\": 3", "\"version\": 1"},
      {"\"step\": 7", "\"steps\": 7,\n \"step\": 1007"},
      {"\"cursor\"", "\"cursors\""},
      {"\"steering\"", "\"steerings\""},
      {"\"manifest_xxh3_128\"", "\"manifest_xxh3_129\""},
      {"\"pieces\"", "\"pieces_\""},
      {"\"blocks_xxh3_128\"", "\"blocks\""},
      {"exp_avg", "exp_avh"},
  };
  for (const auto& [from, to] : edits) {
    const size_t at = good.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    std::string bad = good;
    ExpectFound(path, bad.replace(at, std::string(from).size(), to), state, to);
  }
  ExpectGood(state);
}

}  // namespace
}  // namespace muster::checkpoint
