// Ranks as threads with different amounts of input: what each holds after each step, what travels,
// what is told.
#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/files/files.h"
#include "common/files/temp_dir.h"
#include "common/safetensors/safetensors.h"
#include "common/status/status.h"
#include "worker/checkpoint/state.h"
#include "worker/comm/local/local_group.h"
#include "worker/parallel/recording.h"
#include "worker/train/rank_data.h"
#include "worker/train/session.h"
#include "worker/train/setup.h"
#include "worker/train/training.h"

namespace muster::train {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr int64_t kPerRank = 4;
// Without buffers, which would be the first to be not finite.
const ModelConfig kMlp = {.kind = "mlp",
                          .options_json = R"({"inputs": 16, "hidden": [64], "classes": 3})"};

// What rank 0 reported.
class Outside : public CommandSource, public EventSink {
 public:
  int64_t Newest() const override { return 0; }
  Command Get(int64_t) const override { return {}; }
  void Report(const Event& event) override {
    std::lock_guard lock(mutex_);
    if (const auto* joined = std::get_if<RanksJoined>(&event)) joined_.push_back(joined->ranks);
    if (const auto* step = std::get_if<StepFinished>(&event)) steps_.push_back(*step);
    if (const auto* written = std::get_if<CheckpointWritten>(&event))
      saved_.push_back(written->step);
  }
  void Progress(int64_t, const char*, const char*) override {}

  const std::vector<std::vector<JoinedRank>>& joined() const { return joined_; }
  const std::vector<StepFinished>& steps() const { return steps_; }
  const std::vector<int64_t>& saved() const { return saved_; }

 private:
  std::mutex mutex_;
  std::vector<std::vector<JoinedRank>> joined_;
  std::vector<StepFinished> steps_;
  std::vector<int64_t> saved_;
};

// A convnet (it has BatchNorm); each rank has a file of its own with so many samples.
class JoinTest : public testing::TestWithParam<int> {
 protected:
  std::string WriteRows(int64_t rank, int64_t count) {
    const auto plan = safetensors::Plan({{"inputs", safetensors::DType::kF32, {count, 1, 4, 4}},
                                         {"labels", safetensors::DType::kI64, {count}}},
                                        {});
    std::string file = plan->prefix;
    for (int64_t i = 0; i < count * 16; ++i) {
      float value = std::sin(static_cast<float>(i * (rank + 3)));
      if (bad_row_ == std::pair(rank, i / 16)) value = bad_value_;
      file.append(reinterpret_cast<const char*>(&value), sizeof(value));
    }
    for (int64_t i = 0; i < count; ++i) {
      const int64_t label = (i * 7 + rank) % 3;
      file.append(reinterpret_cast<const char*>(&label), sizeof(label));
    }
    const std::string path = folder_.Path(absl::StrCat(rank, ".safetensors"));
    EXPECT_TRUE(files::WriteAtomically(path, file).ok());
    return path;
  }

  Job JobOn(const std::vector<int64_t>& sizes, int64_t steps) {
    Job job;
    job.seed = 5;
    job.model = {
        .kind = "convnet",
        .options_json = R"({"inputs": [1, 4, 4], "widths": [4], "blocks": [2], "classes": 3})"};
    RowFiles files{.per_rank = true};
    for (size_t rank = 0; rank < sizes.size(); ++rank) {
      files.paths.push_back(WriteRows(rank, sizes[rank]));
    }
    job.train = files;
    job.strategy = Strategy();
    job.optimizer = OptimizerConfig{0.01, optim::AdamWOptions{}};
    job.batch = {.per_rank = kPerRank, .accumulate = 2, .last = data::Last::kUneven};
    job.stages = {FitStage{steps, 0}};
    return job;
  }

  static StrategyConfig Strategy() {
    switch (GetParam()) {
      case 0:
        return parallel::DdpOptions{.bucket_bytes = 500, .first_bucket_bytes = 100};
      case 1:
        return parallel::ShardedDdpOptions{.bucket_bytes = 500, .first_bucket_bytes = 100};
      case 2:
        return parallel::FsdpOptions{};
      case 3:
        return parallel::ShardedDdpOptions{.bucket_bytes = 500,
                                           .first_bucket_bytes = 100,
                                           .reduce_every = parallel::ReduceEvery::kMicroBatch};
      default:
        return parallel::FsdpOptions{.reduce_every = parallel::ReduceEvery::kMicroBatch};
    }
  }

  struct Result {
    std::vector<absl::StatusOr<SessionEnd>> ends;
    std::vector<std::vector<std::string>> operations;  // of the data group, by rank
    Outside outside;
    std::vector<std::string> Errors() const {
      std::vector<std::string> errors;
      for (const auto& end : ends) errors.push_back(Message(end.status()));
      return errors;
    }
  };
  std::unique_ptr<Result> RunSessions(const Job& job, int world_size) {
    auto result = std::make_unique<Result>();
    result->ends.assign(world_size, absl::UnknownError("did not run"));
    result->operations.resize(world_size);
    RunRanks(world_size, [&](int rank, comm::Communicator& control, comm::Communicator& data) {
      parallel::Recording recording(&data);
      const SessionParts parts{&control, &recording, &result->outside, &result->outside, {}};
      auto session = Session::Create({"job", "instance", 1, rank, "incarnation"}, job, parts);
      auto& end = result->ends[rank];
      end = session.ok() ? (*session)->Run() : session.status();
      if (!end.ok()) {  // as a worker does
        control.Abort(end.status());
        data.Abort(end.status());
      }
      result->operations[rank] = recording.operations;
    });
    return result;
  }

  using Rank = std::function<void(int rank, comm::Communicator& control, comm::Communicator& data)>;
  static void RunRanks(int world_size, const Rank& body) {
    auto control = comm::LocalGroup::Create(world_size);
    auto data = comm::LocalGroup::Create(world_size);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < world_size; ++rank) {
      threads.emplace_back([&, rank] {
        const auto own_control = std::move(control[rank]);
        const auto own_data = std::move(data[rank]);
        body(rank, *own_control, *own_data);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  files::TempDir folder_;
  std::pair<int64_t, int64_t> bad_row_ = {-1, -1};
  float bad_value_ = 0;
};

std::string NameOf(const testing::TestParamInfo<int>& info) {
  constexpr const char* kNames[] = {"Ddp", "ShardedDdp", "Fsdp", "ShardedDdpEveryMicroBatch",
                                    "FsdpEveryMicroBatch"};
  return kNames[info.param];
}
INSTANTIATE_TEST_SUITE_P(Strategies, JoinTest, testing::Values(0, 1, 2, 3, 4), NameOf);

// What a rank holds of the state: by item, its bytes.
std::map<std::string, std::string> BytesOf(const checkpoint::State& state) {
  std::map<std::string, std::string> bytes;
  for (const auto& piece : state.held) {
    bytes[absl::StrCat(Name(state.items[piece.item]), "@", piece.begin)] =
        std::string(static_cast<const char*>(piece.tensor.const_data_ptr()), piece.tensor.nbytes());
  }
  return bytes;
}

// One rank's parts of a session, step by step.
class Steps {
 public:
  Steps(const Job& job, int rank, comm::Communicator& control, comm::Communicator& data)
      : job_(job), rank_(rank), model_(*BuildModel(job)) {
    data_ = *OpenRankData("data.train", *job.train, model_->Input(), data::Emptiness::kAllowed,
                          control);
    finite_.emplace(*model_);
    for (size_t i = 0; i < data_.own_sizes.size(); ++i) samplers_.push_back(SamplerOf(i));
    auto training = Training::Create({.job = &job_,
                                      .rank = rank,
                                      .model = model_.get(),
                                      .communicator = &data,
                                      .control = &control,
                                      .dataset = data_.dataset.get(),
                                      .sampler = &samplers_[rank],
                                      .finite = &*finite_},
                                     nullptr);
    EXPECT_TRUE(training.ok()) << training.status();
    training_ = *std::move(training);
  }

  absl::StatusOr<StepResult> Next() {
    std::vector<RankInput> inputs;
    for (size_t rank = 0; rank < samplers_.size(); ++rank) {
      const auto share = samplers_[rank].ShareOf(position_, rank);
      inputs.push_back({share.micro_batches, share.samples, share.micro_batches == 0});
    }
    ++step_;
    auto result = training_->stepper().Run(
        {step_, position_, PlanInputs(inputs, job_.uneven_inputs, 2 * samplers_.size()), 0.01});
    position_ = samplers_[rank_].After(position_);
    return result;
  }
  bool HasInput() const { return samplers_[rank_].ShareOf(position_, rank_).micro_batches > 0; }
  Training& training() { return *training_; }

 private:
  data::Sampler SamplerOf(int64_t rank) const {
    return *data::Sampler::Create({.size = data_.own_sizes[rank],
                                   .seed = job_.seed,
                                   .world_size = static_cast<int64_t>(data_.own_sizes.size()),
                                   .per_rank = job_.batch.per_rank,
                                   .accumulate = job_.batch.accumulate,
                                   .last = job_.batch.last,
                                   .own = data_.Own(rank)});
  }

  const Job job_;
  const int rank_;
  std::unique_ptr<models::Model> model_;
  RankData data_;
  std::optional<FiniteCheck> finite_;
  std::vector<data::Sampler> samplers_;
  std::unique_ptr<Training> training_;
  data::Position position_;
  int64_t step_ = 0;
};

TEST_P(JoinTest, AllRanksHoldTheSameAfterEachStepTheOptimizersStateToo) {
  const std::vector<int64_t> sizes = {29, 0, 7};  // 4 steps, none, 1 (the second window is short)
  for (const DivideBy divide_by : {DivideBy::kInitial, DivideBy::kActive, DivideBy::kSamples}) {
    Job job = JobOn(sizes, 8);
    job.uneven_inputs.divide_by = divide_by;
    std::vector<std::vector<std::map<std::string, std::string>>> held(3);
    RunRanks(3, [&](int rank, comm::Communicator& control, comm::Communicator& data) {
      Steps steps(job, rank, control, data);
      for (int step = 0; step < 8; ++step) {
        const auto result = steps.Next();
        ASSERT_TRUE(result.ok()) << result.status();
        EXPECT_EQ(result->outcome, Outcome::kApplied);
        ASSERT_TRUE(steps.training().strategy().AwaitParameters().ok());
        held[rank].push_back(BytesOf(steps.training().State()));
      }
    });
    // Sharded state is on one rank each; what several hold must be the same bits.
    for (int step = 0; step < 8; ++step) {
      size_t common = 0;
      for (int rank = 1; rank < 3; ++rank) {
        for (const auto& [name, bytes] : held[rank][step]) {
          const auto found = held[0][step].find(name);
          if (found == held[0][step].end()) continue;
          ++common;
          EXPECT_TRUE(found->second == bytes)
              << name << " differs on rank " << rank << " after step " << step + 1;
        }
      }
      // Parameters, moments, steps and buffers; where they are sharded, buffers at least.
      EXPECT_GT(common, GetParam() == 0 ? 60u : 15u);
      EXPECT_NE(held[0][step], held[0][(step + 1) % 8]);
    }
  }
}

TEST_P(JoinTest, RanksIssueTheSameOperationsWhateverInputTheyHave) {
  const auto run = RunSessions(JobOn({29, 0, 7}, 8), 3);
  for (const auto& end : run->ends) ASSERT_TRUE(end.ok()) << end.status();
  EXPECT_EQ(run->operations[1], run->operations[0]);
  EXPECT_EQ(run->operations[2], run->operations[0]);
}

TEST_P(JoinTest, ForEvenInputsNothingMoreTravels) {
  Job job = JobOn({32, 32}, 8);
  const auto joining = RunSessions(job, 2);
  job.batch.last = data::Last::kDrop;
  const auto without = RunSessions(job, 2);
  for (int rank = 0; rank < 2; ++rank) {
    ASSERT_TRUE(joining->ends[rank].ok() && without->ends[rank].ok());
    EXPECT_EQ(joining->operations[rank], without->operations[rank]);
  }
  EXPECT_TRUE(joining->outside.joined().empty());
}

// Asks for a tensor's value, on a device, wait until it has computed it.
int CountOfValuesAskedFor(const std::function<void()>& body) {
  static thread_local int count;
  count = 0;
  const auto handle = at::addThreadLocalCallback(
      at::RecordFunctionCallback([](const at::RecordFunction& function)
                                     -> std::unique_ptr<at::ObserverContext> {
        for (const char* name : {"aten::_local_scalar_dense", "aten::nonzero", "aten::equal"}) {
          count += std::strcmp(function.name(), name) == 0;
        }
        return nullptr;
      }).scopes({at::RecordScope::FUNCTION}));
  {
    const at::RecordFunctionGuard guard(true);
    body();
  }
  at::removeCallback(handle);
  return count;
}

TEST_P(JoinTest, AStepOfAJoinedRankNeverWaitsForTheDevice) {
  Job job = JobOn({29, 0, 7}, 8);
  job.optimizer->kind =
      optim::SgdOptions{.momentum = 0.9};  // AdamW on the CPU reads its counts of steps
  std::vector<std::vector<int>> values(3);
  RunRanks(3, [&](int rank, comm::Communicator& control, comm::Communicator& data) {
    Steps steps(job, rank, control, data);
    for (int step = 0; step < 4; ++step) {
      values[rank].push_back(CountOfValuesAskedFor([&] { EXPECT_TRUE(steps.Next().ok()); }));
    }
  });
  // One for each loss of an own micro-batch, which is asked for behind its backward.
  EXPECT_THAT(values[0], ElementsAre(2, 2, 2, 2));
  EXPECT_THAT(values[1], ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(values[2], ElementsAre(2, 0, 0, 0));
}

TEST_P(JoinTest, WhoHasJoinedIsToldEachTimeThatItChanges) {
  const auto run = RunSessions(JobOn({29, 9, 7, 0}, 8), 4);
  for (const auto& end : run->ends) ASSERT_TRUE(end.ok()) << end.status();
  const std::vector<JoinedRank> first = {{3, 1}}, second = {{2, 2}, {3, 1}},
                                third = {{1, 3}, {2, 2}, {3, 1}};
  EXPECT_THAT(run->outside.joined(), ElementsAre(first, second, third,
                                                 first,  // the next epoch
                                                 std::vector<JoinedRank>{{2, 6}, {3, 1}},
                                                 std::vector<JoinedRank>{{1, 7}, {2, 6}, {3, 1}},
                                                 first));  // of the step that would come next
  std::vector<int64_t> samples;
  for (const StepFinished& step : run->outside.steps()) samples.push_back(step.samples);
  EXPECT_THAT(samples, ElementsAre(8 + 8 + 7, 8 + 1, 8, 5, 8 + 8 + 7, 8 + 1, 8, 5));
}

TEST_P(JoinTest, TrainingEndsOnAllRanksBeforeTheFirstStepThatOneCannotFill) {
  Job job = JobOn({29, 12, 30}, 8);  // rank 1 has one micro-batch for step 2
  job.uneven_inputs.stop_at_first = true;
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
  EXPECT_THAT(run->outside.saved(), ElementsAre(1));
}

TEST_P(JoinTest, TrainingThatWouldEndBeforeItsFirstStepFails) {
  Job job = JobOn({29, 3}, 8);  // rank 1 has one micro-batch of two
  job.uneven_inputs.stop_at_first = true;
  for (const std::string& error : RunSessions(job, 2)->Errors()) {
    EXPECT_THAT(error, HasSubstr("rank 1 has run out of input after step 0 (uneven_inputs: "
                                 "stop_at_first): nothing can be trained"));
  }
  job = JobOn({29, 0}, 8);
  job.uneven_inputs.stop_at_first = true;
  EXPECT_THAT(RunSessions(job, 2)->Errors()[1], HasSubstr("expected a row, found none"));
}

TEST_P(JoinTest, EvenInputsRunThroughTheirEpochsWhereTrainingWouldEndAtTheFirst) {
  Job job = JobOn({15, 13}, 6);  // the last micro-batches are short, but there
  job.uneven_inputs.stop_at_first = true;
  const auto run = RunSessions(job, 2);
  for (const auto& end : run->ends) {
    ASSERT_TRUE(end.ok()) << end.status();
    EXPECT_EQ(end->step, 6);
    EXPECT_EQ(end->ended_early, "");
  }
}

TEST_P(JoinTest, ABadSampleOfOneRankIsTheErrorOfAll) {
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

TEST_P(JoinTest, ALossThatIsNotFiniteIsTheErrorOfAllWithItsSamples) {
  bad_row_ = {0, 22};  // finite, but no loss of it is
  bad_value_ = 3e38f;
  Job job = JobOn({29, 0, 7}, 8);
  job.model = kMlp;
  job.batch.order = data::Order::kSequential;
  const auto run = RunSessions(job, 3);
  for (const std::string& error : run->Errors()) {
    EXPECT_THAT(error, HasSubstr("step 3"));
    EXPECT_EQ(error, run->Errors()[0]);
  }
  EXPECT_THAT(
      run->Errors()[0],
      HasSubstr(
          "it is that of rank 0, micro-batch 1, samples 20, 21, 22 and 1 more of data.train"));
}

// Its loss is known to the others one step later: no gradient tells of it.
TEST_P(JoinTest, ALossThatIsNotFiniteIsThatOfItsStepWhereNothingIsTrained) {
  bad_row_ = {0, 14};
  bad_value_ = 3e38f;
  Job job = JobOn({29, 0, 7}, 8);
  job.model = kMlp;
  job.batch.order = data::Order::kSequential;
  job.trainable = {{.freeze = true, .pattern = "*"}};
  const auto run = RunSessions(job, 3);
  for (const std::string& error : run->Errors()) {
    EXPECT_THAT(error, HasSubstr("the loss of step 2 is not finite on rank 0"));
    EXPECT_THAT(
        error,
        HasSubstr(
            "it is that of rank 0, micro-batch 1, samples 12, 13, 14 and 1 more of data.train"));
  }
}

TEST_P(JoinTest, AModelThatRunsCollectivesOfItsOwnIsRefused) {
  Job job = JobOn({8, 8}, 2);
  job.model = {.kind = "plugin",
               .options_json = R"({"path": "worker/models/plugin_faults.so", "name": "faulty",
                                   "options": {"fault": "runs-collectives"}})"};
  EXPECT_THAT(
      RunSessions(job, 2)->Errors()[0],
      HasSubstr("batch.last: found uneven, but the model plugin runs collectives of its own"));
}

TEST_P(JoinTest, FilesWithoutAnySampleAreRefused) {
  const auto run = RunSessions(JobOn({0, 0}, 2), 2);
  for (const std::string& error : run->Errors()) {
    EXPECT_THAT(
        error,
        HasSubstr(
            "data.train.per_rank: expected a sample in one of the 2 files at least, found none"));
  }
}

TEST_P(JoinTest, AFileWithoutSamplesIsRefusedWhereNobodyCanJoin) {
  Job job = JobOn({9, 0}, 2);
  job.batch.last = data::Last::kPad;
  const auto run = RunSessions(job, 2);
  EXPECT_THAT(run->Errors()[1], HasSubstr("expected a row, found none"));
}

}  // namespace
}  // namespace muster::train
