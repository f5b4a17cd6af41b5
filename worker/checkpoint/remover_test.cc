#include "worker/checkpoint/remover.h"

#include <filesystem>
#include <string>
#include <vector>

#include "common/files/files.h"
#include "common/files/temp_dir.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::checkpoint {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const Epoch kMine{3, "instance", "p"};

class RemoverTest : public ::testing::Test {
 protected:
  RemoverTest() {
    EXPECT_TRUE(BeginEpoch(dir_.path(), kMine).ok());
    for (const char* name : {"step-1-g1", "step-2-g1", "mine"}) {
      EXPECT_TRUE(files::CreateDirectories(dir_.Path(name)).ok());
      EXPECT_TRUE(files::WriteAtomically(dir_.Path(name) + "/file", "x").ok());
    }
  }
  bool Exists(const std::string& name) { return std::filesystem::exists(dir_.Path(name)); }

  files::TempDir dir_;
  // The removed names; read after Drain or after the remover's end.
  std::vector<std::string> removed_;
  std::vector<std::string> errors_;
  Remover::Options options_{
      .on_removed =
          [this](const std::vector<std::string>& names) {
            removed_.insert(removed_.end(), names.begin(), names.end());
          },
      .on_error = [this](const absl::Status& error) { errors_.emplace_back(error.message()); }};
};

TEST_F(RemoverTest, RemovesByNameOnceItsSessionStands) {
  Remover remover(options_);
  remover.Remove({"step-1-g1", "step-1-g1", "step-9-g1"});
  EXPECT_TRUE(remover.Drain(absl::InfiniteDuration()));  // nothing can be waited for yet
  EXPECT_TRUE(Exists("step-1-g1"));
  remover.Begin(dir_.path(), kMine);
  ASSERT_TRUE(remover.Drain(absl::Minutes(1)));
  EXPECT_FALSE(Exists("step-1-g1"));
  EXPECT_TRUE(Exists("step-2-g1"));
  EXPECT_THAT(removed_, ElementsAre("step-1-g1", "step-9-g1"));
  EXPECT_THAT(errors_, IsEmpty());
}

TEST_F(RemoverTest, WhatIsNoNameOfACheckpointIsRefused) {
  const std::string elsewhere = dir_.Path("step-2-g1");
  {
    Remover remover(options_);
    remover.Begin(dir_.path(), kMine);
    remover.Remove({elsewhere, "../x/step-2-g1", "mine", "", "step-2-g1.bad", "."});
    ASSERT_TRUE(remover.Drain(absl::Minutes(1)));
  }
  EXPECT_EQ(errors_.size(), 6u);
  EXPECT_THAT(errors_[1], HasSubstr("found '../x/step-2-g1'"));
  EXPECT_THAT(removed_, IsEmpty());
  EXPECT_TRUE(Exists("step-2-g1/file"));
  EXPECT_TRUE(Exists("mine/file"));
}

TEST_F(RemoverTest, ANewerEpochStopsIt) {
  Remover remover(options_);
  Epoch newer = kMine;
  ++newer.generation;
  ASSERT_TRUE(BeginEpoch(dir_.path(), newer).ok());
  remover.Remove({"step-1-g1", "step-2-g1"});
  remover.Begin(dir_.path(), kMine);
  ASSERT_TRUE(remover.Drain(absl::Minutes(1)));
  EXPECT_TRUE(Exists("step-1-g1/file"));
  EXPECT_TRUE(Exists("step-2-g1/file"));
  EXPECT_THAT(removed_, IsEmpty());
  ASSERT_EQ(errors_.size(), 1u);
  EXPECT_THAT(errors_[0], HasSubstr("found generation 4"));
}

}  // namespace
}  // namespace muster::checkpoint
