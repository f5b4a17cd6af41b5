#include "worker/checkpoint/epoch.h"

#include <filesystem>
#include <string>

#include "common/files/files.h"
#include "common/files/temp_dir.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::checkpoint {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Epoch Generation(int64_t generation, const std::string& incarnation = "p") {
  return {generation, "2026-11-22T10:00:00Z", incarnation};
}

class EpochTest : public ::testing::Test {
 protected:
  files::TempDir dir_;
};

TEST_F(EpochTest, ANewerGenerationTakesTheFolder) {
  ASSERT_TRUE(BeginEpoch(dir_.path(), Generation(2)).ok());
  EXPECT_TRUE(CheckEpoch(dir_.path(), Generation(2)).ok());
  ASSERT_TRUE(BeginEpoch(dir_.path(), Generation(4)).ok());
  EXPECT_TRUE(CheckEpoch(dir_.path(), Generation(4)).ok());
  const absl::Status stale = CheckEpoch(dir_.path(), Generation(2));
  EXPECT_EQ(stale.code(), absl::StatusCode::kAborted);
  EXPECT_EQ(NewerGeneration(stale), 4);
  EXPECT_THAT(std::string(stale.message()),
              AllOf(HasSubstr("expected no generation newer than this one, 2, found generation 4"),
                    HasSubstr(dir_.path())));
}

TEST_F(EpochTest, AnOlderGenerationDoesNotBeginAndChangesNothing) {
  ASSERT_TRUE(BeginEpoch(dir_.path(), Generation(4)).ok());
  EXPECT_EQ(NewerGeneration(BeginEpoch(dir_.path(), Generation(3))), 4);
  EXPECT_TRUE(CheckEpoch(dir_.path(), Generation(4)).ok());
}

// A restored database can assign a generation number a second time.
TEST_F(EpochTest, AnotherProcessOfTheSameGenerationDoesNotBegin) {
  ASSERT_TRUE(BeginEpoch(dir_.path(), Generation(4, "p")).ok());
  EXPECT_TRUE(BeginEpoch(dir_.path(), Generation(4, "p")).ok());
  EXPECT_EQ(NewerGeneration(BeginEpoch(dir_.path(), Generation(4, "q"))), 4);
}

TEST_F(EpochTest, CheckpointsOfNewerGenerationsCountWhereThereIsNoFile) {
  std::filesystem::create_directory(dir_.Path("step-10-g3"));
  std::filesystem::create_directory(dir_.Path("step-12-g5.tmp"));
  std::filesystem::create_directory(dir_.Path("step-12-g9.bad"));
  EXPECT_EQ(NewerGeneration(BeginEpoch(dir_.path(), Generation(5))), 5);
  EXPECT_FALSE(std::filesystem::exists(dir_.Path(kEpochFile)));
  EXPECT_TRUE(BeginEpoch(dir_.path(), Generation(6)).ok());
}

TEST_F(EpochTest, TheFileOfAnotherJobIsReplaced) {
  Epoch other = Generation(9);
  other.instance = "2020-01-01T00:00:00Z";
  ASSERT_TRUE(BeginEpoch(dir_.path(), other).ok());
  ASSERT_TRUE(BeginEpoch(dir_.path(), Generation(1)).ok());
  EXPECT_TRUE(CheckEpoch(dir_.path(), Generation(1)).ok());
}

TEST_F(EpochTest, AFileThatIsGoneOrUnreadableProvesNothingAndIsNoNewerGeneration) {
  const absl::Status missing = CheckEpoch(dir_.path(), Generation(1));
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.message()), HasSubstr("is its file system mounted"));
  EXPECT_EQ(NewerGeneration(missing), std::nullopt);
  ASSERT_TRUE(files::WriteAtomically(dir_.Path(kEpochFile), "nonsense").ok());
  for (const absl::Status& status :
       {CheckEpoch(dir_.path(), Generation(1)), BeginEpoch(dir_.path(), Generation(1))}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(status.message()), HasSubstr("found 'nonsense'"));
    EXPECT_EQ(NewerGeneration(status), std::nullopt);
  }
}

}  // namespace
}  // namespace muster::checkpoint
