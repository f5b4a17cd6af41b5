#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/train/data/rank_data.h"
#include "worker/train/ranks/rank_threads.h"

namespace muster::train {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using tokenizer::Source;

using Sets = std::vector<TokenizedSet>;

const Source kUnknown;
const Source kA = {.path = "/nodes/1/a\nb.json", .hash = "0a"};
const Source kElsewhere = {.path = "/nodes/2/a.json", .hash = "0a"};
const Source kB = {.path = "/b.json", .hash = "0b"};

// Returns the result of TokenizerOfJob on each rank; sets[rank]: the rank's sets.
std::vector<absl::StatusOr<Source>> Find(const std::vector<Sets>& sets) {
  std::vector<absl::StatusOr<Source>> told(sets.size());
  RunRanks(static_cast<int>(sets.size()),
           [&](int rank, comm::Communicator& control, comm::Communicator&, comm::Communicator&) {
             told[rank] = TokenizerOfJob(sets[rank], control);
           });
  return told;
}

void ExpectAll(const std::vector<Sets>& sets, const Source& expected) {
  for (const auto& told : Find(sets)) {
    ASSERT_TRUE(told.ok()) << told.status();
    EXPECT_EQ(*told, expected);
  }
}

TEST(TokenizerOfJob, IsThatOfTheFirstRankThatKnowsOne) {
  ExpectAll({{{"data.train", kUnknown}}, {{"data.train", kA}}, {{"data.train", kElsewhere}}}, kA);
  ExpectAll({{{"data.train", kElsewhere}}, {{"data.train", kUnknown}}}, kElsewhere);
  ExpectAll({{{"data.train", kUnknown}, {"data.test", kB}}, {}}, kB);
}

TEST(TokenizerOfJob, IsUnknownWhereNoRankKnowsOne) {
  ExpectAll({{{"data.train", kUnknown}}, {}}, kUnknown);
}

TEST(TokenizerOfJob, TwoTokenizersOfTwoRanksAreAnErrorOnAllRanks) {
  for (const auto& told : Find({{{"data.train", kB}}, {}, {{"data.test", kElsewhere}}})) {
    EXPECT_EQ(told.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(told.status().message()),
                AllOf(HasSubstr("data.train of rank 0 with /b.json (XXH3 0b)"),
                      HasSubstr("data.test of rank 2 with /nodes/2/a.json (XXH3 0a)")));
  }
}

}  // namespace
}  // namespace muster::train
