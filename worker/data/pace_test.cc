#include "worker/data/pace.h"

#include <gtest/gtest.h>

#include <vector>

namespace muster::data {
namespace {

std::vector<Pace> Paces() {
  std::vector<Pace> paces;
  for (const Last last : {Last::kDrop, Last::kPad, Last::kUneven}) {
    for (const int64_t size : {5, 12, 149}) {
      for (const int64_t batch : {1, 4, 5}) paces.push_back({size, batch, last});
    }
  }
  // The last pace has a batch that is larger than the data.
  paces.push_back({3, 8, Last::kPad});
  paces.push_back({3, 8, Last::kUneven});
  return paces;
}

TEST(Pace, ManyStepsAtOnceAreTheStepsOneByOne) {
  for (const Pace& pace : Paces()) {
    for (int64_t cursor = 0; cursor <= pace.epoch_size; ++cursor) {
      const Position from{2, cursor};
      Position one_by_one = from;
      for (int64_t steps = 0; steps < 80; ++steps) {
        ASSERT_EQ(pace.Ahead(from, steps), one_by_one) << cursor << " " << steps;
        one_by_one = pace.After(one_by_one);
      }
    }
  }
}

TEST(Pace, TheSamplesOfTheNextStepsAreAtTheirPlacesInOrder) {
  for (const Pace& pace : Paces()) {
    for (int64_t cursor = 0; cursor <= pace.epoch_size; ++cursor) {
      // The places one after the other, as the steps take them.
      std::vector<Position> places;
      Position position{1, cursor};
      for (int steps = 0; steps < 40; ++steps) {
        const Position begin = pace.Begin(position);
        position = pace.After(position);
        for (int64_t at = begin.cursor; at < position.cursor; ++at) {
          places.push_back({begin.epoch, at});
        }
      }
      for (size_t sample = 0; sample < places.size(); ++sample) {
        const auto index = static_cast<int64_t>(sample);
        ASSERT_EQ(pace.PlaceOf({1, cursor}, index), places[sample]) << cursor << " " << sample;
      }
    }
  }
}

TEST(Pace, StepsToAreTheFirstStepsAfterWhichNothingBeforeItIsLeft) {
  for (const Pace& pace : Paces()) {
    for (const int64_t cursor : {int64_t{0}, int64_t{3}, pace.epoch_size}) {
      const Position from{1, cursor};
      for (const Position to : {Position{0, 2}, Position{1, 2}, Position{1, 5}, Position{2, 0},
                                Position{2, 1}, Position{2, pace.epoch_size}, Position{4, 3}}) {
        int64_t expected = 0;
        for (Position at = from; pace.Begin(at) < to; at = pace.After(at)) ++expected;
        EXPECT_EQ(pace.StepsTo(from, to), expected)
            << pace.epoch_size << " by " << pace.global_batch << ", " << cursor << " to "
            << to.epoch << " " << to.cursor;
      }
    }
  }
}

TEST(Pace, APassFromAnyStepsBeginIsAWholeEpochsSteps) {
  for (const Pace& pace : Paces()) {
    Position begin;
    for (int64_t step = 0; step < 40; ++step, begin = pace.After(begin)) {
      const Position first = pace.Begin(begin);
      EXPECT_EQ(pace.StepsTo(begin, {first.epoch + 3, first.cursor}), 3 * pace.steps_per_epoch());
    }
  }
}

TEST(Pace, APositionBeyondTheEpochIsInTheNextOne) {
  const Pace pace{10, 4, Last::kPad};  // of data that were larger
  EXPECT_EQ(pace.Begin({1, 12}), (Position{2, 0}));
  EXPECT_EQ(pace.StepsTo({1, 12}, {3, 0}), 3);
}

}  // namespace
}  // namespace muster::data
