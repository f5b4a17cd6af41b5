// Sessions whose best checkpoint is lost, or whose first save of it fails.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "common/files/files.h"
#include "worker/train/reports/test_commands.h"
#include "worker/train/session/failing_save.h"
#include "worker/train/session/session_fixture.h"
#include "worker/train/training/setup.h"

namespace muster::train {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class BestCheckpointTest : public SessionTest {
 protected:
  std::unique_ptr<Result> Good(const Job& job, int64_t generation = 1,
                               const std::vector<std::string>& checkpoints = {},
                               int64_t stop_after = 0) {
    auto run = RunSessions(job, 2, generation, checkpoints, stop_after);
    for (const auto& end : run->ends) EXPECT_TRUE(end.ok()) << end.status();
    return run;
  }
  // Returns a job whose loss falls, so that each pass is better than all earlier passes.
  Job Validating(int64_t steps, int64_t every) const {
    Job job = SmallJob();
    job.schedule = optim::Constant();
    FitStage fit{steps, every};
    fit.passes.keep_best = Criterion{};
    job.stages = {fit};
    job.checkpoint = Every(0);
    job.checkpoint->background = true;
    return job;
  }
  static std::vector<std::string> NamesOf(const std::vector<std::string>& paths) {
    std::vector<std::string> names;
    for (const std::string& path : paths) names.push_back(std::filesystem::path(path).filename());
    return names;
  }
};

TEST_F(BestCheckpointTest, OneThatIsBeingRemovedIsForgotten) {
  Job job = Validating(12, 2);
  std::get<FitStage>(job.stages[0]).passes.keep_best = Criterion{.larger_is_better = true};
  const auto before = Good(job, 1, {}, /*stop_after=*/6);
  const std::string newest = before->coordinator.checkpoints().front();
  const std::string best = before->coordinator.best().back();
  ASSERT_NE(best, newest);
  // Other checkpoints that do not count keep their files.
  start_.checkpoints.retired = {best};
  const auto kept = Good(job, 2, {newest});
  EXPECT_EQ(kept->coordinator.best().front(), best);
  for (const std::string& path : kept->coordinator.checkpoints()) std::filesystem::remove_all(path);

  start_.checkpoints.dropped = {best};
  const auto after = Good(job, 3, {newest});
  EXPECT_THAT(after->coordinator.notice_messages()["BEST_CHECKPOINT_LOST"],
              HasSubstr(best + " is being removed"));
  ASSERT_FALSE(after->coordinator.best().empty());
  const std::string next = std::to_string(after->coordinator.validations().begin()->first);
  EXPECT_EQ(NamesOf(after->coordinator.best()).front(), "step-" + next + "-g3") << "the next pass";
}

TEST_F(BestCheckpointTest, OneThatFailsAndThatACommandSavesInTheSameStepIsTheBestOne) {
  Job job = Validating(10, 4);
  job.weights_export = {.path = folder_ / "model.safetensors", .from = ExportConfig::From::kBest};
  const FailingSave fault(folder_, 8);
  watch_ = fault;
  commands_ = {Numbered(1, A(v1::SaveCheckpointCommand()), 8)};
  const auto run = Good(job);
  EXPECT_EQ(fault.failures(), 1);
  EXPECT_TRUE(run->coordinator.finished().at(1).ok()) << run->coordinator.finished().at(1);
  ASSERT_LT(run->coordinator.validations().at(8), run->coordinator.validations().at(4));
  EXPECT_THAT(NamesOf(run->coordinator.best()), ElementsAre("step-4-g1", "step-8-g1"));
  const std::string exported = files::ReadFile(folder_ / "model.safetensors").value_or("");

  watch_ = nullptr;
  commands_.clear();
  std::filesystem::remove_all(folder_ / "ckpt");
  std::filesystem::remove(folder_ / "model.safetensors");
  job.stages = {FitStage{8, 0}};
  job.weights_export->from = ExportConfig::From::kLast;
  Good(job);
  EXPECT_EQ(exported, files::ReadFile(folder_ / "model.safetensors").value_or(""));
}

TEST_F(BestCheckpointTest, OneThatFailsAndThatAStopSavesInTheSameStepIsTheBestOne) {
  const Job job = Validating(10, 4);
  const FailingSave fault(folder_, 8);
  watch_ = fault;
  commands_ = {Numbered(1, A(v1::StopCommand()), 8)};
  const auto run = Good(job);
  EXPECT_EQ(fault.failures(), 1);
  EXPECT_EQ(run->ends[0]->step, 8);
  EXPECT_THAT(NamesOf(run->coordinator.best()), ElementsAre("step-4-g1", "step-8-g1"));
  watch_ = nullptr;
  commands_.clear();
  const auto after = Good(job, 2, run->coordinator.checkpoints());
  EXPECT_THAT(NamesOf(after->coordinator.best()), ElementsAre("step-8-g1")) << "as it begins";
}

TEST_F(BestCheckpointTest, OneThatFailsIsNotTheBestOneOfALaterStep) {
  const Job job = Validating(10, 4);
  const FailingSave fault(folder_, 8);
  watch_ = fault;
  commands_ = {Numbered(1, A(v1::SaveCheckpointCommand()), 9)};
  const auto run = Good(job);
  EXPECT_EQ(fault.failures(), 1);
  EXPECT_THAT(NamesOf(run->coordinator.checkpoints()),
              ElementsAre("step-10-g1", "step-9-g1", "step-4-g1"));
  EXPECT_THAT(NamesOf(run->coordinator.best()), ElementsAre("step-4-g1"));
}

}  // namespace
}  // namespace muster::train
