#include "tests/parity/sharded_ddp/parity.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "ATen/TensorOperators.h"
#include "ATen/ops/item.h"
#include "gtest/gtest.h"
#include "tests/parity/sharded_ddp/training.h"
#include "worker/parallel/test_model.h"

namespace muster::parity {
namespace {

constexpr int64_t kSteps = 6;

// The largest differences of sharded_ddp to ddp after one step. Both begin the step with the same
// state, so losses have the same bits.
struct Bounds {
  // The error of a parameter's moment, as a part of the moment's largest element. A gradient's
  // error is a part of the ranks' contributions. The largest contribution is not far above the
  // largest element of the sum.
  double moments = 0;
  // The error of parameters under AdamW, which divides by sqrt(v) + eps. This division increases
  // the error of a gradient near zero, at most by 1 / eps.
  double adamw_parameters = 0;
  double norm = 0;  // part of it
};

// The error under Lion, twice the rate: the argument of its sign may be zero but for rounding.
constexpr double kLionParameters = 2 * kLionRate;

// Bounds for another order of additions: a few roundings, each 2^-24 (6e-8) of a partial sum.
constexpr Bounds kOtherOrder = {.moments = 1e-6, .adamw_parameters = 1e-6, .norm = 1e-6};

// Bounds for rounding to bfloat16. Each contribution is rounded once, by at most 2^-9 of its value,
// and the contributions may be twice as large as their sum. AdamW may step in either direction for
// a gradient near zero: twice the rate.
constexpr Bounds kRoundedToBfloat16 = {
    .moments = 0x1p-8, .adamw_parameters = 2 * kAdamWRate, .norm = 0x1p-8};

double Largest(const at::Tensor& tensor) {
  return tensor.numel() == 0 ? 0 : tensor.abs().max().item().toDouble();
}

double Distance(const at::Tensor& a, const at::Tensor& b) { return Largest(a - b); }

bool IsMoment(const std::string& name) { return name.rfind("step/", 0) != 0; }

// Returns the optimizer's tensor in `slot` of the parameter "param/NAME"; null if there is no such
// slot.
const at::Tensor* KeptOf(const State& state, const std::string& slot, const std::string& name) {
  const auto found = state.optimizer.find(slot + name.substr(name.find('/')));
  return found == state.optimizer.end() ? nullptr : &found->second;
}

// Returns the largest error of the parameter "param/NAME" after a step. The slots show the
// optimizer.
double BoundOf(const State& state, const std::string& name, const Bounds& bounds) {
  if (KeptOf(state, "exp_avg_sq", name) != nullptr) return bounds.adamw_parameters;
  if (KeptOf(state, "exp_avg", name) != nullptr) return kLionParameters;
  const at::Tensor* momentum = KeptOf(state, "momentum_buffer", name);
  return momentum == nullptr ? 0 : kSgdRate * bounds.moments * Largest(*momentum);
}

void ExpectEqual(const NamedTensors& found, const NamedTensors& expected,
                 const std::string& where) {
  EXPECT_EQ(found.size(), expected.size()) << where;
  for (const auto& [name, tensor] : expected) {
    const auto one = found.find(name);
    if (one == found.end()) {
      ADD_FAILURE() << where << ": " << name << " is missing";
    } else if (!parallel::SameBits(one->second, tensor)) {
      ADD_FAILURE() << where << ": " << name << " differs by up to "
                    << Distance(one->second, tensor);
    }
  }
}

void ExpectNear(const State& found, const State& expected, const Bounds& bounds,
                const std::string& where) {
  for (const auto& [name, tensor] : expected.parameters) {
    // The bound includes the rounding of the parameter itself.
    const double bound = BoundOf(expected, name, bounds) + 0x1p-23 * Largest(tensor);
    EXPECT_LE(Distance(found.parameters.at(name), tensor), bound) << where << ": " << name;
  }
  EXPECT_EQ(found.optimizer.size(), expected.optimizer.size()) << where;
  for (const auto& [name, tensor] : expected.optimizer) {
    // exp_avg_sq has twice the error, because it is a mean of squares.
    const double bound = IsMoment(name) ? 2 * bounds.moments * Largest(tensor) : 0;
    EXPECT_LE(Distance(found.optimizer.at(name), tensor), bound) << where << ": " << name;
  }
}

// Checks that the comparison is meaningful: steps change all trained and used parameters, clipping
// takes effect, and float16 overflows once.
void ExpectTraining(const Case& one, const std::vector<StepRecord>& records) {
  int64_t changed = 0;
  for (const auto& [name, tensor] : records.back().after.parameters) {
    changed += !parallel::SameBits(tensor, records.front().after.parameters.at(name));
  }
  EXPECT_GE(changed, 6);
  bool clipped = false;
  int64_t left_out = 0;
  for (const StepRecord& record : records) {
    clipped |= record.grad_norm.value_or(0) > kMaxNorm;
    left_out += record.outcome != train::StepOutcome::kApplied;
  }
  EXPECT_TRUE(one.clip == Clip::kOff || clipped);
  const bool overflows = one.precision == PrecisionKind::kFloat16;
  EXPECT_EQ(left_out, overflows ? 1 : 0);
  if (overflows) {
    EXPECT_NE(records[0].outcome, train::StepOutcome::kApplied);
    EXPECT_GT(records.back().after.others.at("scaler/scale").item().toDouble(),
              records[0].after.others.at("scaler/scale").item().toDouble());
  }
}

// Compares the strategy with ddp. Without bounds, every bit must be the same.
void Compare(const Case& one, const train::StrategyConfig& strategy,
             const std::optional<Bounds>& bounds) {
  const auto make = [&one] { return MakeWorkload(one.model); };
  const auto ddp = Train(JobOf(one, Ddp()), make, one.world_size, kSteps);
  if (testing::Test::HasFailure()) return;
  ExpectTraining(one, ddp);
  const auto sharded = Train(JobOf(one, strategy), make, one.world_size, kSteps,
                             bounds.has_value() ? &ddp : nullptr);
  for (int64_t step = 0; step < kSteps && !testing::Test::HasFailure(); ++step) {
    const StepRecord& found = sharded[step];
    const StepRecord& expected = ddp[step];
    const std::string where = "after step " + std::to_string(step + 1);
    EXPECT_EQ(found.loss_sums, expected.loss_sums) << where;
    EXPECT_EQ(found.outcome, expected.outcome) << where;
    ExpectEqual(found.after.others, expected.after.others, where);
    if (!bounds.has_value()) {
      EXPECT_EQ(found.grad_norm, expected.grad_norm) << where;
      ExpectEqual(found.after.parameters, expected.after.parameters, where);
      ExpectEqual(found.after.optimizer, expected.after.optimizer, where);
      continue;
    }
    EXPECT_EQ(found.grad_norm.has_value(), expected.grad_norm.has_value()) << where;
    const double norm = expected.grad_norm.value_or(0);
    EXPECT_NEAR(found.grad_norm.value_or(0), norm, bounds->norm * norm) << where;
    ExpectNear(found.after, expected.after, *bounds, where);
  }
}

}  // namespace

void ExpectDdpOf(const Case& one, const train::StrategyConfig& strategy, Closeness closeness) {
  switch (closeness) {
    case Closeness::kBitwise:
      return Compare(one, strategy, std::nullopt);
    case Closeness::kOtherOrder:
      return Compare(one, strategy, kOtherOrder);
    case Closeness::kRoundedToBfloat16:
      return Compare(one, strategy, kRoundedToBfloat16);
  }
}

void ExpectParity(const Case& one) {
  ExpectDdpOf(one, ShardedDdp(one.reduce_every),
              one.bitwise() ? Closeness::kBitwise : Closeness::kOtherOrder);
}

void ExpectParityOfReductionInBfloat16(const Case& one) {
  ExpectDdpOf(one, ShardedDdp(one.reduce_every, /*reduce_in_bfloat16=*/true),
              Closeness::kRoundedToBfloat16);
}

}  // namespace muster::parity
