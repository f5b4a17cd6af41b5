// A model: a tree of units with a loss on top. Made by registry.h.
//
// Threading and exceptions as in unit.h.
#ifndef MUSTER_WORKER_MODELS_MODEL_H_
#define MUSTER_WORKER_MODELS_MODEL_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/status.h"
#include "worker/models/batch.h"
#include "worker/models/unit.h"

namespace muster::models {

// What a cross entropy judges, and how right the logits are. Everything is computed where the
// logits are, without waiting for a device.
struct Judged {
  at::Tensor logits;   // [N, classes]
  at::Tensor targets;  // int64 [N], classes; any number where it does not count
  at::Tensor counts;   // bool [N], which targets count; undefined: all of them

  // The targets; 0 where one does not count.
  at::Tensor Targets() const;
  // 1 for each target that counts, int64 [N].
  at::Tensor Counted() const;
  // The class with the largest logit, int64 [N].
  at::Tensor Predicted() const;
  // Which targets count and are among the `k` classes with the largest logits, bool [N]. Of equal
  // logits the one of the lower class is the larger one; NaN is larger than everything.
  at::Tensor InTop(int64_t k) const;
  // How many targets count and have the largest logit: an int64 scalar.
  at::Tensor Correct() const;
};

struct LossOutput {
  // A scalar float32, differentiable: the mean over `terms`.
  at::Tensor mean_loss;
  // The number of loss terms in the mean: tokens, rows or numbers, without ignored targets.
  int64_t terms = 0;
  // What metrics beside the loss follow from. Only in Mode::kEvaluate, and only if targets are
  // classes or tokens.
  std::optional<Judged> judged = std::nullopt;
  // In place of `judged`, from a model with a loss of its own that tells it: the number of terms
  // whose prediction is right.
  std::optional<int64_t> correct = std::nullopt;
};

enum class LossKind { kCrossEntropy, kMse };

struct LossOptions {
  LossKind kind = LossKind::kCrossEntropy;
  std::optional<int64_t> ignore_index;
  double label_smoothing = 0;
};

// How a model uses a tensor of a weights file.
struct WeightName {
  enum class Kind { kParameter, kIgnored, kUnknown };
  Kind kind = Kind::kUnknown;
  std::string parameter;  // the parameter's or buffer's full name, when kParameter
};

// "Float [2, 3]" or "nothing", for errors.
std::string Describe(const at::Tensor& tensor);

// What a model's BeforeStep does.
enum class HookKind {
  kNone,   // nothing
  kFlags,  // freezes and unfreezes parameters; it neither reads nor writes a value
  kValues  // reads and writes values, too: all parameters have to be in memory
};

// What a model's attention keeps of each position of a sequence, so that a later forward can
// continue it: keys and values of `heads` heads of the width `head`, in each layer.
struct KeyValueShape {
  int64_t layers = 0;
  int64_t heads = 0;  // of keys and values: with grouped queries fewer than of queries
  int64_t head = 0;

  // They are kept in float32.
  int64_t BytesPerPosition() const { return layers * 2 * heads * head * 4; }
};

class Model {
 public:
  virtual ~Model() = default;

  Unit& root() { return *root_; }
  const Unit& root() const { return *root_; }

  // In forward order, each once.
  std::vector<Parameter> Parameters() const { return root_->Parameters(); }
  std::vector<Buffer> Buffers() const { return root_->Buffers(); }

  // The names of Parameters() in the order in which the source model registers them (that of
  // Hugging Face, if it has this model), so that a position is the index in the state of a Python
  // optimizer.
  virtual std::vector<std::string> SourceOrder() const;

  const std::string& kind() const { return kind_; }
  // The name of the model in errors: "plug-in FILE: model 'NAME'".
  virtual std::string name() const { return "model " + kind_; }

  // Sets the loss; call it once, before the first batch. INVALID_ARGUMENT: a loss that the model
  // cannot have.
  virtual absl::Status SetLoss(const LossOptions& loss);

  // The data that the model takes with its loss; data sets are checked against it when they are
  // opened.
  InputSpec Input() const;

  // tokens [B, C] -> [B, C, vocab_size]; rows [B, ...] -> [B, classes]. float32. In a generation
  // [B, 1, vocab_size]: of the last token of each row.
  at::Tensor Logits(const at::Tensor& inputs, ForwardContext& context) {
    return context.Call(*root_, inputs);
  }

  // Whether exp(loss) is a perplexity: the loss is a cross entropy over tokens.
  virtual bool HasPerplexity() const;

  // The mean loss of the batch over all terms. Without any term (all targets ignored) 0, with zero
  // gradients.
  virtual LossOutput Loss(const Batch& batch, ForwardContext& context);

  // Called on every rank between steps, before the step that makes `step` optimizer steps done:
  // never inside an accumulation window. An error fails the job.
  virtual absl::Status BeforeStep(int64_t step) { return absl::OkStatus(); }
  // With kValues every step begins by waiting until all parameters are in memory.
  virtual HookKind step_hook() const { return HookKind::kNone; }

  // Whether its forward or its loss runs collectives of its own, so that every rank has to run
  // them.
  virtual bool RunsCollectives() const { return false; }

  // Floating-point operations of one sample's forward, a multiply-add counted as 2: matrix products
  // and convolutions only. 0: not known.
  virtual double ForwardFlops() const { return 0; }

  // INVALID_ARGUMENT, with expected and found, if the shapes or dtypes do not fit (values are
  // checked when the data set is opened).
  absl::Status CheckBatch(const Batch& batch) const;

  // nullopt: the model cannot generate (generate.h).
  virtual std::optional<KeyValueShape> key_values() const { return std::nullopt; }

  // What to do with the tensor `name` of a weights file. Several names may stand for one parameter
  // (a tied weight, a missing prefix): then their values must agree.
  virtual WeightName ResolveWeight(const std::string& name) const;

  // The text of the config.json with which transformers opens the exported weights; empty if there
  // is none.
  virtual std::string HuggingFaceConfig() const { return ""; }

  // Compares `text`, the config.json of transformers beside a weights file, with this model, in the
  // properties that the weights do not show. INVALID_ARGUMENT: every difference. OK if there is
  // nothing to compare.
  virtual absl::Status CheckHuggingFaceConfig(const std::string& text) const {
    return absl::OkStatus();
  }

 protected:
  Model(std::string kind, std::unique_ptr<Unit> root)
      : kind_(std::move(kind)), root_(std::move(root)) {}

  // The data that the units take, with classes as targets.
  virtual InputSpec UnitsInput() const = 0;

 private:
  LossOptions loss_;
  const std::string kind_;
  const std::unique_ptr<Unit> root_;
};

}  // namespace muster::models

#endif  // MUSTER_WORKER_MODELS_MODEL_H_
