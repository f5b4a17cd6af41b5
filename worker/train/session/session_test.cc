// Sessions of N ranks as threads over comm/local, with real token files and real checkpoints.
#include "worker/train/session/session.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "worker/models/spec_from_json.h"
#include "worker/train/ranks/failure.h"
#include "worker/train/ranks/rank_threads.h"
#include "worker/train/session/session_fixture.h"

namespace muster::train {
namespace {

namespace fs = std::filesystem;

TEST_F(SessionTest, EachMicroBatchAndEachBatchOfAnEvaluationMovesOnItsOwnRank) {
  const auto count = [this](int64_t steps, int64_t per_rank, bool validate) {
    Job job = SmallJob();
    job.stages = {FitStage{steps, 0}};
    if (validate) job.stages.push_back(ValidateStage{});
    job.batch.per_rank = per_rank;
    const auto run = RunSessions(job, 2);
    EXPECT_TRUE(run->ends[0].ok() && run->ends[1].ok()) << run->ends[0].status();
    EXPECT_GT(run->activities[1].count(), 0u);
    return run->activities[0].count();
  };
  const uint64_t two_steps = count(2, 3, false);
  // Two micro-batches per step, with a forward and a backward each.
  EXPECT_GE(count(4, 3, false), two_steps + 2 * 4);
  // 11 samples, 6 of them on this rank.
  EXPECT_GE(count(2, 3, true), two_steps + 2);
}

TEST_F(SessionTest, TrainsToTheEndAtEveryWorldSize) {
  for (int world_size = 1; world_size <= 4; ++world_size) {
    const auto run = RunSessions(SmallJob(), world_size);
    for (const auto& end : run->ends) {
      ASSERT_TRUE(end.ok()) << end.status();
      EXPECT_EQ(end->step, 12);
      EXPECT_FALSE(end->stopped);
    }
    ASSERT_EQ(run->coordinator.losses().size(), 12u);
    EXPECT_LT(run->coordinator.losses().at(12), run->coordinator.losses().at(1));
  }
}

TEST_F(SessionTest, LibTorchHasTheThreadsOfTheJobInTheThreadOfTheSession) {
  const int before = at::get_num_threads();
  Job job = SmallJob();
  for (const int threads : {3, 1}) {
    job.numerics.threads = threads;
    RunRanks(1, [&](int rank, comm::Communicator& control, comm::Communicator& data,
                    comm::Communicator& parameters, comm::Communicator& files) {
      InMemoryCoordinator coordinator;
      const SessionParts parts{&control,     &data,        &parameters, &files,
                               &coordinator, &coordinator, {}};
      const auto session =
          Session::Create({"job", job_instance_, 1, rank, "incarnation"}, job, parts);
      ASSERT_TRUE(session.ok()) << session.status();
      EXPECT_EQ(at::get_num_threads(), threads);
    });
  }
  at::set_num_threads(before);
}

TEST_F(SessionTest, ValidationChangesNothingInTraining) {
  Job with = SmallJob();
  with.stages = {ValidateStage{}, FitStage{12, 2}, ValidateStage{}};
  const auto plain = RunSessions(SmallJob(), 2);
  const auto validated = RunSessions(with, 2);
  ASSERT_TRUE(validated->ends[0].ok()) << validated->ends[0].status();
  EXPECT_EQ(validated->coordinator.validations().size(), 7u);
  EXPECT_EQ(plain->coordinator.losses(), validated->coordinator.losses());
}

TEST_F(SessionTest, ValidationIsTheSameMeanAtEveryWorldSize) {
  Job job = SmallJob();
  job.stages = {ValidateStage{}};
  job.optimizer.reset();
  job.data.train.reset();
  const auto alone = RunSessions(job, 1);
  ASSERT_TRUE(alone->ends[0].ok()) << alone->ends[0].status();
  const double expected = alone->coordinator.validations().at(0);
  for (int world_size = 2; world_size <= 4; ++world_size) {
    // With 11 samples, some of 2 to 4 ranks has fewer. Only the order of the sums differs.
    EXPECT_NEAR(RunSessions(job, world_size)->coordinator.validations().at(0), expected, 1e-6);
  }
}

TEST_F(SessionTest, AStopTakesEffectAtOneStepOnAllRanks) {
  const auto run = RunSessions(SmallJob(), 3, 1, {}, /*stop_after=*/5);
  for (const auto& end : run->ends) {
    ASSERT_TRUE(end.ok()) << end.status();
    EXPECT_TRUE(end->stopped);
    EXPECT_EQ(end->step, run->ends[0]->step);
    EXPECT_LT(end->step, 12);
  }
}

// The commands of the only rank that hears of the preemption, after `after_step` steps are known.
class Preempting : public CommandSource {
 public:
  Preempting(const InMemoryCoordinator* coordinator, int64_t after_step)
      : coordinator_(coordinator), after_step_(after_step) {}
  int64_t Newest() const override { return coordinator_->Newest(); }
  Command Get(int64_t number) const override { return coordinator_->Get(number); }
  bool Preempted() const override { return coordinator_->newest_step() >= after_step_; }

 private:
  const InMemoryCoordinator* const coordinator_;
  const int64_t after_step_;
};

TEST_F(SessionTest, WhereOneRankIsPreemptedAllSaveAtOneStepAndTheJobGoesOnBitwiseEqual) {
  Job job = SmallJob();
  const auto undisturbed = RunSessions(job, 2);
  job.checkpoint = Every(100);  // no periodic save is due
  Result first;
  first.ends.assign(2, absl::UnknownError("did not run"));
  const Preempting preempting(&first.coordinator, 5);
  RunRanks(2, [&](int rank, comm::Communicator& control, comm::Communicator& data,
                  comm::Communicator& parameters, comm::Communicator& files) {
    const CommandSource* commands = &first.coordinator;
    if (rank == 1) commands = &preempting;
    const SessionParts parts{&control,           &data, &parameters, &files, commands,
                             &first.coordinator, {}};
    auto session = Session::Create({"job", job_instance_, 1, rank, "incarnation"}, job, parts);
    first.ends[rank] = session.ok() ? (*session)->Run() : session.status();
  });
  for (const auto& end : first.ends) {
    ASSERT_TRUE(end.ok()) << end.status();
    EXPECT_TRUE(end->preempted);
    EXPECT_FALSE(end->stopped);
    EXPECT_EQ(end->step, first.ends[0]->step);
    EXPECT_LT(end->step, 12);
  }
  ASSERT_EQ(first.coordinator.checkpoints().size(), 1u);
  const auto next = RunSessions(job, 2, 2, first.coordinator.checkpoints());
  ASSERT_TRUE(next->ends[0].ok()) << next->ends[0].status();
  EXPECT_FALSE(next->ends[0]->preempted);
  EXPECT_EQ(next->coordinator.losses().begin()->first, first.ends[0]->step + 1)
      << "no step is done twice";
  auto losses = first.coordinator.losses();
  losses.merge(next->coordinator.losses());
  EXPECT_EQ(losses, undisturbed->coordinator.losses());
}

// The commands of the only rank that is told of the preemption, in step `step`; 0: at the start.
class PreemptedDuring : public CommandSource, public EventSink {
 public:
  PreemptedDuring(InMemoryCoordinator* coordinator, int64_t step)
      : coordinator_(coordinator), step_(step), preempted_(step == 0) {}
  int64_t Newest() const override { return coordinator_->Newest(); }
  Command Get(int64_t number) const override { return coordinator_->Get(number); }
  bool Preempted() const override { return preempted_; }
  void Report(const Event& event) override { coordinator_->Report(event); }
  void Progress(int64_t step, const char*, const char* doing) override {
    if (step + 1 == step_ && std::string(doing) == "training") preempted_ = true;
  }

 private:
  InMemoryCoordinator* const coordinator_;
  const int64_t step_;
  bool preempted_;
};

// Jobs that are preempted at a step with a due validation pass.
class DueValidationTest : public SessionTest {
 protected:
  std::unique_ptr<Result> RunPreempted(const Job& job, int64_t step, int64_t generation = 1,
                                       const std::vector<std::string>& checkpoints = {}) {
    auto result = std::make_unique<Result>();
    result->ends.assign(2, absl::UnknownError("did not run"));
    PreemptedDuring source(&result->coordinator, step);
    RunRanks(2, [&](int rank, comm::Communicator& control, comm::Communicator& data,
                    comm::Communicator& parameters, comm::Communicator& files) {
      SessionParts parts;
      parts.control = &control;
      parts.gradients = &data;
      parts.parameters = &parameters;
      parts.files = &files;
      parts.commands = &result->coordinator;
      parts.events = &result->coordinator;
      if (rank == 1) {
        parts.commands = &source;
        parts.events = &source;
      }
      parts.checkpoints.recorded = checkpoints;
      auto session =
          Session::Create({"job", job_instance_, generation, rank, "incarnation"}, job, parts);
      result->ends[rank] = session.ok() ? (*session)->Run() : session.status();
    });
    return result;
  }
  Job ValidatingJob() const {
    Job job = SmallJob();
    job.stages = {FitStage{12, 3}};
    return job;
  }
};

TEST_F(DueValidationTest, IsLeftToTheNextGenerationWhichRunsItFirst) {
  Job job = ValidatingJob();
  const auto undisturbed = RunSessions(job, 2);
  job.checkpoint = Every(100);
  for (const int64_t step : {6, 12}) {
    std::filesystem::remove_all(folder_ / "ckpt");
    const auto first = RunPreempted(job, step);
    for (const auto& end : first->ends) {
      ASSERT_TRUE(end.ok()) << end.status();
      EXPECT_TRUE(end->preempted);
      EXPECT_EQ(end->step, step);
    }
    EXPECT_FALSE(first->coordinator.validations().contains(step)) << "the save comes first";
    ASSERT_EQ(first->coordinator.checkpoints().size(), 1u);
    // A generation that must leave at once leaves the pass to the next generation, too.
    const auto second = RunPreempted(job, 0, 2, first->coordinator.checkpoints());
    ASSERT_TRUE(second->ends[0].ok()) << second->ends[0].status();
    EXPECT_TRUE(second->ends[0]->preempted);
    EXPECT_TRUE(second->coordinator.validations().empty());
    const auto third = RunSessions(job, 2, 3, first->coordinator.checkpoints());
    ASSERT_TRUE(third->ends[0].ok()) << third->ends[0].status();
    EXPECT_FALSE(third->ends[0]->preempted);
    EXPECT_EQ(third->ends[0]->step, 12);
    auto validations = first->coordinator.validations();
    validations.merge(third->coordinator.validations());
    EXPECT_EQ(validations, undisturbed->coordinator.validations());
    auto losses = first->coordinator.losses();
    losses.merge(third->coordinator.losses());
    EXPECT_EQ(losses, undisturbed->coordinator.losses());
  }
}

TEST_F(DueValidationTest, IsRunOnceWhereTheJobGoesOnFromALaterCheckpoint) {
  Job job = ValidatingJob();
  job.checkpoint = Every(100);
  const auto first = RunPreempted(job, 6);
  ASSERT_TRUE(first->ends[0].ok()) << first->ends[0].status();
  // The roll call record with the preemption is sent in the next step.
  const auto second = RunPreempted(job, 7, 2, first->coordinator.checkpoints());
  ASSERT_TRUE(second->ends[0].ok()) << second->ends[0].status();
  EXPECT_EQ(second->ends[0]->step, 8);
  EXPECT_TRUE(second->coordinator.validations().contains(6));
  const auto third = RunSessions(job, 2, 3, second->coordinator.checkpoints());
  ASSERT_TRUE(third->ends[0].ok()) << third->ends[0].status();
  EXPECT_EQ(third->coordinator.validations().begin()->first, 9);
}

TEST_F(DueValidationTest, WithoutCheckpointsTheStepComesAgainUnlessItIsTheLast) {
  const auto early = RunPreempted(ValidatingJob(), 6);
  ASSERT_TRUE(early->ends[0].ok()) << early->ends[0].status();
  EXPECT_TRUE(early->ends[0]->preempted);
  EXPECT_FALSE(early->coordinator.validations().contains(6));
  const auto late = RunPreempted(ValidatingJob(), 12);
  ASSERT_TRUE(late->ends[0].ok()) << late->ends[0].status();
  EXPECT_FALSE(late->ends[0]->preempted) << "all of its work is done";
  EXPECT_TRUE(late->coordinator.validations().contains(12));
}

TEST_F(SessionTest, AMissingRankIsAConsequenceForTheOthers) {
  const auto run = RunSessions(SmallJob(), 3, 1, {}, 0, /*kill_rank=*/1);
  for (int rank : {0, 2}) {
    EXPECT_EQ(Classify(run->ends[rank].status(), Phase::kCreate), FailureKind::kConsequence)
        << run->ends[rank].status();
  }
}

TEST_F(SessionTest, ALossThatIsNotFiniteEndsTheJobForGood) {
  Job job = SmallJob();
  job.optimizer->lr = 1e30;
  job.numerics.clip_grad_norm.reset();
  const auto run = RunSessions(job, 2);
  for (const auto& end : run->ends) {
    EXPECT_EQ(end.status().code(), absl::StatusCode::kOutOfRange) << end.status();
    EXPECT_EQ(Classify(end.status(), Phase::kRun), FailureKind::kPermanent);
  }
}

TEST_F(SessionTest, ParametersThatAreNotFiniteAreNotKept) {
  Job job = SmallJob();
  job.optimizer =
      OptimizerConfig{INFINITY, optim::SgdOptions{}};  // infinite parameters with a finite loss
  job.weights_export = {.path = folder_ / "model.safetensors"};
  job.checkpoint = Every(1);
  for (const int64_t steps : {1, 3}) {  // a last save, and background saves
    job.stages = {FitStage{steps, 0}};
    const auto run = RunSessions(job, 2);
    int found = 0;
    for (const auto& end : run->ends) {
      found += absl::IsOutOfRange(end.status());
      // A rank that hears of the error ends first, while the other waits in the next roll call.
      EXPECT_TRUE(absl::IsOutOfRange(end.status()) ||
                  Classify(end.status(), Phase::kRun) == FailureKind::kConsequence)
          << end.status();
    }
    EXPECT_GE(found, steps == 1 ? 2 : 1);
    EXPECT_TRUE(run->coordinator.checkpoints().empty());
    EXPECT_FALSE(fs::exists(job.weights_export->path));
  }
}

TEST_F(SessionTest, BadFilesAreNamed) {
  Job job = SmallJob();
  job.data.train = TokenFiles{{folder_ / "nowhere.bin"}};
  const auto missing = RunSessions(job, 1)->ends[0].status();
  EXPECT_EQ(Classify(missing, Phase::kCreate), FailureKind::kPermanent);
  EXPECT_NE(std::string(missing.message()).find("data.train"), std::string::npos) << missing;
  EXPECT_NE(std::string(missing.message()).find("nowhere.bin"), std::string::npos) << missing;
}

TEST_F(SessionTest, ExportsTheWeights) {
  Job job = SmallJob();
  job.weights_export = {.path = folder_ / "out" / "model.safetensors"};
  const auto run = RunSessions(job, 2);
  ASSERT_TRUE(run->ends[0].ok()) << run->ends[0].status();
  EXPECT_TRUE(fs::exists(job.weights_export->path));
  // The file has the trained weights: a job that starts from it has the same validation loss as the
  // trained model.
  Job validate = SmallJob();
  validate.stages = {ValidateStage{}};
  validate.spec.mutable_model()->set_weights(job.weights_export->path);
  job.stages.push_back(ValidateStage{});
  const double expected = RunSessions(job, 2)->coordinator.validations().at(12);
  EXPECT_EQ(RunSessions(validate, 2)->coordinator.validations().at(0), expected);
}

TEST_F(SessionTest, AFileForEachRankResumesBitwiseInAnyEpoch) {
  WriteTokens("short.bin", 450);
  Job job = SmallJob();
  job.data.train =
      TokenFiles{.paths = {folder_ / "train.bin", folder_ / "short.bin"}, .per_rank = true};
  job.batch = {.per_rank = 3, .accumulate = 2, .last = data::Last::kPad};
  job.stages = {FitStage{25, 0}};  // 56 samples of the short file: 10 steps per epoch
  const auto undisturbed = RunSessions(job, 2);
  ASSERT_TRUE(undisturbed->ends[0].ok()) << undisturbed->ends[0].status();
  ASSERT_TRUE(undisturbed->ends[1].ok()) << undisturbed->ends[1].status();
  job.checkpoint = Every(7);
  auto first = RunSessions(job, 2, 1, {}, /*stop_after=*/13);
  ASSERT_TRUE(first->ends[0].ok()) << first->ends[0].status();
  auto losses = first->coordinator.losses();
  EXPECT_LT(losses.size(), 25u);
  const auto second = RunSessions(job, 2, 2, first->coordinator.checkpoints());
  ASSERT_TRUE(second->ends[1].ok()) << second->ends[1].status();
  for (const auto& [step, loss] : second->coordinator.losses()) losses[step] = loss;
  EXPECT_EQ(losses, undisturbed->coordinator.losses());
  // Another order of the files changes the training: each rank reads another file.
  job.data.train =
      TokenFiles{.paths = {folder_ / "short.bin", folder_ / "train.bin"}, .per_rank = true};
  job.checkpoint.reset();
  EXPECT_NE(RunSessions(job, 2)->coordinator.losses(), undisturbed->coordinator.losses());
}

TEST_F(SessionTest, ValidationOverFilesOfTheRanksCountsEverySampleOnce) {
  WriteTokens("a.bin", 90);
  WriteTokens("b.bin", 500);
  WriteTokens("c.bin", 9);
  const std::vector<std::string> paths = {folder_ / "a.bin", folder_ / "b.bin", folder_ / "c.bin"};
  Job job = SmallJob();
  job.stages = {ValidateStage{}};
  job.optimizer.reset();
  job.data.train.reset();
  job.data.validate = TokenFiles{.paths = paths};
  const double expected = RunSessions(job, 1)->coordinator.validations().at(0);
  job.data.validate = TokenFiles{.paths = paths, .per_rank = true};
  const auto own = RunSessions(job, 3);
  ASSERT_TRUE(own->ends[2].ok()) << own->ends[2].status();
  EXPECT_NEAR(own->coordinator.validations().at(0), expected,
              1e-6);  // only the order of the sums differs
}

TEST_F(SessionTest, ARankOpensNoFileButItsOwn) {
  Job job = SmallJob();
  job.data.train =
      TokenFiles{.paths = {folder_ / "train.bin", folder_ / "nowhere.bin"}, .per_rank = true};
  const auto run = RunSessions(job, 2);
  // The first rank does not need the file of the second rank.
  EXPECT_EQ(run->ends[1].status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(std::string(run->ends[1].status().message()).find("rank 1: data.train: "), 0);
  EXPECT_EQ(run->ends[0].status().message(), run->ends[1].status().message());
  EXPECT_EQ(Classify(run->ends[0].status(), Phase::kCreate), FailureKind::kConsequence);
  const auto one = RunSessions(job, 1)->ends[0].status();
  EXPECT_EQ(one.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(std::string(one.message())
                .find("data.train: per_rank: expected a file for each of 1 ranks, found 2"),
            std::string::npos)
      << one;
}

TEST_F(SessionTest, ASampleThatIsNotFiniteEndsTheJobForGoodAndIsNamed) {
  Job job = SmallJob();
  *job.spec.mutable_model() =
      models::SpecFromText("mlp", R"({"inputs": 2, "hidden": [], "classes": 2})");
  std::ofstream inputs(folder_ / "inputs.npy", std::ios::binary);
  std::ofstream labels(folder_ / "labels.npy", std::ios::binary);
  const auto header = [](const std::string& descr, const std::string& shape) {
    std::string text = "{'descr': '" + descr + "', 'fortran_order': False, 'shape': " + shape + "}";
    text.resize(117, ' ');
    return std::string("\x93NUMPY\x01\0\x76\0", 10) + text + "\n";
  };
  inputs << header("<f4", "(60, 2)");
  labels << header("<i8", "(60,)");
  for (int64_t i = 0; i < 60; ++i) {
    const float row[] = {0.5f, i == 47 ? NAN : 1.0f};
    inputs.write(reinterpret_cast<const char*>(row), sizeof(row));
    const int64_t label = i % 2;
    labels.write(reinterpret_cast<const char*>(&label), sizeof(label));
  }
  inputs.close();
  labels.close();
  job.data.train = data::NpyOptions{{folder_ / "inputs.npy"}, {folder_ / "labels.npy"}};
  job.data.validate.reset();
  const auto run = RunSessions(job, 2);
  int named = 0;
  for (const auto& end : run->ends) {
    if (end.status().code() != absl::StatusCode::kInvalidArgument) continue;
    ++named;
    EXPECT_EQ(Classify(end.status(), Phase::kRun), FailureKind::kPermanent);
    EXPECT_NE(
        std::string(end.status().message()).find("inputs.npy: inputs: row 47, byte offset 508"),
        std::string::npos)
        << end.status();
  }
  EXPECT_EQ(named, 1);
}

}  // namespace
}  // namespace muster::train
