#include "worker/control/own_checkpoints.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::control {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Kind = OwnCheckpoints::Kind;

TEST(OwnCheckpoints, WhileTheCoordinatorCanBeReachedItNamesThem) {
  OwnCheckpoints own(1);
  EXPECT_THAT(own.Written("step-1-g2", Kind::kPlain, false), IsEmpty());
  EXPECT_THAT(own.Written("step-2-g2", Kind::kPlain, false), IsEmpty());
}

TEST(OwnCheckpoints, WhileItCannotBeReachedThoseBeyondTheKeptOnesAreRemovedOldestFirst) {
  OwnCheckpoints own(2);
  own.Written("step-1-g2", Kind::kPlain, false);
  own.Written("step-2-g2", Kind::kPlain, false);
  EXPECT_THAT(own.Written("step-3-g2", Kind::kPlain, true), ElementsAre("step-1-g2"));
  EXPECT_THAT(own.Written("step-4-g2", Kind::kPlain, true), ElementsAre("step-2-g2"));
}

TEST(OwnCheckpoints, ThoseThatTheCoordinatorCouldNameAreLeftToIt) {
  OwnCheckpoints own(2);
  for (const char* name : {"step-1-g2", "step-2-g2", "step-3-g2"})
    own.Written(name, Kind::kPlain, false);
  EXPECT_THAT(own.Written("step-4-g2", Kind::kPlain, true), ElementsAre("step-2-g2"));
}

TEST(OwnCheckpoints, OneThatIsWrittenAgainIsTheNewest) {
  OwnCheckpoints own(1);
  own.Written("step-1-g2", Kind::kPlain, true);
  EXPECT_THAT(own.Written("step-1-g2", Kind::kPlain, true), IsEmpty());
}

TEST(OwnCheckpoints, TheBestOneStaysUntilThereIsABetterOne) {
  OwnCheckpoints own(1);
  own.Written("step-1-g2", Kind::kBest, true);
  EXPECT_THAT(own.Written("step-2-g2", Kind::kPlain, true), IsEmpty());
  EXPECT_THAT(own.Written("step-3-g2", Kind::kPlain, true), ElementsAre("step-2-g2"));
  EXPECT_THAT(own.Written("step-4-g2", Kind::kBest, true), ElementsAre("step-1-g2", "step-3-g2"));
  EXPECT_THAT(own.Written("step-5-g2", Kind::kBest, true), ElementsAre("step-4-g2"));
}

}  // namespace
}  // namespace muster::control
