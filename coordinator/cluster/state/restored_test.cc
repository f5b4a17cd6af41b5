#include "coordinator/cluster/state/restored.h"

#include <gtest/gtest.h>

namespace muster::cluster {
namespace {

absl::Time At(int seconds) { return absl::UnixEpoch() + absl::Seconds(seconds); }

TEST(Restored, AnIdleJobOfTheStartWaitsForAllNodesOrForTheirLeases) {
  Restored restored(At(10));
  restored.HadNode("a");
  restored.HadNode("b");
  restored.HadJob("old", std::nullopt);
  EXPECT_TRUE(restored.MayStillRun("old", At(1)));
  EXPECT_FALSE(restored.MayStillRun("new", At(1)));
  restored.NodeKnown("a");
  EXPECT_TRUE(restored.MayStillRun("old", At(1)));
  Restored back = restored;
  back.NodeKnown("b");
  EXPECT_FALSE(back.MayStillRun("old", At(1)));
  restored.Tick(At(9));
  EXPECT_TRUE(restored.MayStillRun("old", At(9)));
  restored.Await(At(12));
  restored.Tick(At(10));
  EXPECT_TRUE(restored.MayStillRun("old", At(10))) << "the leases were renewed";
  restored.Tick(At(12));
  EXPECT_FALSE(restored.MayStillRun("old", At(12)));
}

TEST(Restored, AJobWhoseProcessesKnowMoreWaitsForTheLeases) {
  Restored restored(At(10));
  restored.HadJob("old", 5);
  restored.KnowsMore("old");
  restored.KnowsMore("new");
  EXPECT_TRUE(restored.MayStillRun("old", At(9)));
  EXPECT_FALSE(restored.MayStillRun("old", At(10)));
  EXPECT_FALSE(restored.MayStillRun("new", At(9))) << "all of its generations are known";
}

TEST(Restored, AProcessOfALaterGenerationIsAwaitedUntilItHasEnded) {
  Restored restored(At(0));
  restored.LaterProcess("job", "i", "a");
  restored.LaterProcess("job", "j", "b");
  restored.ProcessEnded("job", "i", "b");
  restored.ProcessesEnded("b");
  EXPECT_TRUE(restored.MayStillRun("job", At(99))) << "another node speaks of it";
  restored.ProcessEnded("job", "i", "a");
  EXPECT_FALSE(restored.MayStillRun("job", At(99)));
}

TEST(Restored, ThoseThatAttachFirstKnewTheCommandsOfTheStart) {
  Restored restored(At(0));
  restored.HadJob("job", 5);
  EXPECT_EQ(restored.Attached("job", "i"), 5u);
  EXPECT_EQ(restored.Attached("job", "i"), std::nullopt);
  EXPECT_EQ(restored.Attached("new", "i"), std::nullopt);
}

TEST(Restored, ALaterJobOfTheSameNameInheritsNothing) {
  Restored restored(At(10));
  restored.HadNode("a");
  restored.HadJob("job", std::nullopt);
  restored.KnowsMore("job");
  restored.LaterProcess("job", "i", "a");
  restored.JobDeleted("job");
  EXPECT_FALSE(restored.Had("job"));
  EXPECT_FALSE(restored.MayStillRun("job", At(1)));
}

}  // namespace
}  // namespace muster::cluster
