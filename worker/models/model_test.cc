// The losses, against their formulas in float64. tests/parity compares training with these losses
// with PyTorch.
#include "worker/models/model.h"

#include <algorithm>
#include <cmath>
#include <ostream>
#include <utility>
#include <vector>

#include "ATen/ops/empty.h"
#include "ATen/ops/full.h"
#include "ATen/ops/randn.h"
#include "ATen/ops/tensor.h"
#include "ATen/ops/zeros.h"
#include "gtest/gtest.h"
#include "worker/models/seed.h"

namespace muster::models {
namespace {

// A unit whose parameters are its logits.
class LogitsUnit : public Unit {
 public:
  explicit LogitsUnit(const at::Tensor& logits) : Unit("") { AddParameter("logits", logits); }
  at::Tensor Forward(const at::Tensor&, ForwardContext&) override { return parameter(0); }
};

class LogitsModel : public Model {
 public:
  LogitsModel(const at::Tensor& logits, InputSpec::Kind kind)
      : Model("logits", std::make_unique<LogitsUnit>(logits)),
        kind_(kind),
        outputs_(logits.size(-1)) {}
  at::Tensor logits() const { return Parameters()[0].tensor; }

 protected:
  InputSpec UnitsInput() const override {
    if (kind_ == InputSpec::Kind::kTokens) {
      return {.kind = kind_, .vocab_size = outputs_, .context = 3};
    }
    return {.kind = kind_, .row_elements = 2, .classes = outputs_};
  }

 private:
  const InputSpec::Kind kind_;
  const int64_t outputs_;
};

constexpr int64_t kRows = 5;
constexpr int64_t kClasses = 4;

// Returns [kRows][kClasses] fixed numbers in no simple order.
std::vector<std::vector<double>> Values() {
  std::vector<std::vector<double>> values(kRows, std::vector<double>(kClasses));
  for (int64_t r = 0; r < kRows; ++r) {
    for (int64_t c = 0; c < kClasses; ++c) {
      values[r][c] = 2 * std::sin(1.0 + 3 * static_cast<double>(r) + 7 * static_cast<double>(c));
    }
  }
  return values;
}

at::Tensor LogitsTensor() {
  at::Tensor logits = at::empty({kRows, kClasses}, at::kFloat);
  const auto values = Values();
  for (int64_t r = 0; r < kRows; ++r) {
    for (int64_t c = 0; c < kClasses; ++c) {
      logits.data_ptr<float>()[r * kClasses + c] = static_cast<float>(values[r][c]);
    }
  }
  return logits.set_requires_grad(true);
}

LogitsModel Rows() { return LogitsModel(LogitsTensor(), InputSpec::Kind::kRows); }

Batch BatchOf(const std::vector<int64_t>& labels) {
  return {at::zeros({static_cast<int64_t>(labels.size()), 2}), at::tensor(labels, at::kLong)};
}

LossOutput LossOf(Model& model, const Batch& batch, Mode mode = Mode::kTrain) {
  ForwardContext context(mode, MakeGenerator(0));
  return model.Loss(batch, context);
}

// The mean cross entropy over the targets that count, and its gradient by the logits: -sum q log p
// and p - q. q is 1 - smoothing + smoothing / classes at the target, and smoothing / classes
// elsewhere.
struct Expected {
  double loss = 0;
  std::vector<std::vector<double>> gradient{kRows, std::vector<double>(kClasses)};
  int64_t terms = 0;
};
Expected CrossEntropyByHand(const std::vector<int64_t>& labels, const LossOptions& options) {
  Expected expected;
  for (const int64_t label : labels) expected.terms += label != options.ignore_index;
  const auto logits = Values();
  const double spread = options.label_smoothing / kClasses;
  for (int64_t r = 0; r < kRows; ++r) {
    if (labels[r] == options.ignore_index) continue;
    double sum = 0;
    for (const double logit : logits[r]) sum += std::exp(logit);
    for (int64_t c = 0; c < kClasses; ++c) {
      const double q = spread + (c == labels[r] ? 1 - options.label_smoothing : 0);
      const double log_p = logits[r][c] - std::log(sum);
      expected.loss -= q * log_p / static_cast<double>(expected.terms);
      expected.gradient[r][c] = (std::exp(log_p) - q) / static_cast<double>(expected.terms);
    }
  }
  return expected;
}

struct Case {
  const char* name;
  LossOptions options;
  std::vector<int64_t> labels;
};
void PrintTo(const Case& test, std::ostream* out) { *out << test.name; }
class CrossEntropyTest : public ::testing::TestWithParam<Case> {};

TEST_P(CrossEntropyTest, ValueAndGradientAreThoseOfTheFormula) {
  LogitsModel model = Rows();
  ASSERT_TRUE(model.SetLoss(GetParam().options).ok());
  const LossOutput loss = LossOf(model, BatchOf(GetParam().labels));
  loss.mean_loss.backward();
  const Expected expected = CrossEntropyByHand(GetParam().labels, GetParam().options);
  EXPECT_EQ(loss.terms, expected.terms);
  // The tolerance is some roundings of float32 numbers of about 1.
  EXPECT_NEAR(loss.mean_loss.item<float>(), expected.loss, 1e-6);
  const at::Tensor gradient = model.logits().grad();
  for (int64_t r = 0; r < kRows; ++r) {
    for (int64_t c = 0; c < kClasses; ++c) {
      EXPECT_NEAR(gradient[r][c].item<float>(), expected.gradient[r][c], 1e-7) << r << ", " << c;
    }
  }
  EXPECT_FALSE(loss.judged.has_value());  // training has no judged data
}

INSTANTIATE_TEST_SUITE_P(
    All, CrossEntropyTest,
    ::testing::Values(
        Case{"Plain", {}, {0, 1, 2, 3, 0}},
        Case{"Smoothed", {.label_smoothing = 0.2}, {0, 1, 2, 3, 0}},
        Case{"Ignored", {.ignore_index = -100}, {0, -100, 2, -100, 0}},
        Case{"AClassIsIgnored", {.ignore_index = 2}, {0, 1, 2, 3, 2}},
        Case{"IgnoredAndSmoothed", {.ignore_index = 9, .label_smoothing = 0.5}, {9, 1, 2, 9, 9}},
        Case{"OneCounts", {.ignore_index = 0}, {0, 0, 0, 1, 0}}),
    [](const auto& info) { return info.param.name; });

TEST(ModelLoss, WithoutAnyTermItIsZeroWithZeroGradients) {
  LogitsModel model = Rows();
  ASSERT_TRUE(model.SetLoss({.ignore_index = 1, .label_smoothing = 0.1}).ok());
  const LossOutput loss = LossOf(model, BatchOf({1, 1, 1, 1, 1}));
  EXPECT_EQ(loss.terms, 0);
  EXPECT_EQ(loss.mean_loss.item<float>(), 0);
  EXPECT_EQ(loss.mean_loss.scalar_type(), at::kFloat);
  loss.mean_loss.backward();
  EXPECT_EQ(model.logits().grad().abs().max().item<float>(), 0);
}

int64_t CorrectOf(const LossOutput& loss) { return loss.judged->Correct().item<int64_t>(); }

TEST(ModelLoss, EvaluationCountsWhatTheLargestLogitGetsRight) {
  std::vector<int64_t> best;
  for (const auto& row : Values()) {
    best.push_back(std::max_element(row.begin(), row.end()) - row.begin());
  }
  LogitsModel model = Rows();
  auto labels = best;
  labels[2] = (labels[2] + 1) % kClasses;
  EXPECT_EQ(CorrectOf(LossOf(model, BatchOf(labels), Mode::kEvaluate)), kRows - 1);
  // An ignored target is not right, even if the ignored class has the largest logit.
  ASSERT_TRUE(model.SetLoss({.ignore_index = best[0]}).ok());
  const LossOutput loss = LossOf(model, BatchOf(best), Mode::kEvaluate);
  EXPECT_LT(loss.terms, kRows);
  EXPECT_EQ(CorrectOf(loss), loss.terms);
}

TEST(ModelLoss, MseIsTheMeanOverAllNumbers) {
  LogitsModel model = Rows();
  ASSERT_TRUE(model.SetLoss({.kind = LossKind::kMse}).ok());
  EXPECT_EQ(model.Input().target_numbers, kClasses);
  const Batch batch = {at::zeros({kRows, 2}), at::full({kRows, kClasses}, 0.5)};
  ASSERT_TRUE(model.CheckBatch(batch).ok()) << model.CheckBatch(batch);
  const LossOutput loss = LossOf(model, batch, Mode::kEvaluate);
  loss.mean_loss.backward();
  double expected = 0;
  const auto values = Values();
  for (int64_t r = 0; r < kRows; ++r) {
    for (int64_t c = 0; c < kClasses; ++c) {
      const double error = values[r][c] - 0.5;
      expected += error * error / (kRows * kClasses);
      EXPECT_NEAR(model.logits().grad()[r][c].item<float>(), 2 * error / (kRows * kClasses), 1e-7);
    }
  }
  EXPECT_NEAR(loss.mean_loss.item<float>(), expected, 1e-6);
  EXPECT_EQ(loss.terms, kRows * kClasses);
  EXPECT_FALSE(loss.judged.has_value());
}

TEST(ModelLoss, TargetsOfAnotherKindAreRefused) {
  LogitsModel model = Rows();
  const Batch numbers = {at::zeros({kRows, 2}), at::zeros({kRows, kClasses})};
  const Batch classes = BatchOf({0, 1, 2, 3, 0});
  EXPECT_TRUE(model.CheckBatch(classes).ok());
  EXPECT_FALSE(model.CheckBatch(numbers).ok());
  ASSERT_TRUE(model.SetLoss({.kind = LossKind::kMse}).ok());
  EXPECT_TRUE(model.CheckBatch(numbers).ok());
  EXPECT_EQ(model.CheckBatch(classes).message(),
            "batch for logits: expected inputs Float [B, ...] with 2 numbers per row and targets "
            "Float [B, 4], found inputs Float [5, 2] and targets Long [5]");
}

TEST(ModelLoss, OnlyACrossEntropyOverTokensHasAPerplexity) {
  LogitsModel rows = Rows();
  EXPECT_FALSE(rows.HasPerplexity());
  LogitsModel tokens(at::zeros({1, 3, kClasses}), InputSpec::Kind::kTokens);
  EXPECT_TRUE(tokens.HasPerplexity());
}

TEST(ModelLoss, AModelOfTokensHasNoMse) {
  LogitsModel model(at::zeros({1, 3, kClasses}), InputSpec::Kind::kTokens);
  EXPECT_EQ(model.SetLoss({.kind = LossKind::kMse}).message(),
            "loss: found mse, but the model logits gives logits of tokens; allowed: cross_entropy");
}

TEST(ModelLoss, DataAreOpenedWithTheIgnoredTarget) {
  LogitsModel model = Rows();
  EXPECT_EQ(model.Input().ignored, std::nullopt);
  ASSERT_TRUE(model.SetLoss({.ignore_index = -100}).ok());
  EXPECT_EQ(model.Input().ignored, -100);
}

}  // namespace
}  // namespace muster::models
