#include "worker/agent/identity.h"

#include <gtest/gtest.h>

#include "common/files/files.h"
#include "common/files/temp_dir.h"

namespace muster::agent {
namespace {

TEST(Identity, StaysTheSameFromProcessToProcess) {
  const files::TempDir dir;
  const std::string state = dir.Path("a/b");
  std::string id;
  EXPECT_FALSE(Identity::IsIn(state));
  {
    const auto first = Identity::Take(state);
    ASSERT_TRUE(first.ok()) << first.status();
    id = (*first)->id();
    EXPECT_FALSE(id.empty());
  }
  EXPECT_TRUE(Identity::IsIn(state));
  EXPECT_EQ((*Identity::Take(state))->id(), id);
  EXPECT_NE((*Identity::Take(dir.Path("other")))->id(), id);
}

TEST(Identity, IsUsedByOneAgentAtATime) {
  const files::TempDir dir;
  const auto first = Identity::Take(dir.path());
  const auto second = Identity::Take(dir.path());
  EXPECT_EQ(second.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(std::string(second.status().message()).find(dir.path()), std::string::npos);
}

TEST(Identity, ADirectoryThatCannotBeMadeIsNamedAndNoneIsNoId) {
  const files::TempDir dir;
  ASSERT_TRUE(files::WriteAtomically(dir.Path("file"), "x").ok());
  EXPECT_EQ(Identity::Take(dir.Path("file/state")).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ((*Identity::Take(""))->id(), "");
}

}  // namespace
}  // namespace muster::agent
