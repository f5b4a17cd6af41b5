#include "worker/checkpoint/verdict.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"

namespace muster::checkpoint {
namespace {

using Results = std::vector<PartResult>;
using Nodes = std::vector<std::string>;

PartResult Whole() { return manifest::FileRecord{}; }
PartResult Damage(const std::string& found = "x") {
  return absl::DataLossError("expected the hash h, found " + found);
}
PartResult Missing() { return absl::NotFoundError("no such file"); }
PartResult InputError() { return absl::InternalError("Input/output error"); }

// Judges ranks that read different parts at first, and next the blocks that other ranks could not
// read.
Verdict Judge(const std::vector<Results>& reads, const Nodes& nodes) {
  const bool none = std::none_of(reads.back().begin(), reads.back().end(),
                                 [](const PartResult& one) { return one.ok(); });
  return checkpoint::Judge(reads, nodes, {.complete = reads.size() > 1 || none});
}

TEST(VerdictTest, DamageCountsOnlyOnceEveryRankHasReadThatPart) {
  const Results different = {Damage("in one part"), Damage("in another")};
  const Comparison incomplete = {.complete = false, .common = false};
  EXPECT_EQ(checkpoint::Judge({different}, {"a", "b"}, incomplete), Verdict::kReadAgain);
  EXPECT_EQ(checkpoint::Judge({different, different}, {"a", "b"}, {}), Verdict::kDamaged);
  EXPECT_EQ(checkpoint::Judge({different, different, different}, {"a", "b"}, incomplete),
            Verdict::kUnread);
}

TEST(VerdictTest, WhatSomeRankReadsOfEachPartIsNotDamaged) {
  const Results different = {Damage("in one part"), Damage("in another")};
  const Comparison apart = {.complete = true, .common = false};
  EXPECT_EQ(checkpoint::Judge({different, different}, {"a", "b"}, apart), Verdict::kReadAgain);
  EXPECT_EQ(checkpoint::Judge({different, different, different}, {"a", "b"}, apart),
            Verdict::kUnread);
}

TEST(VerdictTest, WhatAllReadIsWholeHoweverOftenTheyHadToRead) {
  EXPECT_EQ(Judge({{Whole()}}, {"a"}), Verdict::kWhole);
  EXPECT_EQ(Judge({{Whole(), Whole()}}, {"a", "b"}), Verdict::kWhole);
  EXPECT_EQ(Judge({{Damage(), Whole()}, {Whole(), Whole()}}, {"a", "b"}), Verdict::kWhole);
}

TEST(VerdictTest, DamageThatTwoNodesFindCountsAtOnce) {
  EXPECT_EQ(Judge({{Damage(), Damage()}}, {"a", "b"}), Verdict::kDamaged);
  EXPECT_EQ(Judge({{Damage(), Damage("y"), Missing()}}, {"a", "b", "b"}), Verdict::kDamaged);
}

TEST(VerdictTest, DamageThatManyRanksOfOneOfSeveralNodesFindDoesNotCondemn) {
  const Nodes nodes = {"a", "a", "a", "b"};
  EXPECT_EQ(Judge({{Damage(), Damage(), Damage(), Missing()}}, nodes), Verdict::kUnread);
  const Results input_error = {Damage(), Damage(), Damage(), InputError()};
  EXPECT_EQ(Judge({input_error}, nodes), Verdict::kReadAgainLater);
  EXPECT_EQ(Judge({input_error, input_error, input_error}, nodes), Verdict::kUnread);
}

TEST(VerdictTest, WhereAnotherNodeReadsItTheOneThatFindsDamageTwiceIsAtFault) {
  const Nodes nodes = {"a", "a", "b"};
  const Results found = {Damage(), Damage(), Whole()};
  EXPECT_EQ(Judge({found}, nodes), Verdict::kReadAgain);
  EXPECT_EQ(Judge({found, found}, nodes), Verdict::kOthersReadIt);
}

TEST(VerdictTest, SoIsOneRankThatFindsDamageWhereAnotherOfItsNodeDoesNot) {
  const Results found = {Whole(), Damage()};
  EXPECT_EQ(Judge({found}, {"a", "a"}), Verdict::kReadAgain);
  EXPECT_EQ(Judge({found, found}, {"a", "a"}), Verdict::kOthersReadIt);
}

TEST(VerdictTest, TheOnlyNodeHasToFindTheSameDamageTwice) {
  EXPECT_EQ(Judge({{Damage()}}, {"a"}), Verdict::kReadAgain);
  EXPECT_EQ(Judge({{Damage()}, {Damage()}}, {"a"}), Verdict::kDamaged);
  const Results both = {Damage(), Damage()};
  EXPECT_EQ(Judge({both}, {"a", "a"}), Verdict::kReadAgain);
  EXPECT_EQ(Judge({both, both}, {"a", "a"}), Verdict::kDamaged);
}

TEST(VerdictTest, MemoryThatGivesAnotherHashAtEachReadDoesNotCondemn) {
  EXPECT_EQ(Judge({{Damage("x")}, {Damage("y")}}, {"a"}), Verdict::kReadAgain);
  EXPECT_EQ(Judge({{Damage("x")}, {Damage("y")}, {Damage("z")}}, {"a"}), Verdict::kUnread);
  EXPECT_EQ(Judge({{Damage("x")}, {Damage("y")}, {Damage("y")}}, {"a"}), Verdict::kDamaged);
}

// The only rank that could read the block may be the one at fault.
TEST(VerdictTest, DamageThatOnlyOneOfSeveralRanksOfTheOnlyNodeFindsDoesNotCondemn) {
  const Results found = {Damage(), Missing()};
  EXPECT_EQ(Judge({found, found}, {"a", "a"}), Verdict::kReadAgain);
  EXPECT_EQ(Judge({found, found, found}, {"a", "a"}), Verdict::kUnread);
}

TEST(VerdictTest, AnErrorThatMayPassIsTriedTwiceMore) {
  const Results found = {InputError(), InputError()};
  EXPECT_EQ(Judge({found}, {"a", "b"}), Verdict::kReadAgainLater);
  EXPECT_EQ(Judge({found, found}, {"a", "b"}), Verdict::kReadAgainLater);
  EXPECT_EQ(Judge({found, found, found}, {"a", "b"}), Verdict::kUnread);
  EXPECT_EQ(Judge({found, found, {Whole(), Whole()}}, {"a", "b"}), Verdict::kWhole);
  const Results one = {Whole(), InputError()};
  EXPECT_EQ(Judge({one, one}, {"a", "b"}), Verdict::kReadAgainLater);
  EXPECT_EQ(Judge({one, one, one}, {"a", "b"}), Verdict::kOthersReadIt);
}

TEST(VerdictTest, DamageThatIsFoundAfterAnErrorHasToBeFoundAgain) {
  EXPECT_EQ(Judge({{InputError()}, {Damage()}}, {"a"}), Verdict::kReadAgain);
  EXPECT_EQ(Judge({{InputError()}, {Damage()}, {Damage()}}, {"a"}), Verdict::kDamaged);
  EXPECT_EQ(Judge({{InputError()}, {InputError()}, {Damage()}}, {"a"}), Verdict::kUnread);
}

TEST(VerdictTest, WhatIsNotThereOrOfANewerProgramIsNotReadAgain) {
  EXPECT_EQ(Judge({{Missing(), Missing()}}, {"a", "a"}), Verdict::kUnread);
  const Results newer = {absl::UnimplementedError("has version 9")};
  EXPECT_EQ(Judge({newer}, {"a"}), Verdict::kUnread);
}

}  // namespace
}  // namespace muster::checkpoint
