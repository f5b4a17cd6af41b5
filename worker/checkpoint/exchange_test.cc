#include "worker/checkpoint/exchange.h"

#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "worker/comm/local/local_group.h"

namespace muster::checkpoint {
namespace {

// The results that every rank receives if rank r sends results[r].
std::vector<std::vector<PartResult>> Exchanged(const std::vector<PartResult>& results) {
  auto group = comm::LocalGroup::Create(static_cast<int>(results.size()));
  std::vector<std::vector<PartResult>> heard(results.size());
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < results.size(); ++rank) {
    threads.emplace_back([&, rank, communicator = std::move(group[rank])] {
      auto all = Exchange(*communicator, results[rank], "test", 3);
      ASSERT_TRUE(all.ok()) << all.status();
      heard[rank] = *std::move(all);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return heard;
}

TEST(ExchangeTest, EveryRankReceivesSizesHashesAndErrorsInRankOrder) {
  const std::string hash = "99aa06d3014798d86001c324468d497f";
  const std::vector<PartResult> results = {manifest::FileRecord{"not sent", 5, hash},
                                           absl::DataLossError("broken"), manifest::FileRecord{}};
  for (const auto& heard : Exchanged(results)) {
    ASSERT_EQ(heard.size(), 3u);
    EXPECT_EQ(*heard[0], (manifest::FileRecord{"", 5, hash}));
    EXPECT_EQ(heard[1].status(), absl::DataLossError("broken"));
    EXPECT_EQ(*heard[2], manifest::FileRecord());
  }
}

TEST(ExchangeTest, LongErrorsAreCut) {
  const std::string text(1000, 'x');
  for (const auto& heard :
       Exchanged({absl::InternalError(text), manifest::FileRecord{"", 7, ""}})) {
    const std::string found(heard[0].status().message());
    EXPECT_GT(found.size(), 400u);
    EXPECT_EQ(found, text.substr(0, found.size()));
    EXPECT_EQ(heard[1]->size, 7u);
  }
}

TEST(ExchangeTest, EveryRankReceivesTheTextsOfAllWhateverTheirLengths) {
  const std::vector<std::string> texts = {"", std::string(1000, 'x') + "y", "z"};
  auto group = comm::LocalGroup::Create(3);
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    threads.emplace_back([&, rank, communicator = std::move(group[rank])] {
      EXPECT_EQ(*GatherTexts(*communicator, texts[rank], "test", 1), texts);
      EXPECT_EQ(*GatherTexts(*communicator, "", "test", 2), std::vector<std::string>(3));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(CombineTest, NamesTheRanksUnderTheFirstOnesCode) {
  EXPECT_TRUE(Combine({manifest::FileRecord(), manifest::FileRecord()}).ok());
  EXPECT_EQ(Combine({manifest::FileRecord(), absl::DataLossError("a"), absl::InternalError("b")}),
            absl::DataLossError("rank 1: a; rank 2: b"));
  const absl::Status many = Combine(std::vector<PartResult>(9, absl::InternalError("c")));
  EXPECT_EQ(std::string(many.message()), "rank 0: c; rank 1: c; rank 2: c; and 6 more");
}

}  // namespace
}  // namespace muster::checkpoint
