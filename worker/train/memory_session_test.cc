// What a session's memory is counted as (docs/memory.md). Ranks that are threads share the
// counters.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <utility>
#include <vector>

#include "worker/memory/counting_allocator.h"
#include "worker/models/spec_from_json.h"
#include "worker/train/rank_threads.h"
#include "worker/train/session.h"

namespace muster::train {
namespace {

using memory::Purpose;
using memory::Usage;

constexpr uint64_t kVocabulary = 29, kContext = 8, kLayers = 2, kWidth = 16;
// Per layer two norms, attention in and out, MLP in and out; around them embeddings and a norm. The
// head is tied.
constexpr uint64_t kLayer = 2 * 2 * kWidth + (kWidth + 1) * 3 * kWidth + (kWidth + 1) * kWidth +
                            (kWidth + 1) * 4 * kWidth + (4 * kWidth + 1) * kWidth;
constexpr uint64_t kParameterBytes =
    4 * ((kVocabulary + kContext) * kWidth + kLayers * kLayer + 2 * kWidth);
constexpr uint64_t kParameters = 2 + 12 * kLayers + 2;

// Reads the counters when rank 0 reports a step or a validation pass: between forwards.
class Outside : public CommandSource, public EventSink {
 public:
  int64_t Newest() const override { return 0; }
  Command Get(int64_t number) const override { return {.number = number, .what = StopCommand()}; }
  void Progress(int64_t, const char*, const char*) override {}
  void Report(const Event& event) override {
    if (std::holds_alternative<v1::StepMetrics>(event)) usage_ = memory::MemoryInUse();
  }
  const std::optional<Usage>& usage() const { return usage_; }

 private:
  std::optional<Usage> usage_;  // of the newest such report
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
    job.train = TokenFiles{{tokens_}};
    job.validate = TokenFiles{{tokens_}};
    job.strategy = parallel::DdpOptions{};
    job.optimizer = OptimizerConfig{1e-2, optim::AdamWOptions{}};
    job.batch = {.per_rank = 3, .accumulate = 2};
    job.stages = {FitStage{3, 0}};
    return job;
  }

  // The counters when rank 0 reported last.
  Usage Run(const Job& job, int world_size) {
    std::vector<Outside> outsides(world_size);
    RunRanks(world_size, [&](int rank, comm::Communicator& control, comm::Communicator& data,
                             comm::Communicator& parameters, comm::Communicator& files) {
      const SessionParts parts{&control,        &data,           &parameters, &files,
                               &outsides[rank], &outsides[rank], {}};
      auto session = Session::Create({"job", "this", 1, rank, "incarnation"}, job, parts);
      const absl::Status end = session.ok() ? (*session)->Run().status() : session.status();
      EXPECT_TRUE(end.ok()) << end;
    });
    return outsides[0].usage().value_or(Usage());
  }

  std::filesystem::path tokens_;
};

TEST_F(MemorySessionTest, TrainingHasParametersMomentsBucketsAndActivations) {
  const Usage usage = Run(SmallJob(), 1);
  EXPECT_EQ(usage.of(Purpose::kParameters).bytes, kParameterBytes);
  EXPECT_EQ(usage.of(Purpose::kMoments).bytes, 2 * kParameterBytes + 4 * kParameters)
      << "with the number of steps of each";
  // All gradients lie in the buckets, whose parts are padded to 16 elements at most.
  EXPECT_GE(usage.of(Purpose::kBuckets).bytes, kParameterBytes);
  EXPECT_LE(usage.of(Purpose::kBuckets).bytes, kParameterBytes + 4 * 16 * kParameters);
  EXPECT_EQ(usage.of(Purpose::kGradients).peak_bytes, 0u);
  // Of a step nothing is left behind it; the next batch may have been read ahead, inputs and
  // targets. In it: a batch of 3 samples, at least its logits and their gradient.
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
  job.train.reset();
  job.stages = {ValidateStage{}};
  const Usage usage = Run(job, 1);
  EXPECT_EQ(usage.of(Purpose::kParameters).bytes, kParameterBytes);
  EXPECT_EQ(usage.of(Purpose::kMoments).peak_bytes, 0u);
  EXPECT_EQ(usage.of(Purpose::kBuckets).peak_bytes, 0u);
  EXPECT_EQ(usage.of(Purpose::kActivations).bytes, 0u);
  EXPECT_GE(usage.of(Purpose::kActivations).peak_bytes, 4 * 3 * kContext * kVocabulary);
}

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
