// The purposes under which a session's memory is counted (docs/reference/memory.md). Ranks that are
// threads share the counters.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <numeric>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "worker/comm/flight/flight_recorder.h"
#include "worker/memory/counting_allocator.h"
#include "worker/models/spec_from_json.h"
#include "worker/train/ranks/rank_threads.h"
#include "worker/train/reports/test_commands.h"
#include "worker/train/session/session.h"

namespace muster::train {
namespace {

using memory::Purpose;
using memory::Usage;

constexpr uint64_t kVocabulary = 29, kContext = 8, kLayers = 2, kWidth = 16;
// The numbers of a layer: two norms, attention in and out, MLP in and out. The model also has
// embeddings and a final norm. The head is tied.
constexpr uint64_t kLayer = 2 * 2 * kWidth + (kWidth + 1) * 3 * kWidth + (kWidth + 1) * kWidth +
                            (kWidth + 1) * 4 * kWidth + (4 * kWidth + 1) * kWidth;
constexpr uint64_t kParameterBytes =
    4 * ((kVocabulary + kContext) * kWidth + kLayers * kLayer + 2 * kWidth);
constexpr uint64_t kParameters = 2 + 12 * kLayers + 2;
// The inputs and targets of 3 samples, int64.
constexpr uint64_t kBatchBytes = 2 * 3 * kContext * 8;

// Whether the thread of this folder of /proc is ending. A joined thread stays for a moment.
bool IsEnding(const std::filesystem::path& task) {
  constexpr uint64_t kExiting = 4;  // PF_EXITING of the kernel
  std::string line;
  std::getline(std::ifstream(task / "stat"), line);
  // The flags are the seventh field, after the name in parentheses.
  std::istringstream fields(line.substr(line.rfind(')') + 1));
  std::string skipped;
  for (int i = 0; i < 6; ++i) fields >> skipped;
  uint64_t flags = 0;
  return !(fields >> flags) || (flags & kExiting) != 0;
}

// Returns the numbers of open files and of threads of this process.
std::pair<int64_t, int64_t> FilesAndThreads() {
  using Entries = std::filesystem::directory_iterator;
  const Entries files("/proc/self/fd"), tasks("/proc/self/task");
  return {std::distance(begin(files), end(files)),
          std::count_if(begin(tasks), end(tasks),
                        [](const auto& task) { return !IsEnding(task.path()); })};
}

// The counters at the report of a test.
struct AtTest {
  Usage usage;
  std::pair<int64_t, int64_t> files_and_threads;
  // The number begun so far, without those of the control channel: a pass asks the other ranks more
  // often if its rounds are slow (PassPace).
  uint64_t collectives = 0;
};

// Reads the counters when rank 0 reports a step or a pass. No forward runs then.
class InMemoryCoordinator : public CommandSource, public EventSink {
 public:
  int64_t Newest() const override { return 0; }
  Command Get(int64_t number) const override { return Numbered(number, A(v1::StopCommand())); }
  void Progress(int64_t, const char*, const char*) override {}
  void Report(const Event& event) override {
    const auto* metrics = std::get_if<v1::StepMetrics>(&event);
    if (metrics == nullptr) return;
    usage_ = memory::MemoryInUse();
    if (metrics->has_test()) {
      for (const auto& record : flight.Read().newest) begun_[record.channel] = record.of_channel;
      begun_[kControl] = 0;
      const uint64_t begun = std::accumulate(begun_.begin(), begun_.end(), uint64_t{0});
      tests_.push_back({*usage_, FilesAndThreads(), begun});
    }
  }
  const std::optional<Usage>& usage() const { return usage_; }
  const std::vector<AtTest>& tests() const { return tests_; }

  comm::FlightRecorder flight;

 private:
  static constexpr size_t kControl = 0;  // the channel of roll calls

  std::vector<AtTest> tests_;
  std::array<uint64_t, comm::FlightRecorder::kChannels> begun_{};  // by channel
  std::optional<Usage> usage_;                                     // at the newest such report
};

class MemorySessionTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { memory::InstallCountingAllocator(); }
  void SetUp() override {
    memory::ResetPeaks();
    tokens_ = std::filesystem::path(::testing::TempDir()) / "tokens.bin";
    std::ofstream file(tokens_, std::ios::binary);
    for (int i = 0; i < 600; ++i) file.put(static_cast<char>(i % kVocabulary)).put(0);
  }

  Job SmallJob() const {
    Job job;
    job.seed = 7;
    *job.spec.mutable_model() = models::SpecFromText(
        "gpt2",
        R"({"vocab_size": 29, "context": 8, "layers": 2, "heads": 2, "width": 16, "dropout": 0})");
    job.data.train = TokenFiles{{tokens_}};
    job.data.validate = TokenFiles{{tokens_}};
    job.data.test = TokenFiles{{tokens_}};
    job.strategy = parallel::DdpOptions{};
    job.optimizer = OptimizerConfig{1e-2, optim::AdamWOptions{}};
    job.batch = {.per_rank = 3, .accumulate = 2};
    job.stages = {FitStage{3, 0}};
    return job;
  }

  // Returns the counters at the last report of rank 0.
  Usage Run(const Job& job, int world_size) {
    std::vector<InMemoryCoordinator> coordinators(world_size);
    RunRanks(world_size, [&](int rank, comm::Communicator& control, comm::Communicator& data,
                             comm::Communicator& parameters, comm::Communicator& files) {
      SessionParts parts{
          &control, &data, &parameters, &files, &coordinators[rank], &coordinators[rank], {}};
      parts.flight = &coordinators[rank].flight;
      auto session = Session::Create({"job", "this", 1, rank, "incarnation"}, job, parts);
      const absl::Status end = session.ok() ? (*session)->Run().status() : session.status();
      EXPECT_TRUE(end.ok()) << end;
    });
    tests_seen_ = coordinators[0].tests();
    return coordinators[0].usage().value_or(Usage());
  }

  std::vector<AtTest> tests_seen_;  // reported by rank 0 in the newest run

  std::filesystem::path tokens_;
};

TEST_F(MemorySessionTest, TrainingHasParametersMomentsBucketsAndActivations) {
  const Usage usage = Run(SmallJob(), 1);
  EXPECT_EQ(usage.of(Purpose::kParameters).bytes, kParameterBytes);
  EXPECT_EQ(usage.of(Purpose::kMoments).bytes, 2 * kParameterBytes + 4 * kParameters)
      << "with the number of steps of each";
  // All gradients are in the buckets. Each part of a bucket has at most 16 elements of padding.
  EXPECT_GE(usage.of(Purpose::kBuckets).bytes, kParameterBytes);
  EXPECT_LE(usage.of(Purpose::kBuckets).bytes, kParameterBytes + 4 * 16 * kParameters);
  EXPECT_EQ(usage.of(Purpose::kGradients).peak_bytes, 0u);
  // After a step, only the inputs and targets of the next batch may be in memory. During a step,
  // there are at least the logits of a batch of 3 samples, and their gradient.
  EXPECT_LE(usage.of(Purpose::kActivations).bytes, 2 * 8 * 3 * kContext);
  EXPECT_GE(usage.of(Purpose::kActivations).peak_bytes, 2 * 4 * 3 * kContext * kVocabulary);
  EXPECT_LT(usage.of(Purpose::kOther).bytes, 10000u) << "nothing that grows with the model";
}

TEST_F(MemorySessionTest, ShardedTrainingHasGradientsOfItsSliceAndBucketsOnlyWithinAStep) {
  Job job = SmallJob();
  job.strategy = parallel::ShardedDdpOptions{};
  const Usage usage = Run(job, 1);
  constexpr uint64_t kPadding = 4 * 16 * kParameters;
  EXPECT_GE(usage.of(Purpose::kParameters).bytes, kParameterBytes);
  EXPECT_LE(usage.of(Purpose::kParameters).bytes, kParameterBytes + kPadding);
  EXPECT_EQ(usage.of(Purpose::kGradients).bytes, usage.of(Purpose::kParameters).bytes)
      << "all of one rank are its slice";
  EXPECT_EQ(usage.of(Purpose::kMoments).bytes, 2 * kParameterBytes + 4 * kParameters);
  EXPECT_EQ(usage.of(Purpose::kBuckets).bytes, 0u);
  EXPECT_GE(usage.of(Purpose::kBuckets).peak_bytes, kParameterBytes);
  EXPECT_LT(usage.of(Purpose::kOther).bytes, 10000u) << "nothing that grows with the model";
}

TEST_F(MemorySessionTest, ValidationHasActivationsAndNoGradients) {
  Job job = SmallJob();
  job.optimizer.reset();
  job.data.train.reset();
  job.stages = {ValidateStage{}};
  const Usage usage = Run(job, 1);
  EXPECT_EQ(usage.of(Purpose::kParameters).bytes, kParameterBytes);
  EXPECT_EQ(usage.of(Purpose::kMoments).peak_bytes, 0u);
  EXPECT_EQ(usage.of(Purpose::kBuckets).peak_bytes, 0u);
  EXPECT_EQ(usage.of(Purpose::kActivations).bytes, 0u);
  EXPECT_GE(usage.of(Purpose::kActivations).peak_bytes, 4 * 3 * kContext * kVocabulary);
}

class StrategyMemoryTest : public MemorySessionTest,
                           public ::testing::WithParamInterface<StrategyConfig> {
 protected:
  Job JobOf(std::vector<Stage> stages) const {
    Job job = SmallJob();
    job.strategy = GetParam();
    job.stages = std::move(stages);
    return job;
  }
  // Returns the bytes of parameters that two ranks hold together.
  static uint64_t ParametersOfTwo() {
    return std::holds_alternative<parallel::FsdpOptions>(GetParam()) ? kParameterBytes
                                                                     : 2 * kParameterBytes;
  }
};
constexpr uint64_t kSlack = 2 * 4 * 16 * kParameters;  // slices begin at multiples of 16 elements

TEST_P(StrategyMemoryTest, AfterTheLastFitATestHoldsTheParametersAlone) {
  const Usage before = memory::MemoryInUse();
  Run(JobOf({FitStage{3, 0}, TestStage{}, FitStage{3, 0}, TestStage{}, TestStage{}}), 2);
  ASSERT_EQ(tests_seen_.size(), 3u);
  EXPECT_GE(tests_seen_[0].usage.of(Purpose::kMoments).bytes, 2 * kParameterBytes)
      << "another fit follows";
  for (const size_t last : {1, 2}) {
    const Usage& usage = tests_seen_[last].usage;
    EXPECT_EQ(usage.of(Purpose::kMoments).bytes, 0u);
    EXPECT_EQ(usage.of(Purpose::kGradients).bytes, 0u);
    EXPECT_EQ(usage.of(Purpose::kBuckets).bytes, 0u);
    EXPECT_LE(usage.of(Purpose::kParameters).bytes, ParametersOfTwo() + kSlack);
  }
  // After the last stage, the other rank may already have ended.
  EXPECT_GE(tests_seen_[1].usage.of(Purpose::kParameters).bytes, ParametersOfTwo());
  const Usage after = memory::MemoryInUse();
  for (const Purpose purpose : {Purpose::kParameters, Purpose::kGradients, Purpose::kMoments,
                                Purpose::kBuckets, Purpose::kActivations, Purpose::kGathered}) {
    EXPECT_EQ(after.of(purpose).bytes, before.of(purpose).bytes) << static_cast<int>(purpose);
  }
}

// Averages count as moments. The numbers are those of two ranks together.
TEST_P(StrategyMemoryTest, AveragesTakeTheMemoryOfTheParametersAsLongAsTheyAreUsed) {
  const bool all_on_each = std::holds_alternative<parallel::DdpOptions>(GetParam());
  const uint64_t averages = all_on_each ? 2 * kParameterBytes : kParameterBytes;
  Job job = JobOf({FitStage{3, 0}, TestStage{}, FitStage{3, 0}, TestStage{}, TestStage{}});
  Run(job, 2);
  const uint64_t without = tests_seen_[0].usage.of(Purpose::kMoments).bytes;
  for (const bool evaluate : {false, true}) {
    job.evaluation.averages = AverageConfig{.evaluate = evaluate};
    Run(job, 2);
    EXPECT_EQ(tests_seen_[0].usage.of(Purpose::kMoments).bytes, without + averages);
    EXPECT_EQ(tests_seen_[1].usage.of(Purpose::kMoments).bytes, evaluate ? averages : 0);
  }
}

// The same holds whether evaluation gathers all parameters or each unit.
TEST_P(StrategyMemoryTest, AfterAPassAsManyBytesAreInUseAsBeforeIt) {
  std::vector<uint64_t> gathered;
  for (const EvaluationReshard reshard :
       {EvaluationReshard::kAuto, EvaluationReshard::kAlways, EvaluationReshard::kNever}) {
    Job job = JobOf({FitStage{2, 0}, TestStage{}, TestStage{}, FitStage{1, 0}});
    job.evaluation.reshard = reshard;
    job.evaluation.averages = AverageConfig{.evaluate = true};
    Run(job, 1);
    ASSERT_EQ(tests_seen_.size(), 2u);
    // The report follows the pass.
    for (const AtTest& test : tests_seen_) {
      gathered.push_back(test.usage.of(Purpose::kGathered).bytes);
    }
  }
  for (const uint64_t bytes : gathered) EXPECT_EQ(bytes, gathered[0]);
  EXPECT_LT(gathered[0], kParameterBytes) << "not all of them";
}

TEST_P(StrategyMemoryTest, WithoutFitThereAreNeitherGradientsNorMoments) {
  const std::filesystem::path output = tokens_.parent_path() / "predictions.npy";
  Job job =
      JobOf({PredictStage{.output = output, .overwrite = true}, TestStage{}, ValidateStage{}});
  job.data.predict = job.data.test;
  job.optimizer.reset();
  job.data.train.reset();
  const Usage usage = Run(job, 2);
  for (const Purpose purpose : {Purpose::kMoments, Purpose::kGradients, Purpose::kBuckets}) {
    EXPECT_EQ(usage.of(purpose).peak_bytes, 0u) << static_cast<int>(purpose);
  }
  const Usage& at_test = tests_seen_.at(0).usage;
  EXPECT_GE(at_test.of(Purpose::kParameters).bytes, ParametersOfTwo());
  EXPECT_LE(at_test.of(Purpose::kParameters).bytes, ParametersOfTwo() + kSlack);
}

// The second file is ten times as large: 700 KB.
TEST_P(StrategyMemoryTest, PredictionsOfMoreSamplesNeedNoMoreMemory) {
  Job job = JobOf(
      {PredictStage{.output = tokens_.parent_path() / "predictions.safetensors", .overwrite = true},
       TestStage{}});
  job.optimizer.reset();
  job.data.train.reset();
  const auto peaks = [&](const TokenFiles& data) {
    memory::ResetPeaks();
    job.data.predict = data;
    const Usage usage = Run(job, 2);
    return usage.of(Purpose::kActivations).peak_bytes + usage.of(Purpose::kOther).peak_bytes;
  };
  const uint64_t few = peaks(TokenFiles{{tokens_}});
  const uint64_t many = peaks(TokenFiles{std::vector<std::string>(10, tokens_)});
  // The other rank may be at another point of its round.
  EXPECT_LE(many, few + 50'000);
}

// Remaining hooks and buckets would show as collectives: each bucket is reduced once per step.
TEST_P(StrategyMemoryTest, TwentyCyclesLeaveWhatTheFirstOneLeft) {
  std::vector<Stage> stages;
  for (int cycle = 0; cycle < 20; ++cycle) {
    stages.insert(stages.end(), {FitStage{2, 0}, ValidateStage{}, FitStage{1, 0}, TestStage{}});
  }
  stages.emplace_back(FitStage{1, 0});  // so that the last cycle frees nothing
  for (const int world_size : {1, 2}) {
    Run(JobOf(stages), world_size);
    ASSERT_EQ(tests_seen_.size(), 20u);
    const AtTest& first = tests_seen_[0];
    const uint64_t in_a_cycle = tests_seen_[1].collectives - first.collectives;
    EXPECT_GE(in_a_cycle, 3u) << "one for each step";
    for (size_t cycle = 1; cycle < 20; ++cycle) {
      const AtTest& now = tests_seen_[cycle];
      // The other rank may still hold its last batch.
      for (const Purpose purpose :
           {Purpose::kParameters, Purpose::kGradients, Purpose::kMoments, Purpose::kBuckets}) {
        EXPECT_EQ(now.usage.of(purpose).bytes, first.usage.of(purpose).bytes)
            << "cycle " << cycle << ", purpose " << static_cast<int>(purpose);
      }
      if (world_size == 1) {
        // The batch of the next step may have been read ahead.
        EXPECT_LE(now.usage.of(Purpose::kActivations).bytes, kBatchBytes) << "cycle " << cycle;
        EXPECT_EQ(now.usage.of(Purpose::kOther).bytes, first.usage.of(Purpose::kOther).bytes);
        EXPECT_EQ(now.files_and_threads, first.files_and_threads) << "cycle " << cycle;
      }
      EXPECT_EQ(now.collectives - tests_seen_[cycle - 1].collectives, in_a_cycle);
    }
  }
}

std::string NameOfStrategy(const ::testing::TestParamInfo<StrategyConfig>& info) {
  constexpr const char* kNames[] = {"Ddp", "ShardedDdp", "Fsdp"};
  return kNames[info.index];
}

INSTANTIATE_TEST_SUITE_P(
    All, StrategyMemoryTest,
    ::testing::Values(StrategyConfig(parallel::DdpOptions{.bucket_bytes = 4096}),
                      StrategyConfig(parallel::ShardedDdpOptions{.bucket_bytes = 4096}),
                      StrategyConfig(parallel::FsdpOptions{})),
    NameOfStrategy);

TEST_F(MemorySessionTest, NothingIsLeftOfASessionThatEnded) {
  const Usage before = memory::MemoryInUse();
  Run(SmallJob(), 2);
  const Usage after = memory::MemoryInUse();
  for (const Purpose purpose :
       {Purpose::kParameters, Purpose::kMoments, Purpose::kBuckets, Purpose::kActivations}) {
    EXPECT_EQ(after.of(purpose).bytes, before.of(purpose).bytes) << static_cast<int>(purpose);
  }
  EXPECT_EQ(after.of(Purpose::kParameters).peak_bytes, 2 * kParameterBytes)
      << "two ranks in one process";
}

}  // namespace
}  // namespace muster::train
