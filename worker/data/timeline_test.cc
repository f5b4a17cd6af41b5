#include "worker/data/timeline.h"

#include <gtest/gtest.h>

#include <vector>

#include "worker/data/pace.h"

namespace muster::data {
namespace {

// A timeline with three batches: the second one begins in the middle of an epoch, the third one at
// its end.
Timeline Three(Last last) {
  return Timeline({{.step = 0, .position = {0, 0}, .pace = {50, 4, last}},
                   {.step = 9, .position = {0, 36}, .pace = {50, 7, last}},
                   {.step = 19, .position = {2, 0}, .pace = {50, 11, last}}});
}

// Returns the positions one step after the other.
std::vector<Position> Walk(const Timeline& timeline, int64_t steps) {
  std::vector<Position> positions;
  for (const Timeline::Span& span : timeline.spans()) {
    positions.resize(span.step);
    positions.push_back(span.position);
    while (static_cast<int64_t>(positions.size()) <= steps) {
      positions.push_back(span.pace.After(positions.back()));
    }
  }
  return positions;
}

TEST(Timeline, AnyStepIsWhereTheStepsBeforeItLead) {
  for (const Last last : {Last::kDrop, Last::kPad, Last::kUneven}) {
    const Timeline timeline = Three(last);
    const auto expected = Walk(timeline, 60);
    for (int64_t step = 0; step <= 60; ++step) EXPECT_EQ(timeline.After(step), expected[step]);
    EXPECT_EQ(timeline.BeginAfter(9), (Position{0, 36})) << "with its own batch";
  }
}

TEST(Timeline, SamplesThatWereLeftOutMoveThePlaceAtTheirStep) {
  const Pace pace{50, 4, Last::kDrop};
  const Timeline timeline({{.step = 0, .position = {0, 0}, .pace = pace},
                           {.step = 0, .position = {0, 8}, .pace = pace, .skipped = true},
                           {.step = 3, .position = {1, 2}, .pace = pace, .skipped = true}});
  EXPECT_EQ(timeline.After(0), (Position{0, 8}));
  EXPECT_EQ(timeline.BeginBeforeSkips(0), (Position{0, 0}));
  EXPECT_EQ(timeline.After(2), (Position{0, 16}));
  EXPECT_EQ(timeline.BeginBeforeSkips(3), (Position{0, 20}));
  EXPECT_EQ(timeline.After(3), (Position{1, 2}));
  EXPECT_EQ(timeline.After(4), (Position{1, 6}));
  EXPECT_EQ(timeline.Reaches(0, {1, 0}), 3);
  EXPECT_EQ(timeline.Reaches(0, {2, 0}), 15);
}

TEST(Timeline, APlaceIsReachedAfterTheFirstStepThatLeavesNothingBeforeIt) {
  for (const Last last : {Last::kDrop, Last::kPad, Last::kUneven}) {
    const Timeline timeline = Three(last);
    for (const int64_t from : {0, 5, 9, 12, 19, 30}) {
      for (const Position to : {Position{0, 3}, Position{1, 0},
                                      Position{1, 30}, Position{2, 0},
                                      Position{5, 17}}) {
        // The end of a span counts with the batch of this span, and then with the batch of the next
        // span.
        int64_t expected = from;
        const auto reached = [&](int64_t step) {
          const auto positions = Walk(timeline, step);
          for (size_t i = 0; i < timeline.spans().size(); ++i) {
            const Timeline::Span& span = timeline.spans()[i];
            const bool later = i + 1 < timeline.spans().size() &&
                               timeline.spans()[i + 1].step < step;
            if (span.step > step || later) continue;
            if (span.pace.Begin(positions[step]) >= to) return true;
          }
          return false;
        };
        while (!reached(expected)) ++expected;
        EXPECT_EQ(timeline.Reaches(from, to), expected)
            << from << " to " << to.epoch << " " << to.cursor;
      }
    }
  }
}

}  // namespace
}  // namespace muster::data
