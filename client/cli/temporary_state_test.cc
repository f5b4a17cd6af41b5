#include "client/cli/local_coordinator.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "common/files/files.h"
#include "common/files/temp_dir.h"

namespace muster::cli {
namespace {

namespace fs = std::filesystem;

class TemporaryStateTest : public testing::Test {
 protected:
  // Makes a directory as a killed run leaves it.
  std::string Leftover(const std::string& name) {
    const std::string path = root_.Path(name);
    fs::create_directory(path);
    EXPECT_TRUE(files::WriteAtomically(path + "/owner", "").ok());
    EXPECT_TRUE(files::WriteAtomically(path + "/lock", "").ok());
    EXPECT_TRUE(files::WriteAtomically(path + "/muster.db", "x").ok());
    return path;
  }
  process::Fd Lock(const std::string& file) {
    process::Fd fd(open(file.c_str(), O_RDWR));
    EXPECT_EQ(flock(fd.get(), LOCK_EX | LOCK_NB), 0);
    return fd;
  }

  const files::TempDir root_ = files::TempDir::Short();
};

TEST_F(TemporaryStateTest, IsThereWhileItLives) {
  std::string path;
  {
    const auto state = TemporaryState::Create(root_.path());
    ASSERT_TRUE(state.ok()) << state.status();
    path = (*state)->path();
    EXPECT_TRUE(fs::is_directory(path));
    EXPECT_EQ(fs::path(path).parent_path(), root_.path());
  }
  EXPECT_FALSE(fs::exists(path));
}

TEST_F(TemporaryStateTest, IsInTmpWhereTheSocketsPathWouldBeTooLong) {
  const std::string deep = root_.Path(std::string(100, 'd'));
  fs::create_directory(deep);
  std::string path;
  {
    const auto state = TemporaryState::Create(deep);
    ASSERT_TRUE(state.ok()) << state.status();
    path = (*state)->path();
    EXPECT_EQ(fs::path(path).parent_path(), "/tmp");
    EXPECT_EQ(fs::status(path).permissions(), fs::perms::owner_all);
  }
  EXPECT_FALSE(fs::exists(path));
}

TEST_F(TemporaryStateTest, LeavesThoseOfLivingRunsAlone) {
  const auto first = TemporaryState::Create(root_.path());
  const auto second = TemporaryState::Create(root_.path());
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_TRUE(fs::is_directory((*first)->path()));
  EXPECT_NE((*first)->path(), (*second)->path());
}

TEST_F(TemporaryStateTest, RemovesWhatAKilledRunLeft) {
  const std::string left = Leftover("muster-run-abc");
  ASSERT_TRUE(TemporaryState::Create(root_.path()).ok());
  EXPECT_FALSE(fs::exists(left));
}

TEST_F(TemporaryStateTest, KeepsWhatACoordinatorStillUses) {
  const std::string left = Leftover("muster-run-abc");
  const process::Fd daemon = Lock(left + "/lock");
  ASSERT_TRUE(TemporaryState::Create(root_.path()).ok());
  EXPECT_TRUE(fs::exists(left + "/muster.db"));
}

TEST_F(TemporaryStateTest, TouchesNothingElse) {
  const std::string other = Leftover("muster-keep");
  const std::string being_made = root_.Path("muster-run-new");
  fs::create_directory(being_made);
  const std::string target = Leftover("elsewhere");
  fs::create_directory_symlink(target, root_.Path("muster-run-link"));
  ASSERT_TRUE(TemporaryState::Create(root_.path()).ok());
  for (const std::string& path : {other, being_made, target}) EXPECT_TRUE(fs::exists(path)) << path;
}

TEST_F(TemporaryStateTest, SaysWhereItCannotBeMade) {
  const auto state = TemporaryState::Create(root_.Path("none"));
  EXPECT_EQ(state.status().code(), absl::StatusCode::kInternal);
  EXPECT_NE(state.status().message().find(root_.Path("none")), absl::string_view::npos);
}

}  // namespace
}  // namespace muster::cli
