#include "worker/control/own_checkpoints.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::control {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(OwnCheckpoints, WhileTheCoordinatorCanBeReachedItNamesThem) {
  OwnCheckpoints own(1);
  EXPECT_THAT(own.Written("step-1-g2", false), IsEmpty());
  EXPECT_THAT(own.Written("step-2-g2", false), IsEmpty());
}

TEST(OwnCheckpoints, WhileItCannotBeReachedThoseBeyondTheKeptOnesAreRemovedOldestFirst) {
  OwnCheckpoints own(2);
  own.Written("step-1-g2", false);
  own.Written("step-2-g2", false);
  EXPECT_THAT(own.Written("step-3-g2", true), ElementsAre("step-1-g2"));
  EXPECT_THAT(own.Written("step-4-g2", true), ElementsAre("step-2-g2"));
}

TEST(OwnCheckpoints, ThoseThatTheCoordinatorCouldNameAreLeftToIt) {
  OwnCheckpoints own(2);
  for (const char* name : {"step-1-g2", "step-2-g2", "step-3-g2"}) own.Written(name, false);
  EXPECT_THAT(own.Written("step-4-g2", true), ElementsAre("step-2-g2"));
}

TEST(OwnCheckpoints, OneThatIsWrittenAgainIsTheNewest) {
  OwnCheckpoints own(1);
  own.Written("step-1-g2", true);
  EXPECT_THAT(own.Written("step-1-g2", true), IsEmpty());
}

}  // namespace
}  // namespace muster::control
