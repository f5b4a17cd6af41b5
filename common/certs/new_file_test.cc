#include "common/certs/pem_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <iterator>
#include <string>

#include "common/files/files.h"
#include "common/files/temp_dir.h"

namespace muster::certs {
namespace {

using ::testing::HasSubstr;

mode_t ModeOf(const std::string& path) {
  struct stat status = {};
  EXPECT_EQ(lstat(path.c_str(), &status), 0) << path;
  return status.st_mode & 07777;
}

class NewFileTest : public testing::Test {
 protected:
  NewFileTest() : umask_(umask(0)) {}
  ~NewFileTest() override { umask(umask_); }

  size_t CountFiles() {
    return std::distance(std::filesystem::directory_iterator(folder_.path()), {});
  }

  const mode_t umask_;
  files::TempDir folder_;
  const std::string path_ = folder_.Path("file");
};

TEST_F(NewFileTest, HasItsModeWhateverTheUmask) {
  ASSERT_TRUE(WriteNew(path_, "secret", 0600, IfExists::kRefuse).ok());
  EXPECT_EQ(files::ReadFile(path_).value(), "secret");
  EXPECT_EQ(ModeOf(path_), 0600);
  ASSERT_TRUE(WriteNew(path_, "new", 0640, IfExists::kReplace).ok());
  EXPECT_EQ(files::ReadFile(path_).value(), "new");
  EXPECT_EQ(ModeOf(path_), 0640);
  EXPECT_EQ(CountFiles(), 1);
}

TEST_F(NewFileTest, AFileThatExistsStaysUnlessItIsToBeReplaced) {
  ASSERT_TRUE(files::WriteAtomically(path_, "old").ok());
  const absl::Status status = WriteNew(path_, "new", 0600, IfExists::kRefuse);
  EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(status.message()), HasSubstr("--overwrite"));
  EXPECT_EQ(files::ReadFile(path_).value(), "old");
  EXPECT_EQ(CountFiles(), 1);
}

TEST_F(NewFileTest, WhatIsNoRegularFileIsNeverReplaced) {
  const std::string target = folder_.Path("target");
  ASSERT_TRUE(files::WriteAtomically(target, "kept").ok());
  std::filesystem::create_symlink(target, path_);
  ASSERT_EQ(mkfifo(folder_.Path("fifo").c_str(), 0600), 0);
  std::filesystem::create_directory(folder_.Path("folder"));
  for (const std::string& name : {path_, folder_.Path("fifo"), folder_.Path("folder")}) {
    EXPECT_EQ(WriteNew(name, "new", 0600, IfExists::kReplace).code(),
              absl::StatusCode::kAlreadyExists)
        << name;
  }
  EXPECT_TRUE(std::filesystem::is_symlink(path_));
  EXPECT_EQ(files::ReadFile(target).value(), "kept");
  EXPECT_EQ(CountFiles(), 4);
}

}  // namespace
}  // namespace muster::certs
