#include "common/files/private_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "common/files/files.h"
#include "common/files/temp_dir.h"

namespace muster::files {
namespace {

using testing::HasSubstr;

class PrivateDirectory : public testing::Test {
 protected:
  ~PrivateDirectory() override { umask(before_); }
  mode_t ModeOf(const std::string& path) const {
    struct stat info = {};
    EXPECT_EQ(stat(path.c_str(), &info), 0) << path;
    return info.st_mode & 07777;
  }
  // Makes a directory that everybody may read.
  std::string Wide(const std::string& name, mode_t mode = 0755) {
    const std::string path = dir_.Path(name);
    EXPECT_EQ(mkdir(path.c_str(), mode), 0);
    EXPECT_EQ(chmod(path.c_str(), mode), 0);
    return path;
  }

  TempDir dir_;
  const mode_t before_ = umask(0);
};

TEST_F(PrivateDirectory, IsItsOwnersAloneWhateverTheUmaskIs) {
  for (const mode_t mask : {0, 022, 0277}) {
    const std::string path = dir_.Path(std::to_string(mask));
    umask(mask);
    const absl::Status made = MakePrivateDirectory(path, {"lock"});
    const absl::Status written = WritePrivately(JoinPath(path, "lock"), "x");
    const absl::Status log = MakePrivateLog(JoinPath(path, "log"));
    umask(0);
    ASSERT_TRUE(made.ok()) << made;
    ASSERT_TRUE(written.ok()) << written;
    ASSERT_TRUE(log.ok()) << log;
    EXPECT_EQ(ModeOf(path), 0700u) << mask;
    EXPECT_EQ(ModeOf(JoinPath(path, "lock")), 0600u) << mask;
    EXPECT_EQ(ModeOf(JoinPath(path, "log")), 0600u) << mask;
    EXPECT_TRUE(MakePrivateDirectory(path, {"lock"}).ok()) << "again";
  }
}

TEST_F(PrivateDirectory, ItsParentsAreMade) {
  ASSERT_TRUE(MakePrivateDirectory(dir_.Path("a/b/c"), {}).ok());
  EXPECT_EQ(ModeOf(dir_.Path("a/b/c")), 0700u);
}

TEST_F(PrivateDirectory, OneThatIsEmptyIsNarrowed) {
  const std::string path = Wide("empty");
  ASSERT_TRUE(MakePrivateDirectory(path, {"lock"}).ok());
  EXPECT_EQ(ModeOf(path), 0700u);
}

// A directory as older programs made it.
TEST_F(PrivateDirectory, OneThatIsKnownByItsFilesIsNarrowedWithThem) {
  const std::string path = Wide("known");
  for (const char* name : {"store.db", "store.db-wal", "of the user"}) {
    ASSERT_TRUE(WriteAtomically(JoinPath(path, name), "x").ok());
  }
  ASSERT_EQ(ModeOf(JoinPath(path, "store.db")), 0644u);
  ASSERT_TRUE(MakePrivateDirectory(path, {"store.db*", "lock"}).ok());
  EXPECT_EQ(ModeOf(path), 0700u);
  EXPECT_EQ(ModeOf(JoinPath(path, "store.db")), 0600u);
  EXPECT_EQ(ModeOf(JoinPath(path, "store.db-wal")), 0600u);
  EXPECT_EQ(ModeOf(JoinPath(path, "of the user")), 0644u);
}

TEST_F(PrivateDirectory, OneThatOthersUseIsRefusedAndLeftAsItIs) {
  const std::string home = Wide("home");
  ASSERT_TRUE(WriteAtomically(JoinPath(home, "letter"), "x").ok());
  const std::string shared = Wide("shared", 01777);
  for (const std::string& path : {home, shared}) {
    const mode_t mode = ModeOf(path);
    const absl::Status refused = MakePrivateDirectory(path, {"lock"});
    EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
    EXPECT_THAT(std::string(refused.message()),
                HasSubstr(path + ": others may use this directory"));
    EXPECT_THAT(std::string(refused.message()), HasSubstr(JoinPath(path, "muster")));
    EXPECT_EQ(ModeOf(path), mode);
  }
  ASSERT_EQ(chmod(home.c_str(), 0700), 0);
  EXPECT_TRUE(MakePrivateDirectory(home, {"lock"}).ok()) << "it is nobody else's";
}

TEST_F(PrivateDirectory, OneOfAnotherUserIsRefusedAlsoForRoot) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a directory away";
  const std::string path = Wide("theirs", 0700);
  ASSERT_EQ(chown(path.c_str(), 65534, 65534), 0);
  const absl::Status refused = MakePrivateDirectory(path, {"lock"});
  EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr(path + ": the directory belongs to"));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("65534"));
}

TEST_F(PrivateDirectory, AFileInItsPlaceIsAnError) {
  ASSERT_TRUE(WriteAtomically(dir_.Path("file"), "x").ok());
  EXPECT_FALSE(MakePrivateDirectory(dir_.Path("file"), {}).ok());
  EXPECT_FALSE(MakePrivateDirectory(dir_.Path("file/state"), {}).ok());
}

TEST_F(PrivateDirectory, ALogIsARegularFile) {
  ASSERT_EQ(mkfifo(dir_.Path("pipe").c_str(), 0600), 0);
  EXPECT_FALSE(MakePrivateLog(dir_.Path("pipe")).ok());
  ASSERT_EQ(symlink("elsewhere", dir_.Path("link").c_str()), 0);
  EXPECT_FALSE(MakePrivateLog(dir_.Path("link")).ok());
  EXPECT_FALSE(std::filesystem::exists(dir_.Path("elsewhere")));
}

}  // namespace
}  // namespace muster::files
