#include "worker/checkpoint/directory.h"

#include <filesystem>
#include <map>
#include <string>

#include "common/files/files.h"
#include "common/files/temp_dir.h"
#include "common/manifest/manifest.h"
#include "common/manifest/name.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::checkpoint {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kInstance[] = "2026-11-22T10:00:00Z";

class FoundCheckpointsTest : public ::testing::Test {
 protected:
  void Make(int64_t step, int64_t generation, const std::string& job = "j",
            const std::string& instance = kInstance) {
    const std::string path = dir_.Path(manifest::FinalName(step, generation));
    std::filesystem::create_directory(path);
    ASSERT_TRUE(manifest::Write({.job = job,
                                 .job_instance = instance,
                                 .step = step,
                                 .generation = generation,
                                 .last_command = 7},
                                path)
                    .ok());
  }

  // The reasons, by name.
  std::map<std::string, std::string> Look(const KnownCheckpoints& known, int64_t generation = 9) {
    reasons_.clear();
    const auto found = FindUnknown(dir_.path(), known, "j", kInstance, generation);
    EXPECT_TRUE(found.ok()) << found.status();
    for (const FoundCheckpoint& one : *found) {
      reasons_[one.name] = one.reason;
      last_command_ = one.last_command;
    }
    return reasons_;
  }

  // The checkpoints that continue the training.
  std::vector<std::string> Adoptable(const KnownCheckpoints& known, int64_t generation = 9) {
    std::vector<std::string> names;
    for (const auto& [name, reason] : Look(known, generation)) {
      if (reason.empty()) names.push_back(name);
    }
    return names;
  }

  files::TempDir dir_;
  std::map<std::string, std::string> reasons_;
  int64_t last_command_ = 0;
};

// The writer was killed between the rename and the report.
TEST_F(FoundCheckpointsTest, ACheckpointAfterTheRecordedOnesContinuesTheCourse) {
  for (const int64_t step : {45, 50, 55}) Make(step, 2);
  EXPECT_THAT(Adoptable({.recorded = {"step-50-g2", "step-45-g2"}}), ElementsAre("step-55-g2"));
  EXPECT_EQ(last_command_, 7);
}

TEST_F(FoundCheckpointsTest, AllOfWhatARestoredDatabaseDoesNotKnowContinuesTheCourse) {
  for (const int64_t step : {185, 190}) Make(step, 3);
  Make(195, 4);
  EXPECT_THAT(Adoptable({.recorded = {"step-50-g1"}}),
              ElementsAre("step-185-g3", "step-190-g3", "step-195-g4"));
}

TEST_F(FoundCheckpointsTest, RetiredCheckpointsAreNotRead) {
  Make(40, 1);
  EXPECT_THAT(Look({.recorded = {}, .retired = {"step-40-g1"}}), IsEmpty());
}

TEST_F(FoundCheckpointsTest, OlderOnesDoNotCount) {
  Make(40, 1);
  EXPECT_THAT(Look({.recorded = {"step-50-g1"}})["step-40-g1"],
              HasSubstr("it is older than step-50-g1"));
}

TEST_F(FoundCheckpointsTest, ACheckpointFromWhichALaterGenerationDidNotContinueDoesNotCount) {
  Make(60, 2);
  Make(55, 3);
  EXPECT_THAT(Adoptable({.recorded = {"step-50-g2"}}), ElementsAre("step-55-g3"));
  EXPECT_THAT(reasons_["step-60-g2"], HasSubstr("generation 3 went on from an earlier step"));
}

TEST_F(FoundCheckpointsTest, OtherJobsCheckpointsDoNotCount) {
  Make(60, 2, "other");
  Make(65, 2, "j", "2020-01-01T00:00:00Z");
  EXPECT_THAT(Adoptable({}), IsEmpty());
  EXPECT_THAT(reasons_["step-60-g2"], HasSubstr("written by job 'other'"));
  EXPECT_THAT(reasons_["step-65-g2"], HasSubstr("another job of this name"));
}

TEST_F(FoundCheckpointsTest, GenerationsThatAreNotOlderDoNotCount) {
  Make(60, 3);
  EXPECT_THAT(Adoptable({}, /*generation=*/3), IsEmpty());
  EXPECT_THAT(Adoptable({}, /*generation=*/4), ElementsAre("step-60-g3"));
}

TEST_F(FoundCheckpointsTest, WithoutAReadableManifestItDoesNotCount) {
  Make(60, 2);
  std::filesystem::create_directory(dir_.Path("step-65-g2"));
  ASSERT_TRUE(files::WriteAtomically(dir_.Path("step-60-g2/MANIFEST.json"), "{}").ok());
  EXPECT_THAT(Adoptable({}), IsEmpty());
  EXPECT_THAT(reasons_["step-65-g2"], HasSubstr("No such file"));
}

}  // namespace
}  // namespace muster::checkpoint
