#include "worker/train/setup.h"

#include <gtest/gtest.h>

#include <functional>

namespace muster::train {
namespace {

class Samples : public data::Dataset {
 public:
  explicit Samples(int64_t size) : size_(size) {}
  int64_t size() const override { return size_; }
  absl::StatusOr<data::Batch> Read(std::span<const int64_t>) const override {
    return absl::UnimplementedError("not read");
  }

 private:
  const int64_t size_;
};

Job SmallJob() {
  Job job;
  job.model = {.kind = "mlp", .options_json = R"({"inputs": 4, "hidden": [3], "classes": 2})"};
  job.optimizer = OptimizerConfig{1e-3, optim::AdamWOptions{}};
  job.schedule = optim::WarmupCosine{.warmup_steps = 2, .total_steps = 9};
  job.stages = {FitStage{9, 0}};
  return job;
}

int64_t Fingerprint(const Job& job, int64_t train = 100, int64_t validate = 10) {
  const Samples train_data(train);
  const Samples validate_data(validate);
  return PlanFingerprint(job, **BuildModel(job), &train_data, &validate_data);
}

TEST(PlanFingerprint, IsTheSameForTheSamePlan) {
  EXPECT_EQ(Fingerprint(SmallJob()), Fingerprint(SmallJob()));
}

TEST(PlanFingerprint, SeesWhatRanksMustAgreeOn) {
  const std::function<void(Job&)> changes[] = {
      [](Job& job) { job.optimizer->lr = 1.0000001e-3; },
      [](Job& job) { std::get<optim::AdamWOptions>(job.optimizer->kind).eps = 1e-7; },
      [](Job& job) { std::get<optim::WarmupCosine>(job.schedule).min_ratio = 0.1; },
      [](Job& job) { job.schedule = optim::Constant{}; },
      [](Job& job) { job.clip_grad_norm = 1; },
      [](Job& job) { job.batch.accumulate = 2; },
      [](Job& job) { job.stages.push_back(ValidateStage{}); },
      [](Job& job) { job.model.options_json = R"({"inputs": 4, "hidden": [5], "classes": 2})"; },
  };
  for (const auto& change : changes) {
    Job job = SmallJob();
    change(job);
    EXPECT_NE(Fingerprint(job), Fingerprint(SmallJob())) << &change - changes;
  }
}

TEST(PlanFingerprint, SeesDataSetsOfAnotherSize) {
  EXPECT_NE(Fingerprint(SmallJob(), 101), Fingerprint(SmallJob()));
  EXPECT_NE(Fingerprint(SmallJob(), 100, 11), Fingerprint(SmallJob()));
}

}  // namespace
}  // namespace muster::train
