// Sessions of ranks with different amounts of input: their collectives, their reports, and their
// ends.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status/status.h"
#include "worker/models/spec_from_json.h"
#include "worker/parallel/recording.h"
#include "worker/train/ranks/rank_threads.h"
#include "worker/train/reports/test_commands.h"
#include "worker/train/session/session.h"
#include "worker/train/training/join_fixture.h"

namespace muster::train {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Returns a model without buffers, because a buffer would overflow first.
v1::ModelSpec Mlp() {
  return models::SpecFromText("mlp", R"({"inputs": 16, "hidden": [64], "classes": 3})");
}

// Takes the reports of rank 0, and gives one command.
class InMemoryCoordinator : public CommandSource, public EventSink {
 public:
  std::optional<v1::Command> command;

  int64_t Newest() const override { return command.has_value() ? 1 : 0; }
  Command Get(int64_t number) const override { return Numbered(number, *command); }
  void Report(const Event& event) override {
    std::lock_guard lock(mutex_);
    if (const auto* joined = std::get_if<RanksJoined>(&event)) joined_.push_back(joined->ranks);
    const auto* step = std::get_if<v1::StepMetrics>(&event);
    if (step != nullptr && !step->has_validation()) steps_.push_back(*step);
    if (const auto* written = std::get_if<CheckpointWritten>(&event))
      saved_.push_back(written->step);
  }
  void Progress(int64_t, const char*, const char*) override {}

  const std::vector<std::vector<JoinedRank>>& joined() const { return joined_; }
  const std::vector<v1::StepMetrics>& steps() const { return steps_; }
  const std::vector<int64_t>& saved() const { return saved_; }

 private:
  std::mutex mutex_;
  std::vector<std::vector<JoinedRank>> joined_;
  std::vector<v1::StepMetrics> steps_;
  std::vector<int64_t> saved_;
};

class JoinSessionTest : public JoinFixture {
 protected:
  struct Result {
    std::vector<absl::StatusOr<SessionEnd>> ends;
    // The operations of gradients, then of parameters; by rank.
    std::vector<std::vector<std::string>> operations;
    std::vector<std::vector<std::string>>
        // The newest collectives of all groups, with their numbers; by rank.
        flights;
    InMemoryCoordinator coordinator;
    std::vector<std::string> Errors() const {
      std::vector<std::string> errors;
      for (const auto& end : ends) errors.push_back(Message(end.status()));
      return errors;
    }
  };
  std::unique_ptr<Result> RunSessions(const Job& job, int world_size,
                                      std::optional<v1::Command> command = std::nullopt) {
    auto result = std::make_unique<Result>();
    result->coordinator.command = std::move(command);
    result->ends.assign(world_size, absl::UnknownError("did not run"));
    result->operations.resize(world_size);
    result->flights.resize(world_size);
    RunRanks(world_size, [&](int rank, comm::Communicator& control, comm::Communicator& data,
                             comm::Communicator& parameters, comm::Communicator& files) {
      parallel::Recording recording(&data), gathers(&parameters);
      comm::FlightRecorder flight;
      SessionParts parts{
          &control, &recording, &gathers, &files, &result->coordinator, &result->coordinator, {}};
      parts.flight = &flight;
      auto session = Session::Create({"job", "instance", 1, rank, "incarnation"}, job, parts);
      auto& end = result->ends[rank];
      end = session.ok() ? (*session)->Run() : session.status();
      if (!end.ok()) {  // like a worker
        control.Abort(end.status());
        data.Abort(end.status());
        parameters.Abort(end.status());
      }
      result->operations[rank] = recording.operations;
      result->operations[rank].insert(result->operations[rank].end(), gathers.operations.begin(),
                                      gathers.operations.end());
      for (const auto& record : flight.Read().newest) {
        result->flights[rank].push_back(absl::StrCat(record.number, " ", record.name));
      }
    });
    return result;
  }
};
INSTANTIATE_TEST_SUITE_P(Strategies, JoinSessionTest, testing::Values(0, 1, 2, 3, 4),
                         NameOfStrategy);

TEST_P(JoinSessionTest, RanksIssueTheSameOperationsWhateverInputTheyHave) {
  const auto run = RunSessions(JobOn({29, 0, 7}, 8), 3);
  for (const auto& end : run->ends) ASSERT_TRUE(end.ok()) << end.status();
  EXPECT_EQ(run->operations[1], run->operations[0]);
  EXPECT_EQ(run->operations[2], run->operations[0]);
  // The collectives include those of the control group, as many as the recorder keeps.
  EXPECT_GE(run->flights[0].size(),
            std::min(comm::FlightRecorder::kKept, run->operations[0].size()));
  EXPECT_EQ(run->flights[1], run->flights[0]);
  EXPECT_EQ(run->flights[2], run->flights[0]);
}

TEST_P(JoinSessionTest, ForEvenInputsNothingMoreTravels) {
  Job job = JobOn({32, 32}, 8);
  const auto joining = RunSessions(job, 2);
  job.batch.last = data::Last::kDrop;
  const auto without = RunSessions(job, 2);
  for (int rank = 0; rank < 2; ++rank) {
    ASSERT_TRUE(joining->ends[rank].ok() && without->ends[rank].ok());
    EXPECT_EQ(joining->operations[rank], without->operations[rank]);
  }
  EXPECT_TRUE(joining->coordinator.joined().empty());
}

TEST_P(JoinSessionTest, WhoHasJoinedIsToldEachTimeThatItChanges) {
  const auto run = RunSessions(JobOn({29, 9, 7, 0}, 8), 4);
  for (const auto& end : run->ends) ASSERT_TRUE(end.ok()) << end.status();
  const std::vector<JoinedRank> first = {{3, 1}}, second = {{2, 2}, {3, 1}},
                                third = {{1, 3}, {2, 2}, {3, 1}};
  EXPECT_THAT(run->coordinator.joined(),
              ElementsAre(first, second, third,
                          first,  // the next epoch
                          std::vector<JoinedRank>{{2, 6}, {3, 1}},
                          std::vector<JoinedRank>{{1, 7}, {2, 6}, {3, 1}},
                          first));  // for the next step, which is not made
  std::vector<int64_t> samples;
  for (const v1::StepMetrics& step : run->coordinator.steps()) samples.push_back(step.samples());
  EXPECT_THAT(samples, ElementsAre(8 + 8 + 7, 8 + 1, 8, 5, 8 + 8 + 7, 8 + 1, 8, 5));
}

TEST_P(JoinSessionTest, TrainingEndsOnAllRanksBeforeTheFirstStepThatOneCannotFill) {
  Job job = JobOn({29, 12, 30}, 8);  // rank 1 has one micro-batch for step 2
  job.batch.uneven_inputs.stop_at_first = true;
  job.stages.push_back(FitStage{4, 0});
  job.checkpoint = CheckpointConfig{folder_.Path("checkpoints"), 0};
  const auto run = RunSessions(job, 3);
  for (const auto& end : run->ends) {
    ASSERT_TRUE(end.ok()) << end.status();
    EXPECT_EQ(end->step, 1);
    EXPECT_FALSE(end->stopped);
    EXPECT_EQ(end->ended_early,
              "rank 1 has run out of input after step 1 (uneven_inputs: stop_at_first)");
  }
  EXPECT_THAT(run->coordinator.saved(), ElementsAre(1));
}

TEST_P(JoinSessionTest, TheLastStepIsSavedIfARankHasNoInputLeftAfterSkipData) {
  Job job = JobOn({29, 20, 30}, 8);  // rank 1 has one micro-batch for step 3
  job.batch.uneven_inputs.stop_at_first = true;
  job.stages.push_back(FitStage{4, 0});
  job.checkpoint = CheckpointConfig{folder_.Path("checkpoints"), 0};
  v1::SkipDataCommand skip;
  skip.set_samples(3 * 8);  // the samples of one step
  const auto run = RunSessions(job, 3, At(1, A(skip)));
  for (const auto& end : run->ends) {
    ASSERT_TRUE(end.ok()) << end.status();
    EXPECT_EQ(end->step, 1);
    EXPECT_EQ(end->ended_early,
              "rank 1 has run out of input after step 1 (uneven_inputs: stop_at_first)");
  }
  EXPECT_THAT(run->coordinator.saved(), ElementsAre(1));
}

TEST_P(JoinSessionTest, TrainingThatWouldEndBeforeItsFirstStepFails) {
  Job job = JobOn({29, 3}, 8);  // rank 1 has one micro-batch of two
  job.batch.uneven_inputs.stop_at_first = true;
  for (const std::string& error : RunSessions(job, 2)->Errors()) {
    EXPECT_THAT(error, HasSubstr("rank 1 has run out of input after step 0 (uneven_inputs: "
                                 "stop_at_first): nothing can be trained"));
  }
  job = JobOn({29, 0}, 8);
  job.batch.uneven_inputs.stop_at_first = true;
  EXPECT_THAT(RunSessions(job, 2)->Errors()[1], HasSubstr("expected a row, found none"));
}

TEST_P(JoinSessionTest, EvenInputsRunThroughTheirEpochsWhereTrainingWouldEndAtTheFirst) {
  Job job = JobOn({15, 13}, 6);  // the last micro-batches are short
  job.batch.uneven_inputs.stop_at_first = true;
  const auto run = RunSessions(job, 2);
  for (const auto& end : run->ends) {
    ASSERT_TRUE(end.ok()) << end.status();
    EXPECT_EQ(end->step, 6);
    EXPECT_EQ(end->ended_early, "");
  }
}

TEST_P(JoinSessionTest, ABadSampleOfOneRankIsTheErrorOfAll) {
  bad_row_ = {0, 11};
  bad_value_ = std::nanf("");
  Job job = JobOn({29, 0, 7}, 8);
  job.batch.order = data::Order::kSequential;
  const auto run = RunSessions(job, 3);
  for (const std::string& error : run->Errors()) {
    EXPECT_THAT(error,
                HasSubstr("rank 0, micro-batch 0, samples 8, 9, 10 and 1 more of data.train"));
    EXPECT_THAT(error, HasSubstr("expected finite numbers, found nan"));
  }
}

TEST_P(JoinSessionTest, ABadSampleOfOneRankInEvaluationIsTheErrorOfAll) {
  bad_row_ = {0, 11};
  bad_value_ = std::nanf("");
  Job job = JobOn({29, 0, 7}, 8);
  job.data.validate = job.data.train;
  job.stages = {ValidateStage{}};
  const auto run = RunSessions(job, 3);
  for (const std::string& error : run->Errors()) {
    EXPECT_THAT(error, HasSubstr("rank 0: samples 8, 9, 10 and 1 more of data.validate"));
    EXPECT_THAT(error, HasSubstr("expected finite numbers, found nan"));
  }
}

TEST_P(JoinSessionTest, ALossThatIsNotFiniteIsTheErrorOfAllWithItsSamples) {
  bad_row_ = {0, 22};  // finite, but its loss is not
  bad_value_ = 3e38f;
  Job job = JobOn({29, 0, 7}, 8);
  *job.spec.mutable_model() = Mlp();
  job.batch.order = data::Order::kSequential;
  const auto run = RunSessions(job, 3);
  for (const std::string& error : run->Errors()) {
    EXPECT_THAT(error, HasSubstr("step 3"));
    EXPECT_EQ(error, run->Errors()[0]);
  }
  EXPECT_THAT(
      run->Errors()[0],
      HasSubstr("comes from rank 0, micro-batch 1, samples 20, 21, 22 and 1 more of data.train"));
}

// The loss reaches the other ranks one step later, because no gradient shows the fault.
TEST_P(JoinSessionTest, ALossThatIsNotFiniteIsThatOfItsStepWhereNothingIsTrained) {
  bad_row_ = {0, 14};
  bad_value_ = 3e38f;
  Job job = JobOn({29, 0, 7}, 8);
  *job.spec.mutable_model() = Mlp();
  job.batch.order = data::Order::kSequential;
  job.model.trainable = {{.freeze = true, .pattern = "*"}};
  const auto run = RunSessions(job, 3);
  for (const std::string& error : run->Errors()) {
    EXPECT_THAT(error, HasSubstr("the loss of step 2 is not finite on rank 0"));
    EXPECT_THAT(
        error,
        HasSubstr("comes from rank 0, micro-batch 1, samples 12, 13, 14 and 1 more of data.train"));
  }
}

TEST_P(JoinSessionTest, AModelThatRunsCollectivesOfItsOwnIsRefused) {
  Job job = JobOn({8, 8}, 2);
  *job.spec.mutable_model() = models::SpecFromText(
      "plugin", R"({"path": "worker/models/plugin/plugin_faults.so", "name": "faulty",
                                   "options": {"fault": "runs-collectives"}})");
  EXPECT_THAT(
      RunSessions(job, 2)->Errors()[0],
      HasSubstr("batch.last: found uneven, but the model plugin runs collectives of its own"));
}

TEST_P(JoinSessionTest, FilesWithoutAnySampleAreRefused) {
  const auto run = RunSessions(JobOn({0, 0}, 2), 2);
  for (const std::string& error : run->Errors()) {
    EXPECT_THAT(
        error,
        HasSubstr("data.train.per_rank: expected at least one sample in the 2 files, found none"));
  }
}

TEST_P(JoinSessionTest, AFileWithoutSamplesIsRefusedWhereNobodyCanJoin) {
  Job job = JobOn({9, 0}, 2);
  job.batch.last = data::Last::kPad;
  const auto run = RunSessions(job, 2);
  EXPECT_THAT(run->Errors()[1], HasSubstr("expected a row, found none"));
}

}  // namespace
}  // namespace muster::train
