#include "worker/train/evaluate/evaluation_totals.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "ATen/ops/tensor.h"
#include "worker/models/model.h"
#include "worker/train/ranks/rank_threads.h"

namespace muster::train {
namespace {

// A model of rows. Only its description is used.
class Rows : public models::Model {
 public:
  explicit Rows(int64_t classes)
      : Model("rows", std::make_unique<models::Unit>("")), classes_(classes) {}

 protected:
  models::InputSpec UnitsInput() const override {
    return {.kind = models::InputSpec::Kind::kRows, .row_elements = 1, .classes = classes_};
  }

 private:
  const int64_t classes_;
};

// Returns the output for rows with these targets. `predicted`: the classes with the largest logits.
// A target that is another class has the second largest logit.
models::LossOutput Output(double loss, const std::vector<int64_t>& targets,
                          const std::vector<int64_t>& predicted, int64_t classes,
                          int64_t ignored = -1) {
  const auto rows = static_cast<int64_t>(targets.size());
  std::vector<float> logits(rows * classes, 0);
  int64_t terms = 0;
  for (int64_t i = 0; i < rows; ++i) {
    if (targets[i] != ignored) logits[i * classes + targets[i]] = 1;
    logits[i * classes + predicted[i]] = 2;
    terms += targets[i] != ignored;
  }
  const at::Tensor wanted = at::tensor(targets, at::kLong);
  models::LossOutput output{.mean_loss = at::tensor(static_cast<float>(loss)), .terms = terms};
  output.judged = models::Judged{at::tensor(logits).view({rows, classes}), wanted, {}};
  if (ignored >= 0) output.judged->counts = wanted.ne(ignored);
  return output;
}

std::vector<uint64_t> Numbers(const google::protobuf::RepeatedField<uint64_t>& field) {
  return {field.begin(), field.end()};
}

TEST(EvaluationTotals, AddUpOverBatchesAndRanks) {
  const Rows model(3);
  std::vector<v1::Evaluation> found(3);
  RunRanks(3, [&](int rank, comm::Communicator& control, comm::Communicator&, comm::Communicator&) {
    EvaluationTotals totals(model, at::kCPU);
    if (rank == 0) totals.Add(Output(0.5, {0, 1, 2, 2}, {0, 1, 1, 2}, 3), 4);
    if (rank == 0) totals.Add(Output(2, {2}, {0}, 3), 1);
    // Rank 1 has no sample.
    if (rank == 2) totals.Add(Output(1, {1, 0, 1}, {1, 1, 0}, 3, /*ignored=*/0), 3);
    found[rank] = totals.Reduce("data.test", 4, control).value();
  });
  for (const v1::Evaluation& one : found) {
    EXPECT_EQ(one.SerializeAsString(), found[0].SerializeAsString());
  }
  const v1::Evaluation& one = found[0];
  EXPECT_EQ(one.samples(), 8u);
  EXPECT_EQ(one.terms(), 7u) << "one is ignored";
  EXPECT_EQ(one.loss(), (0.5 * 4 + 2 * 1 + 1 * 2) / 7);
  EXPECT_EQ(one.accuracy(), 4.0 / 7);
  EXPECT_FALSE(one.has_perplexity());
  EXPECT_FALSE(one.has_top_k_accuracy()) << "all three classes are among the five largest";
  EXPECT_EQ(Numbers(one.classes().targets()), (std::vector<uint64_t>{1, 3, 3}));
  EXPECT_EQ(Numbers(one.classes().predicted()), (std::vector<uint64_t>{3, 3, 1}));
  EXPECT_EQ(Numbers(one.classes().correct()), (std::vector<uint64_t>{1, 2, 1}));
  EXPECT_EQ(Numbers(one.classes().confusion()), (std::vector<uint64_t>{1, 0, 0, 1, 2, 0, 1, 1, 1}));
}

v1::Evaluation Alone(int64_t classes, const models::LossOutput& output) {
  const Rows model(classes);
  v1::Evaluation found;
  RunRanks(1, [&](int, comm::Communicator& control, comm::Communicator&, comm::Communicator&) {
    EvaluationTotals totals(model, at::kCPU);
    totals.Add(output, 2);
    found = totals.Reduce("data.test", 4, control).value();
  });
  return found;
}

TEST(EvaluationTotals, CountByClassAsFarAsItIsWorthIt) {
  const auto of = [](int64_t classes) {
    return Alone(classes, Output(1, {0, classes - 1}, {0, 0}, classes));
  };
  const v1::Evaluation six = of(6);
  EXPECT_EQ(six.top_k(), 5u);
  EXPECT_EQ(six.top_k_accuracy(), 1) << "the second largest";
  EXPECT_EQ(six.classes().confusion_size(), 36);
  EXPECT_EQ(of(100).classes().confusion_size(), 10000);
  const v1::Evaluation more = of(101);
  EXPECT_EQ(more.classes().confusion_size(), 0);
  EXPECT_EQ(more.classes().targets_size(), 101);
  EXPECT_EQ(more.classes().targets(100), 1u);
  EXPECT_FALSE(of(10001).has_classes());
  EXPECT_EQ(of(10001).accuracy(), 0.5);
}

TEST(EvaluationTotals, OfAModelWithALossOfItsOwnAreWhatItTells) {
  models::LossOutput told{.mean_loss = at::tensor(0.25f), .terms = 4};
  EXPECT_FALSE(Alone(3, told).has_accuracy());
  told.correct = 3;
  const v1::Evaluation found = Alone(3, told);
  EXPECT_EQ(found.accuracy(), 0.75);
  EXPECT_FALSE(found.has_classes()) << "it does not tell them";
}

TEST(EvaluationTotals, WithoutAnyTermThereIsNoLoss) {
  const Rows model(3);
  RunRanks(2, [&](int, comm::Communicator& control, comm::Communicator&, comm::Communicator&) {
    EvaluationTotals totals(model, at::kCPU);
    totals.Add({.mean_loss = at::tensor(0.f), .terms = 0}, 2);
    const auto found = totals.Reduce("data.test", 4, control);
    EXPECT_EQ(found.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(found.status().message(),
              "data.test: every target of the 4 samples is ignored, so there is no loss");
  });
}

}  // namespace
}  // namespace muster::train
