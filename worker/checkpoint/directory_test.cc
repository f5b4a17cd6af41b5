#include "worker/checkpoint/directory.h"

#include <sys/inotify.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "common/files/files.h"
#include "common/files/temp_dir.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::checkpoint {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(CheckpointNameTest, OnlyExactNamesParse) {
  EXPECT_EQ(FinalName(200, 3), "step-200-g3");
  EXPECT_EQ(TemporaryName(200, 3), "step-200-g3.tmp");
  const auto parsed = ParseFinalName("step-200-g3");
  ASSERT_TRUE(parsed.has_value());
  EXPECT_EQ(parsed->step, 200);
  EXPECT_EQ(parsed->generation, 3);
  for (const char* name : {"", "step-", "step-1", "step-1-g", "step--1-g1", "step-1-g1 ",
                           "step-01-g1", "step-1-g1.tmp", "step-1-g1.bad", "xstep-1-g1",
                           "step-+1-g1", "step-99999999999999999999-g1"}) {
    EXPECT_FALSE(ParseFinalName(name).has_value()) << name;
  }
}

class DirectoryTest : public ::testing::Test {
 protected:
  void Make(const std::string& name) {
    ASSERT_TRUE(files::CreateDirectories(dir_.Path(name)).ok());
    ASSERT_TRUE(files::WriteAtomically(dir_.Path(name) + "/file", "x").ok());
  }
  bool Exists(const std::string& name) { return fs::exists(dir_.Path(name)); }

  files::TempDir dir_;
};

TEST_F(DirectoryTest, RemoveLeftoversTakesWhatWasNotFinishedAndNothingElse) {
  for (const char* name :
       {"step-1-g1", "step-2-g1", "step-3-g2.tmp", "step-3-g4.tmp", "step-2-g1.bad", "mine",
        "step-x-g1", "notes.tmp", "step-4-g1.tmp.tmp"}) {
    Make(name);
  }
  ASSERT_TRUE(WriteNonce(dir_.path(), 7).ok());
  const auto removed = RemoveLeftovers(dir_.path(), /*generation=*/3);
  ASSERT_TRUE(removed.ok()) << removed.status();
  EXPECT_THAT(*removed, ElementsAre(".muster-nonce-0000000000000007", "step-3-g2.tmp"));
  for (const char* name : {"step-1-g1/file", "step-2-g1/file", "step-3-g4.tmp", "step-2-g1.bad",
                           "mine", "step-x-g1", "notes.tmp", "step-4-g1.tmp.tmp"}) {
    EXPECT_TRUE(Exists(name)) << name;
  }
  EXPECT_THAT(*RemoveLeftovers(dir_.path(), 3), IsEmpty());
}

TEST_F(DirectoryTest, RemoveLeftoversOfAMissingDirectoryIsNotFound) {
  EXPECT_EQ(RemoveLeftovers(dir_.Path("none"), 1).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(DirectoryTest, SetAsideNeverOverwrites) {
  Make("step-1-g1");
  EXPECT_EQ(*SetAside(dir_.Path("step-1-g1")), dir_.Path("step-1-g1.bad"));
  Make("step-1-g1");
  EXPECT_EQ(*SetAside(dir_.Path("step-1-g1")), dir_.Path("step-1-g1.bad.2"));
  EXPECT_TRUE(Exists("step-1-g1.bad/file"));
  EXPECT_FALSE(SetAside(dir_.Path("step-1-g1")).ok());
}

TEST_F(DirectoryTest, RemoveCheckpointWorksOverAnInterruptedRemoval) {
  Make("step-1-g1");
  Make("step-1-g1.tmp");
  EXPECT_TRUE(RemoveCheckpoint(dir_.Path("step-1-g1")).ok());
  EXPECT_FALSE(Exists("step-1-g1"));
  EXPECT_FALSE(Exists("step-1-g1.tmp"));
  EXPECT_TRUE(RemoveCheckpoint(dir_.Path("step-1-g1")).ok());
}

// A kill during the removal must not leave a checkpoint that looks complete.
TEST_F(DirectoryTest, ACheckpointLosesItsNameBeforeItLosesFiles) {
  Make("step-1-g1");
  const int watch = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
  ASSERT_GE(inotify_add_watch(watch, dir_.path().c_str(), IN_MOVED_FROM), 0);
  ASSERT_GE(inotify_add_watch(watch, dir_.Path("step-1-g1").c_str(), IN_DELETE), 0);
  ASSERT_TRUE(RemoveCheckpoint(dir_.Path("step-1-g1")).ok());
  alignas(inotify_event) char events[4096];
  ASSERT_GT(read(watch, events, sizeof(events)), 0);
  close(watch);
  const auto* first = reinterpret_cast<const inotify_event*>(events);
  EXPECT_EQ(first->mask & (IN_MOVED_FROM | IN_DELETE), IN_MOVED_FROM);
  EXPECT_STREQ(first->name, "step-1-g1");
}

TEST_F(DirectoryTest, ListsWholeCheckpointsOnlyInOrder) {
  for (const char* name :
       {"step-2-g1", "step-1-g2", "step-1-g1", "step-3-g1.tmp", "step-3-g1.bad", "mine"}) {
    Make(name);
  }
  const auto names = ListCheckpoints(dir_.path());
  ASSERT_TRUE(names.ok()) << names.status();
  EXPECT_THAT(*names, ElementsAre("step-1-g1", "step-1-g2", "step-2-g1"));
  const auto none = ListCheckpoints(dir_.Path("none"));
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_THAT(*none, IsEmpty());
  EXPECT_FALSE(ListCheckpoints(dir_.Path("mine/file")).ok());
}

TEST_F(DirectoryTest, ANonceOfAnotherValueIsRefused) {
  ASSERT_TRUE(files::WriteAtomically(dir_.Path(".muster-nonce-0000000000000007"), "8").ok());
  const absl::Status status = CheckNonce(dir_.path(), 7);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(std::string(status.message()).find("expected 7, found '8'"), std::string::npos)
      << status;
}

TEST_F(DirectoryTest, NonceIsSeenWhereItWasWritten) {
  const std::string here = dir_.Path("a/b");
  ASSERT_TRUE(WriteNonce(here, 1).ok());
  EXPECT_TRUE(CheckNonce(here, 1).ok());
  EXPECT_EQ(CheckNonce(here, 2).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(CheckNonce(dir_.path(), 1).code(), absl::StatusCode::kNotFound);
  RemoveNonce(here, 1);
  EXPECT_FALSE(CheckNonce(here, 1).ok());
  EXPECT_TRUE(fs::is_empty(here));
}

}  // namespace
}  // namespace muster::checkpoint
