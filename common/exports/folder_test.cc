#include "common/exports/folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "common/files/temp_dir.h"

namespace muster::exports {
namespace {

using testing::HasSubstr;

class CheckFolderTest : public testing::Test {
 protected:
  std::string Refusal(const std::string& path) {
    const absl::Status status = CheckFolder(path);
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    return std::string(status.message());
  }

  files::TempDir dir_;
};

TEST_F(CheckFolderTest, AllowsAFolderAndWhatCanBecomeOne) {
  std::filesystem::create_directory(dir_.Path("there"));
  EXPECT_TRUE(CheckFolder(dir_.Path("there")).ok());
  EXPECT_TRUE(CheckFolder(dir_.Path("there/a/b")).ok());
  EXPECT_FALSE(std::filesystem::exists(dir_.Path("there/a")));
}

TEST_F(CheckFolderTest, RefusesAFileAndWhatWouldLieInIt) {
  std::ofstream(dir_.Path("file")) << "mine";
  EXPECT_THAT(Refusal(dir_.Path("file")), HasSubstr("file is a file; choose another folder"));
  EXPECT_THAT(Refusal(dir_.Path("file/a/b")), HasSubstr("file is a file"));
}

TEST_F(CheckFolderTest, RefusesWhatLiesAmongCheckpoints) {
  std::filesystem::create_directories(dir_.Path("job/step-1-g1"));
  std::ofstream(dir_.Path("job/step-1-g1/MANIFEST.json")) << "{}";
  EXPECT_THAT(Refusal(dir_.Path("job/step-1-g1/logs")), HasSubstr("holds a job's checkpoints"));
  EXPECT_TRUE(CheckFolder(dir_.Path("job")).ok());
  std::ofstream(dir_.Path("job/.muster-epoch")) << "1";
  EXPECT_THAT(Refusal(dir_.Path("job")), HasSubstr("holds a job's checkpoints"));
  EXPECT_THAT(Refusal(dir_.Path("job/")), HasSubstr("holds a job's checkpoints"));
}

}  // namespace
}  // namespace muster::exports
