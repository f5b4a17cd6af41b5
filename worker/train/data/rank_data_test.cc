// Each rank checks its part of the files. An error of one rank is an error of all ranks.
#include "worker/train/data/rank_data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <deque>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/activity/activity.h"
#include "common/files/files.h"
#include "common/files/temp_dir.h"
#include "worker/train/ranks/rank_threads.h"

namespace muster::train {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kBlock = 1 << 16;  // tokens between two calls of activity::Moved()
constexpr models::InputSpec kTokens{
    .kind = models::InputSpec::Kind::kTokens, .vocab_size = 100, .context = 8};

class RankDataTest : public ::testing::Test {
 protected:
  std::string Write(const std::string& name, const std::vector<uint16_t>& tokens) {
    const std::string path = dir_.Path(name);
    EXPECT_TRUE(
        files::WriteAtomically(
            path, std::string(reinterpret_cast<const char*>(tokens.data()), 2 * tokens.size()))
            .ok());
    return path;
  }

  struct Opened {
    absl::Status status;
    std::vector<int64_t> own_sizes;
  };

  // Returns the result of OpenRankData on each rank, for the rank's configuration.
  std::vector<Opened> Open(const std::vector<DataConfig>& of_ranks) {
    std::vector<Opened> opened(of_ranks.size());
    moved_.clear();
    moved_.resize(of_ranks.size());
    RunRanks(static_cast<int>(of_ranks.size()),
             [&](int rank, comm::Communicator& control, comm::Communicator&, comm::Communicator&) {
               const activity::Scope scope(&moved_[rank]);
               const auto data = OpenRankData("data.train", of_ranks[rank], kTokens,
                                              data::Emptiness::kAllowed, control);
               opened[rank].status = data.status();
               if (data.ok()) opened[rank].own_sizes = data->own_sizes;
             });
    return opened;
  }
  std::vector<Opened> OpenShared(int ranks, const TokenFiles& files) {
    return Open(std::vector<DataConfig>(ranks, files));
  }

  static void ExpectOnAll(const std::vector<Opened>& opened, const absl::Status& expected) {
    for (const Opened& one : opened) {
      EXPECT_EQ(one.status.code(), expected.code());
      EXPECT_EQ(one.status.message(), expected.message());
    }
  }

  std::string Beyond(const std::string& path, int64_t index) const {
    return absl::StrCat("data.train: ", path, ": token 100 at byte offset ", 2 * index, " (index ",
                        index, ") is beyond the model's vocabulary of 100");
  }

  files::TempDir dir_;
  std::deque<activity::Activity> moved_;  // by rank: the number of blocks that the rank has read
};

TEST_F(RankDataTest, EachRankReadsItsPartOfTheFilesAndTogetherTheyReadAll) {
  const TokenFiles files{{Write("a", std::vector<uint16_t>(5 * kBlock, 99)),
                          Write("b", std::vector<uint16_t>(3 * kBlock))}};
  ExpectOnAll(OpenShared(4, files), absl::OkStatus());
  // Rank 2 has the last block of one file and the first block of the other file.
  for (const auto& moved : moved_) EXPECT_EQ(moved.count(), 2u);
  ExpectOnAll(OpenShared(1, files), absl::OkStatus());
  EXPECT_EQ(moved_[0].count(), 8u);
}

TEST_F(RankDataTest, ATokenBeyondTheVocabularyIsTheErrorOfAllRanksWhereverItIs) {
  std::vector<uint16_t> first(1000, 99), second(500, 99);
  const auto open = [&] {
    return OpenShared(3, TokenFiles{{Write("a", first), Write("b", second)}});
  };
  const std::string a = dir_.Path("a"), b = dir_.Path("b");
  for (const int64_t index : {0, 499, 500, 999}) {
    first[index] = 100;
    ExpectOnAll(open(), absl::InvalidArgumentError(
                            absl::StrCat("rank ", index / 500, ": ", Beyond(a, index))));
    first[index] = 99;
  }
  for (const int64_t index : {0, 499}) {
    second[index] = 100;
    ExpectOnAll(open(), absl::InvalidArgumentError("rank 2: " + Beyond(b, index)));
    second[index] = 99;
  }
  ExpectOnAll(open(), absl::OkStatus());
}

TEST_F(RankDataTest, TheFirstBadTokenIsNamedFirst) {
  std::vector<uint16_t> tokens(900, 99);
  tokens[310] = tokens[320] = tokens[880] = 100;
  const std::string a = Write("a", tokens);
  ExpectOnAll(OpenShared(3, TokenFiles{{a}}),
              absl::InvalidArgumentError(
                  absl::StrCat("rank 1: ", Beyond(a, 310), "; rank 2: ", Beyond(a, 880))));
}

TEST_F(RankDataTest, AFileThatOneRankCannotOpenEndsAll) {
  const DataConfig here = TokenFiles{{Write("a", std::vector<uint16_t>(100))}};
  const DataConfig nowhere = TokenFiles{{dir_.Path("none")}};
  const std::vector<Opened> opened = Open({here, nowhere, here});
  EXPECT_EQ(opened[1].status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(opened[0].status.code(), absl::StatusCode::kAborted) << "a consequence";
  for (const Opened& one : opened) {
    EXPECT_THAT(std::string(one.status.message()), HasSubstr("rank 1: data.train: "));
    EXPECT_THAT(std::string(one.status.message()), HasSubstr(dir_.Path("none")));
  }
  for (const Opened& one : Open({nowhere, nowhere})) {
    EXPECT_EQ(one.status.code(), absl::StatusCode::kNotFound);
    EXPECT_THAT(std::string(one.status.message()), ::testing::StartsWith("data.train: "));
  }
}

TEST_F(RankDataTest, OfItsOwnFileARankChecksEverything) {
  std::vector<uint16_t> tokens(3 * kBlock, 99);
  const std::string a = Write("a", std::vector<uint16_t>(81, 99));
  const std::string b = Write("b", tokens);
  const auto opened = OpenShared(2, TokenFiles{{a, b}, data::TokenType::kUint16, true});
  for (const Opened& one : opened) {
    EXPECT_TRUE(one.status.ok()) << one.status;
    EXPECT_EQ(one.own_sizes, (std::vector<int64_t>{10, (3 * kBlock - 1) / 8}));
  }
  EXPECT_EQ(moved_[0].count(), 1u);
  EXPECT_EQ(moved_[1].count(), 3u);
  tokens[7] = 100;
  Write("b", tokens);
  ExpectOnAll(OpenShared(2, TokenFiles{{a, b}, data::TokenType::kUint16, true}),
              absl::InvalidArgumentError("rank 1: " + Beyond(b, 7)));
}

}  // namespace
}  // namespace muster::train
