#include "worker/checkpoint/weight_names.h"

#include "gtest/gtest.h"

namespace muster::checkpoint {
namespace {

using Taken = std::vector<std::optional<std::string>>;

const std::vector<std::string> kNames = {"body.h.0.w", "body.h.1.w", "body.ln.b", "head.w"};

std::string ProblemsOf(const std::vector<std::string>& take, const Renames& renames,
                       const std::vector<std::string>& names = kNames) {
  Problems problems;
  TakenNames(names, take, renames, &problems);
  return problems.Text();
}

TEST(WeightNames, WithoutPatternsAllAreTakenAsTheyAre) {
  Problems problems;
  EXPECT_EQ(TakenNames(kNames, {}, {}, &problems), Taken(kNames.begin(), kNames.end()));
  EXPECT_EQ(problems.Text(), "");
}

TEST(WeightNames, PatternsAreOfTheNamesInTheFile) {
  Problems problems;
  EXPECT_EQ(TakenNames(kNames, {"*.w", "body.ln.?"}, {{"body.*", "b.*"}}, &problems),
            (Taken{"b.h.0.w", "b.h.1.w", "b.ln.b", "head.w"}));
  EXPECT_EQ(TakenNames(kNames, {"body.h.*"}, {{"body.*", "b.*"}}, &problems),
            (Taken{"b.h.0.w", "b.h.1.w", std::nullopt, std::nullopt}));
  EXPECT_EQ(problems.Text(), "");
}

TEST(WeightNames, AStarIsCarriedOver) {
  Problems problems;
  EXPECT_EQ(TakenNames(kNames, {}, {{"body.h.*.w", "*-th"}, {"head.w", "out"}}, &problems),
            (Taken{"0-th", "1-th", "body.ln.b", "out"}));
  EXPECT_EQ(TakenNames({"a", "b.c"}, {}, {{"*", "model.*"}}, &problems),
            (Taken{"model.a", "model.b.c"}));
  // The beginning and the end must not overlap; the star may stand for no characters.
  EXPECT_EQ(TakenNames({"aba", "abba"}, {}, {{"ab*ba", "x*y"}}, &problems), (Taken{"aba", "xy"}));
  EXPECT_EQ(problems.Text(), "");
}

TEST(WeightNames, WhatMatchesNothingIsNamedWithSomethingNear) {
  EXPECT_EQ(ProblemsOf({"bdoy.*"}, {}),
            "take: 'bdoy.*' matches no tensor of the file; did you mean 'body.*'?");
  EXPECT_EQ(ProblemsOf({"head.*", "zzzzzz"}, {}), "take: 'zzzzzz' matches no tensor of the file");
  EXPECT_EQ(ProblemsOf({"body.*"}, {{"head.w", "out"}}),
            "rename: 'head.w' matches no tensor that is taken");
  EXPECT_EQ(ProblemsOf({}, {{"haed.w", "out"}}),
            "rename: 'haed.w' matches no tensor that is taken; did you mean 'head.w'?");
}

TEST(WeightNames, EachTensorHasOneRenameAndEachNameOneTensor) {
  EXPECT_EQ(ProblemsOf({}, {{"body.ln.*", "a.*"}, {"*.b", "*.c"}}),
            "rename: both '*.b' and 'body.ln.*' match 'body.ln.b'");
  EXPECT_EQ(ProblemsOf({}, {{"body.ln.b", "head.w"}}),
            "rename: both 'body.ln.b' and 'head.w' would be 'head.w'");
  EXPECT_EQ(ProblemsOf({}, {{"body.h.0.w", "x"}, {"body.h.1.w", "x"}}),
            "rename: both 'body.h.0.w' and 'body.h.1.w' would be 'x'");
  EXPECT_EQ(ProblemsOf({"body.*"}, {{"body.ln.b", "head.w"}}), "") << "the other one is not taken";
}

}  // namespace
}  // namespace muster::checkpoint
