#include "worker/agent/downloads_folder.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <set>
#include <string>

#include "absl/time/clock.h"
#include "common/downloads/downloads.h"
#include "common/files/files.h"
#include "common/files/temp_dir.h"

namespace muster::agent {
namespace {

constexpr char kIncarnation[] = "0a1b2c3d-4e5f-4a6b-8c9d-0e1f2a3b4c5d";

class DownloadsFolderTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(folder_.Open().ok()); }

  void Write(const std::string& name, const std::string& contents = "contents") {
    ASSERT_TRUE(files::WriteAtomically(files::JoinPath(path_, name), contents).ok());
  }
  std::set<std::string> Names() const {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(path_)) {
      names.insert(entry.path().filename().string());
    }
    return names;
  }

  files::TempDir outside_;
  const std::string path_ = outside_.Path("state/downloads");
  DownloadsFolder folder_{"n1", path_, absl::Hours(1)};
};

TEST_F(DownloadsFolderTest, IsForItsOwnerOnlyAndWorkersAreToldWhereItIs) {
  struct stat info = {};
  ASSERT_EQ(stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
  EXPECT_EQ(folder_.Environment(),
            (std::map<std::string, std::string>{{kDownloadsVariable, path_}}));
  EXPECT_TRUE(DownloadsFolder("n1", "", absl::Hours(1)).Environment().empty());
}

TEST_F(DownloadsFolderTest, OnlyTheFileOfACommandIsRead) {
  Write("job-7");
  const auto file = folder_.Read("job", 7, 8);
  ASSERT_TRUE(file.ok()) << file.status();
  char bytes[4] = {};
  ASSERT_TRUE(file->ReadAt(3, 4, bytes).ok());
  EXPECT_EQ(std::string(bytes, 4), "tent");
  EXPECT_TRUE(absl::IsDataLoss(file->ReadAt(6, 4, bytes)));
  EXPECT_TRUE(absl::IsNotFound(folder_.Read("job", 8, 8).status()));
  EXPECT_TRUE(absl::IsNotFound(folder_.Read("job", 7, 9).status())) << "another size";
  Write("../secret-7");
  EXPECT_TRUE(absl::IsNotFound(folder_.Read("../secret", 7, 8).status()));
  std::filesystem::create_symlink(files::JoinPath(path_, "../secret-7"),
                                  files::JoinPath(path_, "job-9"));
  EXPECT_FALSE(folder_.Read("job", 9, 8).ok()) << "a link";
}

TEST_F(DownloadsFolderTest, AFileIsRemovedWhenAClientHasIt) {
  Write("job-7");
  Write("job-8");
  folder_.Remove("job", 7);
  folder_.Remove("job", 7);
  EXPECT_EQ(Names(), std::set<std::string>{"job-8"});
}

TEST_F(DownloadsFolderTest, AFileThatNobodyFetchesIsRemoved) {
  Write("job-7");
  Write("job-8");
  const absl::Time now = absl::Now();
  folder_.RemoveOld(now + absl::Minutes(59));
  EXPECT_EQ(Names(), (std::set<std::string>{"job-7", "job-8"}));
  std::filesystem::last_write_time(
      files::JoinPath(path_, "job-7"),
      std::filesystem::file_time_type::clock::now() - std::chrono::hours(2));
  std::filesystem::last_write_time(
      files::JoinPath(path_, "job-8"),
      std::filesystem::file_time_type::clock::now() - std::chrono::hours(2));
  folder_.Read("job", 8, 8)->Touch();  // it is being sent
  folder_.RemoveOld(now);
  EXPECT_EQ(Names(), std::set<std::string>{"job-8"});
}

TEST_F(DownloadsFolderTest, WhatAWorkerDidNotFinishIsRemovedWhenItHasEnded) {
  const std::string mine = std::string(".job-7.job-g3-") + kIncarnation + "-123.tmp";
  const std::string other = ".job-7.job-g3-ffffffff-4e5f-4a6b-8c9d-0e1f2a3b4c5d-4.tmp";
  Write(mine);
  Write(other);
  Write("job-6");
  folder_.RemoveOld(absl::Now() + absl::Minutes(1));
  EXPECT_EQ(Names().size(), 3u);
  folder_.RemoveUnfinished({.job = "job", .generation = 3, .incarnation = kIncarnation});
  EXPECT_EQ(Names(), (std::set<std::string>{other, "job-6"}));
  // No worker outlives its agent.
  ASSERT_TRUE(DownloadsFolder("n1", path_, absl::Hours(1)).Open().ok());
  EXPECT_EQ(Names(), std::set<std::string>{"job-6"});
}

TEST_F(DownloadsFolderTest, WithoutAFolderThereIsNothing) {
  ASSERT_TRUE(files::WriteAtomically(outside_.Path("file"), "").ok());
  DownloadsFolder none("n1", outside_.Path("file/downloads"), absl::Hours(1));
  EXPECT_FALSE(none.Open().ok());
  EXPECT_TRUE(none.Environment().empty());
  EXPECT_TRUE(absl::IsNotFound(none.Read("job", 7, 8).status()));
  none.Remove("job", 7);
  none.RemoveOld(absl::InfiniteFuture());
}

}  // namespace
}  // namespace muster::agent
