// Freezing and unfreezing in sessions with 16-bit precision. Every strategy is bitwise equal to
// ddp, even with steps that overflow and are skipped. tests/parity/refresh_test.py compares with
// PyTorch.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "common/safetensors/safetensors.h"
#include "worker/train/job/job.h"
#include "worker/train/reports/coordinator_interface.h"
#include "worker/train/reports/test_commands.h"
#include "worker/train/session/session_fixture.h"

namespace muster::train {
namespace {

const StrategyConfig kStrategies[] = {
    parallel::DdpOptions{.bucket_bytes = 4096, .first_bucket_bytes = 1024},
    parallel::ShardedDdpOptions{.bucket_bytes = 4096, .first_bucket_bytes = 1024},
    parallel::FsdpOptions()};

struct Setting {
  Precision precision;
  int accumulate;
};

std::string NameOf(const testing::TestParamInfo<Setting>& info) {
  return (info.param.precision == Precision::kBfloat16 ? "Bfloat16" : "Float16") +
         std::string("Accumulate") + std::to_string(info.param.accumulate);
}

class SteeringIn16Bits : public SessionTest, public testing::WithParamInterface<Setting> {
 protected:
  static Command Set(int64_t number, int64_t at_step, const TrainableRule& rule) {
    return Numbered(number, RulesOf({rule}), at_step);
  }

  // Returns the loss scale in the newest checkpoint.
  static float LossScale(const Result& result) {
    for (const auto& entry :
         std::filesystem::recursive_directory_iterator(result.coordinator.checkpoints().at(0))) {
      if (entry.path().extension() != ".safetensors") continue;
      const auto file = safetensors::File::Open(entry.path());
      if (!file.ok()) continue;
      const safetensors::Entry* scale = file->Find("scaler/scale");
      if (scale == nullptr) continue;
      float value = 0;
      std::memcpy(&value, file->data(*scale), sizeof(value));
      return value;
    }
    ADD_FAILURE() << "no loss scale";
    return 0;
  }
};

INSTANTIATE_TEST_SUITE_P(All, SteeringIn16Bits,
                         testing::Values(Setting{Precision::kBfloat16, 1},
                                         Setting{Precision::kBfloat16, 2},
                                         Setting{Precision::kFloat16, 1},
                                         Setting{Precision::kFloat16, 2}),
                         NameOf);

TEST_P(SteeringIn16Bits, GivesTheBitsOfDdpInEveryStrategy) {
  Job job = SmallJob();
  job.numerics.precision = GetParam().precision;
  job.batch = {.per_rank = 2, .accumulate = GetParam().accumulate};
  job.data.validate.reset();
  // The gradients of the first steps do not fit into float16.
  job.numerics.loss_scale.initial = std::ldexp(1.0, 23);
  job.checkpoint = Every(0);
  // The first change comes between steps that overflow.
  commands_ = {Set(1, 1, {true, "transformer.h.0.*"}), Set(2, 4, {true, "*.bias"}),
               Set(3, 6, {false, "transformer.h.0.*"}), Set(4, 9, {false, "*"})};
  std::map<int64_t, double> losses;
  for (const StrategyConfig& strategy : kStrategies) {
    job.strategy = strategy;
    job.checkpoint->directory = folder_ / std::to_string(strategy.index());
    const auto result = RunSessions(job, 3);
    for (const auto& end : result->ends) ASSERT_TRUE(end.ok()) << end.status();
    for (int64_t number = 1; number <= 4; ++number) {
      EXPECT_TRUE(result->coordinator.finished().at(number).ok()) << number;
    }
    ASSERT_EQ(result->coordinator.losses().size(), 12u);
    if (losses.empty()) losses = result->coordinator.losses();
    EXPECT_EQ(result->coordinator.losses(), losses) << "strategy " << strategy.index();
    if (job.numerics.precision != Precision::kFloat16) continue;
    // Without an overflow, the loss scale could only have grown.
    EXPECT_LT(LossScale(*result), job.numerics.loss_scale.initial);
  }
}

}  // namespace
}  // namespace muster::train
