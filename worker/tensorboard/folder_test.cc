#include "worker/tensorboard/folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "common/files/temp_dir.h"

namespace muster::tensorboard {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class FolderTest : public testing::Test {
 protected:
  files::TempDir dir_;
  const std::string logs_ = dir_.Path("logs");
};

TEST_F(FolderTest, IsMadeWithAllThatLeadsToIt) {
  EXPECT_TRUE(Prepare(dir_.Path("a/b/c"), "job").ok());
  EXPECT_TRUE(fs::is_directory(dir_.Path("a/b/c/job")));
  EXPECT_TRUE(Prepare(dir_.Path("a/b/c"), "job").ok());
}

TEST_F(FolderTest, CannotTakeThePlaceOfAFile) {
  std::ofstream(logs_) << "mine";
  const absl::Status status = Prepare(logs_, "job");
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr(logs_));
  EXPECT_THAT(std::string(status.message()), HasSubstr("choose another folder"));
}

TEST_F(FolderTest, IsMadeAgainIfItWasRemoved) {
  Folder folder(logs_, "job");
  ASSERT_TRUE(folder.Ensure("").ok());
  fs::remove_all(folder.path());
  EXPECT_TRUE(folder.Ensure(folder.path() + "/file").ok());
  EXPECT_TRUE(fs::is_directory(folder.path()));
}

TEST_F(FolderTest, IsMadeAgainIfTheWholeDirectoryWasRemoved) {
  Folder folder(logs_, "job");
  ASSERT_TRUE(folder.Ensure("").ok());
  fs::remove_all(logs_);
  EXPECT_TRUE(folder.Ensure(folder.path() + "/file").ok());
  EXPECT_TRUE(fs::is_directory(folder.path()));
  fs::remove_all(logs_);
  fs::create_directory(logs_);
  EXPECT_TRUE(folder.Ensure(folder.path() + "/file").ok()) << "another job has made it again";
  EXPECT_TRUE(fs::is_directory(folder.path()));
}

// The directory lies in a file system that is mounted, here "mount".
TEST_F(FolderTest, IsNotMadeInAnotherDirectoryThatTookThePlaceOfTheFirst) {
  const std::string mount = dir_.Path("mount");
  Folder folder(mount + "/logs", "job");
  ASSERT_TRUE(folder.Ensure("").ok());
  const std::string newest = folder.path() + "/file";
  std::ofstream(newest) << "events";
  fs::rename(mount, dir_.Path("unmounted"));
  EXPECT_EQ(folder.Ensure(newest).code(), absl::StatusCode::kUnavailable);
  fs::create_directory(mount);
  EXPECT_EQ(folder.Ensure(newest).code(), absl::StatusCode::kUnavailable);
  fs::create_directory(mount + "/logs");
  EXPECT_EQ(folder.Ensure(newest).code(), absl::StatusCode::kUnavailable);
  EXPECT_FALSE(fs::exists(folder.path()));
  fs::remove_all(mount);
  fs::copy(dir_.Path("unmounted"), mount, fs::copy_options::recursive);
  EXPECT_TRUE(folder.Ensure(newest).ok()) << "it has the newest file, so it is the same one";
}

TEST_F(FolderTest, KnowsWhereAFileSystemIsMounted) {
  const auto proc = PlaceOf("/proc");
  ASSERT_TRUE(proc.ok()) << proc.status();
  EXPECT_TRUE(proc->mounted);
  const auto plain = PlaceOf(dir_.path());
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_FALSE(plain->mounted);
  fs::create_directory_symlink("/proc", dir_.Path("link"));
  EXPECT_TRUE(PlaceOf(dir_.Path("link"))->mounted);
  EXPECT_EQ(PlaceOf(dir_.Path("nothing")).status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace muster::tensorboard
