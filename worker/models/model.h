// A model: a tree of units with a loss on top. Made by registry.h.
//
// Threading and exceptions as in unit.h.
#ifndef MUSTER_WORKER_MODELS_MODEL_H_
#define MUSTER_WORKER_MODELS_MODEL_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/status.h"
#include "worker/models/batch.h"
#include "worker/models/unit.h"

namespace muster::models {

struct LossOutput {
  at::Tensor mean_loss;  // scalar float32, differentiable: the mean over `terms`
  int64_t terms = 0;     // loss terms behind the mean: tokens or rows
};

// What a tensor of a weights file is to a model.
struct WeightName {
  enum class Kind { kParameter, kIgnored, kUnknown };
  Kind kind = Kind::kUnknown;
  std::string parameter;  // the parameter's full name, when kParameter
};

class Model {
 public:
  virtual ~Model() = default;

  Unit& root() { return *root_; }
  const Unit& root() const { return *root_; }

  // In forward order, each once.
  std::vector<Parameter> Parameters() const { return root_->Parameters(); }
  std::vector<Buffer> Buffers() const { return root_->Buffers(); }

  const std::string& kind() const { return kind_; }

  // What the model takes; data sets are opened against it.
  virtual InputSpec Input() const = 0;

  // tokens [B, C] -> [B, C, vocab_size]; rows [B, ...] -> [B, classes]. float32.
  at::Tensor Logits(const at::Tensor& inputs, ForwardContext& context) {
    return context.Call(*root_, inputs);
  }

  // The mean cross entropy of the batch over all tokens or rows.
  LossOutput Loss(const Batch& batch, ForwardContext& context);

  // INVALID_ARGUMENT naming expected and found when the shapes or dtypes do not fit (values are
  // checked when the data set is opened).
  absl::Status CheckBatch(const Batch& batch) const;

  // What to do with the tensor `name` of a weights file. Several names may stand for one parameter
  // (a tied weight, a missing prefix): then their values must agree.
  virtual WeightName ResolveWeight(const std::string& name) const;

  // The text of config.json with which transformers opens the exported weights; empty when there
  // is no such thing.
  virtual std::string HuggingFaceConfig() const { return ""; }

 protected:
  Model(std::string kind, std::unique_ptr<Unit> root)
      : kind_(std::move(kind)), root_(std::move(root)) {}

 private:
  const std::string kind_;
  const std::unique_ptr<Unit> root_;
};

}  // namespace muster::models

#endif  // MUSTER_WORKER_MODELS_MODEL_H_
