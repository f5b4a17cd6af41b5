#include "common/sharding/placement.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "common/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::sharding {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string Show(const Move& m) {
  return std::to_string(m.from) + "@" + std::to_string(m.from_offset) + "->" +
         std::to_string(m.to) + "@" + std::to_string(m.to_offset) + " " +
         std::to_string(m.parameter) + "[" + std::to_string(m.begin) + "," + std::to_string(m.end) +
         ")";
}

// Returns one text for each move, "from@offset->to@offset parameter[begin,end)", or the error.
std::vector<std::string> Moves(const Placement& from, const Placement& to) {
  const auto moves = Redistribute(from, to);
  if (!moves.ok()) return {Message(moves.status())};
  std::vector<std::string> shown;
  for (const Move& move : *moves) shown.push_back(Show(move));
  return shown;
}

TEST(Replicated, EveryHolderHasAllEndToEnd) {
  const Placement placement = Replicated({3, 0, 5}, 2);
  EXPECT_THAT(placement.elements, ElementsAre(3, 0, 5));
  EXPECT_THAT(placement.holders[0], ElementsAre(Range{0, 0, 3, 0}, Range{2, 0, 5, 3}));
  EXPECT_EQ(placement.holders[1], placement.holders[0]);
}

TEST(Only, TheRangesOfTheChosenParametersStayWithTheirHolders) {
  const Placement placement = Only(CutEvenly({40, 1, 30}, 2, 16), {false, true, true});
  EXPECT_EQ(placement.elements, (std::vector<int64_t>{40, 1, 30}));
  EXPECT_THAT(placement.holders[0], ElementsAre());
  EXPECT_THAT(placement.holders[1], ElementsAre(Range{1, 0, 1, 8}, Range{2, 0, 30, 9}));
}

TEST(CutEvenly, PartsEndAtMultiplesOfTheAlignment) {
  const Placement placement = CutEvenly({40, 1, 30}, 2, 16);  // 71 elements, 5 grains
  EXPECT_THAT(placement.holders[0], ElementsAre(Range{0, 0, 32, 0}));
  EXPECT_THAT(placement.holders[1],
              ElementsAre(Range{0, 32, 40, 0}, Range{1, 0, 1, 8}, Range{2, 0, 30, 9}));
  const Placement finer = CutEvenly({40, 1, 30}, 2, 1);
  EXPECT_THAT(finer.holders[0], ElementsAre(Range{0, 0, 35, 0}));
}

TEST(CutEvenly, MoreHoldersThanElementsLeavesSomeWithNothing) {
  const Placement placement = CutEvenly({3, 0}, 4, 16);
  EXPECT_THAT(placement.holders,
              ElementsAre(IsEmpty(), IsEmpty(), IsEmpty(), ElementsAre(Range{0, 0, 3, 0})));
  EXPECT_EQ(CutEvenly({}, 3, 16).holders.size(), 3u);
}

TEST(CutEvenly, SumsThatDoNotFitTheirProductWithTheHoldersAreCutRight) {
  const int64_t huge = int64_t{1} << 61;
  const Placement placement = CutEvenly({huge, huge}, 4, 16);
  EXPECT_THAT(placement.holders[1], ElementsAre(Range{0, huge / 2, huge, 0}));
  EXPECT_THAT(placement.holders[3], ElementsAre(Range{1, huge / 2, huge, 0}));
}

TEST(CutEvenly, EveryElementExactlyOnceInEvenPartsForRandomShapes) {
  std::mt19937 random(1);
  for (int trial = 0; trial < 2000; ++trial) {
    std::vector<int64_t> elements(random() % 12);
    for (int64_t& n : elements) n = random() % 4 == 0 ? random() % 2 : random() % 200;
    const int64_t parts = 1 + random() % 6;
    const Placement placement = CutEvenly(elements, parts, 16);
    ASSERT_EQ(placement.holders.size(), parts);
    ASSERT_EQ(placement.elements, elements);
    std::vector<int64_t> covered(elements.size(), 0);
    const int64_t total = std::accumulate(elements.begin(), elements.end(), int64_t{0});
    int64_t at = 0, smallest = INT64_MAX, largest = 0;
    for (int64_t part = 0; part < parts; ++part) {
      int64_t size = 0;
      for (const Range& range : placement.holders[part]) {
        ASSERT_EQ(range.begin, covered[range.parameter]);
        ASSERT_LE(range.end, elements[range.parameter]);
        ASSERT_GT(range.end, range.begin);
        ASSERT_EQ(range.offset, size);
        covered[range.parameter] = range.end;
        size += range.end - range.begin;
      }
      at += size;
      if (part + 1 < parts && at < total) EXPECT_EQ(at % 16, 0);
      smallest = std::min(smallest, size);
      largest = std::max(largest, size);
    }
    EXPECT_EQ(covered, elements);
    EXPECT_LE(largest - smallest, 32);
  }
}

TEST(CheckComplete, OfEveryElementWithOneHolder) {
  EXPECT_TRUE(CheckComplete({}).ok());
  EXPECT_TRUE(CheckComplete({{0, 0}, {}}).ok());
  EXPECT_TRUE(CheckComplete(Replicated({3, 0, 5}, 1)).ok());
  EXPECT_TRUE(CheckComplete(CutEvenly({40, 1, 30}, 2, 16)).ok());
  // The ranges may have any order and any storage.
  EXPECT_TRUE(CheckComplete({{9}, {{{0, 6, 9, 0}, {0, 0, 2, 3}}, {}, {{0, 2, 6, 100}}}}).ok());
}

TEST(CheckComplete, SaysWhoIsMissingOrDoubled) {
  struct Case {
    Placement placement;
    std::string expected;
  };
  const std::vector<Case> cases = {
      {{{9}, {}}, "'a': elements [0, 9) have no holder"},
      {{{9}, {{{0, 0, 4, 0}}, {{0, 6, 9, 0}}}}, "'a': elements [4, 6) have no holder"},
      {{{9}, {{{0, 0, 4, 0}}}}, "'a': elements [4, 9) have no holder"},
      {{{9, 2}, {{{0, 0, 9, 0}}}}, "'b': elements [0, 2) have no holder"},
      {{{9}, {{{0, 0, 9, 0}}, {{0, 4, 6, 0}}}}, "'a': elements [4, 6) have the holders 0 and 1"},
      {{{9}, {{{0, 5, 9, 0}}, {{0, 0, 6, 0}}}}, "'a': elements [5, 6) have the holders 1 and 0"},
      {{{9}, {{{0, 0, 9, 0}, {0, 0, 9, 9}}}}, "'a': elements [0, 9) have the holders 0 and 0"},
      // Missing elements are also found next to doubled elements.
      {{{9}, {{{0, 0, 4, 0}, {0, 0, 4, 4}}}},
       "'a': elements [0, 4) have the holders 0 and 0; 'a': elements [4, 9) have no holder"},
  };
  for (const Case& c : cases) {
    const absl::Status status = CheckComplete(c.placement, {"a", "b"});
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << c.expected;
    EXPECT_THAT(Message(status), HasSubstr("holders: " + c.expected));
  }
}

TEST(CheckComplete, SaysWhatIsNoRange) {
  struct Case {
    Placement placement;
    std::string expected;
  };
  const std::vector<Case> cases = {
      {{{9}, {{{1, 0, 4, 0}}}}, "holder 0 has parameter 1 of 1"},
      {{{9}, {{}, {{-1, 0, 4, 0}}}}, "holder 1 has parameter -1 of 1"},
      {{{9}, {{{0, 0, 10, 0}}}}, "holder 0 has elements [0, 10) of 'a', which has 9, at offset 0"},
      {{{9}, {{{0, -1, 9, 0}}}}, "holder 0 has elements [-1, 9) of 'a'"},
      {{{9}, {{{0, 0, 9, 0}, {0, 4, 4, 9}}}}, "holder 0 has elements [4, 4) of 'a'"},
      {{{9}, {{{0, 5, 4, 0}}}}, "holder 0 has elements [5, 4) of 'a'"},
      {{{9}, {{{0, 0, 9, -1}}}}, "at offset -1"},
      {{{-1}, {{}}}, "'a' has -1 elements"},
  };
  for (const Case& c : cases) {
    const absl::Status status = CheckComplete(c.placement, {"a"});
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.expected;
    EXPECT_THAT(Message(status), HasSubstr(c.expected));
    EXPECT_EQ(Redistribute(c.placement, c.placement).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
}

TEST(CheckComplete, CountsWhatItDoesNotShow) {
  const absl::Status status = CheckComplete({std::vector<int64_t>(1000, 7), {{}, {}}}, {"a"});
  EXPECT_EQ(
      Message(status),
      "incomplete placement of 1000 parameters on 2 holders: 'a': elements [0, 7) have no holder; "
      "parameter 1: elements [0, 7) have no holder; parameter 2: elements [0, 7) have no holder; "
      "and 997 more");
}

TEST(Redistribute, TakesEachElementFromWhereItIs) {
  // A change from halves to thirds.
  const Placement two = CutEvenly({48}, 2, 8), three = CutEvenly({48}, 3, 8);
  EXPECT_THAT(Moves(two, three), ElementsAre("0@0->0@0 0[0,16)", "0@16->1@0 0[16,24)",
                                             "1@0->1@8 0[24,32)", "1@8->2@0 0[32,48)"));
  EXPECT_THAT(Moves(three, two), ElementsAre("0@0->0@0 0[0,16)", "1@0->0@16 0[16,24)",
                                             "1@8->1@0 0[24,32)", "2@0->1@8 0[32,48)"));
  EXPECT_THAT(Moves(two, two), ElementsAre("0@0->0@0 0[0,24)", "1@0->1@0 0[24,48)"));
}

TEST(Redistribute, PrefersTheHolderItselfThenTheLowest) {
  const Placement replicated = Replicated({4, 3}, 3);
  EXPECT_THAT(Moves(replicated, CutEvenly({4, 3}, 3, 1)),
              ElementsAre("0@0->0@0 0[0,2)", "1@2->1@0 0[2,4)", "2@4->2@0 1[0,3)"));
  // Holder 3 had nothing before.
  EXPECT_THAT(Moves(replicated, {{4, 3}, {{}, {}, {}, {{1, 1, 2, 0}}}}),
              ElementsAre("0@5->3@0 1[1,2)"));
  // Holder 2 has the middle itself. Holder 0 has the begin, holder 1 the end, and both more.
  const Placement from{{10}, {{{0, 0, 5, 0}}, {{0, 2, 10, 0}}, {{0, 4, 7, 0}}}};
  EXPECT_THAT(Moves(from, {{10}, {{}, {}, {{0, 0, 10, 0}}}}),
              ElementsAre("0@0->2@0 0[0,4)", "1@5->2@7 0[7,10)", "2@0->2@4 0[4,7)"));
  EXPECT_THAT(Moves(from, {{10}, {{{0, 0, 10, 0}}}}),
              ElementsAre("0@0->0@0 0[0,5)", "1@3->0@5 0[5,10)"));
  EXPECT_THAT(Moves(from, {{10}, {{}, {{0, 0, 10, 0}}}}),
              ElementsAre("0@0->1@0 0[0,2)", "1@0->1@2 0[2,10)"));
}

// Ranges as in files: holder 0 has a part of a range that holder 7 has completely.
TEST(Redistribute, TakesOnlyTheLowestHoldersOfNestedRanges) {
  Placement from{{100}, std::vector<std::vector<Range>>(8)};
  from.holders[7] = {{0, 0, 100, 0}};
  from.holders[3] = {{0, 10, 90, 0}};
  from.holders[0] = {{0, 40, 50, 5}};
  from.holders[1] = {{0, 45, 60, 0}};
  EXPECT_THAT(Moves(from, {{100}, {{}, {}, {{0, 0, 100, 0}}}}),
              ElementsAre("0@5->2@40 0[40,50)", "1@5->2@50 0[50,60)", "3@0->2@10 0[10,40)",
                          "3@50->2@60 0[60,90)", "7@0->2@0 0[0,10)", "7@90->2@90 0[90,100)"));
}

TEST(Redistribute, OrdersByReceiverSenderAndPlace) {
  // Many senders far from each other, and ranges of the receiver in no order.
  Placement from{{4, 4}, std::vector<std::vector<Range>>(1000)};
  from.holders[999] = {{0, 0, 2, 0}, {1, 0, 2, 2}};
  from.holders[5] = {{0, 2, 4, 0}, {1, 2, 4, 2}};
  const Placement to{{4, 4}, {{{1, 0, 4, 4}, {0, 0, 4, 0}}}};
  EXPECT_THAT(Moves(from, to), ElementsAre("5@0->0@2 0[2,4)", "5@2->0@6 1[2,4)",
                                           "999@0->0@0 0[0,2)", "999@2->0@4 1[0,2)"));
  std::swap(from.holders[999], from.holders[6]);
  EXPECT_THAT(Moves(from, to), ElementsAre("5@0->0@2 0[2,4)", "5@2->0@6 1[2,4)", "6@0->0@0 0[0,2)",
                                           "6@2->0@4 1[0,2)"));
}

TEST(Redistribute, ToNobodyOrOfNothingMovesNothing) {
  EXPECT_THAT(Moves(Replicated({4}, 2), {{4}, {{}, {}}}), IsEmpty());
  EXPECT_THAT(Moves(Replicated({0}, 2), Replicated({0}, 3)), IsEmpty());
  EXPECT_THAT(Moves({}, {}), IsEmpty());
}

TEST(Redistribute, RefusesOtherParameters) {
  const auto number = Redistribute(Replicated({4}, 1), Replicated({4, 4}, 1)).status();
  EXPECT_EQ(number.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Message(number), "redistribution from 1 parameters to 2");
  const auto elements =
      Redistribute(Replicated({4, 5}, 1), Replicated({4, 6}, 1), {"a", "b"}).status();
  EXPECT_EQ(elements.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(elements), HasSubstr("'b' has 5 elements on one side and 6 on the other"));
}

TEST(Redistribute, SaysWhatNobodyHas) {
  const Placement from{{10, 2}, {{{0, 0, 4, 0}}, {{0, 6, 9, 0}}}};
  const auto status = Redistribute(from, Replicated({10, 2}, 2), {"a", "b"}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(
      Message(status),
      "redistribution: 'a': elements [4, 6) for holder 0 have no holder; 'a': elements [9, 10) for "
      "holder 0 have no holder; 'b': elements [0, 2) for holder 0 have no holder; and 3 more");
  // Elements that no holder needs may be missing.
  EXPECT_TRUE(Redistribute(from, {{10, 2}, {{{0, 7, 9, 0}}}}).ok());
}

// An invalid placement, which a file may contain: every element comes from one of its holders.
TEST(Redistribute, RangesOfOneHolderThatOverlapDoNoHarm) {
  const Placement from{{10}, {{{0, 0, 4, 0}, {0, 1, 2, 20}, {0, 3, 10, 30}}}};
  EXPECT_THAT(Moves(from, {{10}, {{{0, 0, 10, 0}}}}),
              ElementsAre("0@0->0@0 0[0,4)", "0@31->0@4 0[4,10)"));
}

}  // namespace
}  // namespace muster::sharding
