#include "common/files/files.h"

#include <sys/stat.h>

#include <filesystem>
#include <string>

#include "common/activity/activity.h"
#include "common/files/temp_dir.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::files {
namespace {

using ::testing::HasSubstr;

std::string MessageOf(const absl::Status& status) { return std::string(status.message()); }

TEST(FilesTest, WriteAtomicallyReplacesAndLeavesNothingBehind) {
  TempDir dir;
  const std::string path = dir.Path("a");
  ASSERT_TRUE(WriteAtomically(path, "first").ok());
  ASSERT_TRUE(WriteAtomically(path, std::string("sec\0nd", 6)).ok());
  EXPECT_EQ(*ReadFile(path), std::string("sec\0nd", 6));
  EXPECT_FALSE(std::filesystem::exists(path + ".tmp"));
}

TEST(FilesTest, MissingFileIsNotFoundAndNamed) {
  const auto contents = ReadFile("/nowhere/at/all");
  EXPECT_EQ(contents.status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(MessageOf(contents.status()), "open /nowhere/at/all: No such file or directory");
}

class FailingDisk : public Disk {
 public:
  absl::Status Sync(int fd, const std::string& path) override {
    return fail_sync ? ErrnoStatus(5, "fsync", path) : Disk::Sync(fd, path);
  }
  absl::Status Rename(const std::string& from, const std::string& to) override {
    return fail_rename ? ErrnoStatus(28, "rename", to) : Disk::Rename(from, to);
  }
  bool fail_sync = false;
  bool fail_rename = false;
};

TEST(FilesTest, FailedSyncOrRenameKeepsTheOldContents) {
  TempDir dir;
  const std::string path = dir.Path("a");
  ASSERT_TRUE(WriteAtomically(path, "old").ok());
  FailingDisk disk;
  disk.fail_sync = true;
  EXPECT_THAT(MessageOf(WriteAtomically(path, "new", disk)),
              HasSubstr("a.tmp: Input/output error"));
  disk.fail_sync = false;
  disk.fail_rename = true;
  EXPECT_EQ(WriteAtomically(path, "new", disk).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(*ReadFile(path), "old");
  EXPECT_FALSE(std::filesystem::exists(path + ".tmp"));
}

TEST(FilesTest, WhatIsLargerThanWhatIsWrittenBehindArrivesWhole) {
  TempDir dir;
  std::string data(12 * activity::kBlockBytes + 5, '\0');
  for (size_t i = 0; i < data.size(); i += 4096) data[i] = static_cast<char>(i / 4096 % 251);
  ASSERT_TRUE(WriteAtomically(dir.Path("large"), data).ok());
  EXPECT_TRUE(*ReadFile(dir.Path("large")) == data);
}

TEST(FilesTest, FullDiskIsResourceExhausted) {
  FILE* full = fopen("/dev/full", "w");
  ASSERT_NE(full, nullptr);
  const absl::Status status = Disk::Real().Write(fileno(full), "x", 1, "/dev/full");
  fclose(full);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(MessageOf(status), "write /dev/full: No space left on device");
}

TEST(FilesTest, WhatAFileHoldsIsThereAfterItsPagesWereDropped) {
  TempDir dir;
  const std::string contents(1 << 20, 'x');
  ASSERT_TRUE(WriteAtomically(dir.Path("a"), contents).ok());
  EXPECT_TRUE(Disk::Real().DropPages(dir.Path("a")).ok());
  EXPECT_EQ(*ReadFile(dir.Path("a")), contents);
  EXPECT_EQ(Disk::Real().DropPages(dir.Path("b")).code(), absl::StatusCode::kNotFound);
}

TEST(FilesTest, CreateDirectoriesMakesParentsAndAcceptsExisting) {
  TempDir dir;
  EXPECT_TRUE(CreateDirectories(dir.Path("x/y/z")).ok());
  EXPECT_TRUE(CreateDirectories(dir.Path("x/y/z")).ok());
  EXPECT_TRUE(std::filesystem::is_directory(dir.Path("x/y/z")));
  ASSERT_TRUE(WriteAtomically(dir.Path("file"), "").ok());
  EXPECT_FALSE(CreateDirectories(dir.Path("file/below")).ok());
}

TEST(FilesTest, ParentDirectoryOfARelativeNameIsHere) {
  EXPECT_EQ(ParentDirectory("name"), ".");
  EXPECT_EQ(ParentDirectory("a/b"), "a");
  EXPECT_EQ(ParentDirectory("/a"), "/");
  EXPECT_EQ(JoinPath("a", "b"), "a/b");
  EXPECT_EQ(JoinPath("a/", "b"), "a/b");
}

}  // namespace
}  // namespace muster::files
