// A model: a tree of units, with a loss at the end. registry.h makes models.
//
// Threading and exceptions: see unit.h.
#ifndef MUSTER_WORKER_MODELS_MODEL_H_
#define MUSTER_WORKER_MODELS_MODEL_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/status.h"
#include "worker/models/batch.h"
#include "worker/models/unit.h"

namespace muster::models {

// Logits and targets of a cross entropy, for metrics. All results are on the device of the logits,
// and the host does not wait.
struct Judged {
  at::Tensor logits;   // [N, classes]
  at::Tensor targets;  // int64 [N], classes; any number where a target does not count
  at::Tensor counts;   // bool [N], which targets count; undefined: all

  // Returns the targets, with 0 in place of targets that do not count.
  at::Tensor Targets() const;
  // Returns 1 for each target that counts and 0 for the others, int64 [N].
  at::Tensor Counted() const;
  // Returns the class with the largest logit, int64 [N].
  at::Tensor Predicted() const;
  // Returns which targets count and are among the `k` classes with the largest logits, bool [N]. Of
  // equal logits, the logit of the lower class ranks first. NaN is larger than every number.
  at::Tensor InTop(int64_t k) const;
  // Returns the number of targets that count and have the largest logit: an int64 scalar.
  at::Tensor Correct() const;
};

struct LossOutput {
  // A scalar float32, differentiable: the mean over `terms`.
  at::Tensor mean_loss;
  // The number of loss terms in the mean: tokens, rows or numbers, without ignored targets.
  int64_t terms = 0;
  // The data for other metrics. Only in Mode::kEvaluate, and only if targets are classes or tokens.
  std::optional<Judged> judged = std::nullopt;
  // The number of terms whose prediction is right; in place of `judged`, if the model's own loss
  // returns it.
  std::optional<int64_t> correct = std::nullopt;
};

enum class LossKind { kCrossEntropy, kMse };

struct LossOptions {
  LossKind kind = LossKind::kCrossEntropy;
  std::optional<int64_t> ignore_index;
  double label_smoothing = 0;
};

// The use of a tensor of a weights file.
struct WeightName {
  enum class Kind { kParameter, kIgnored, kUnknown };
  Kind kind = Kind::kUnknown;
  std::string parameter;  // the parameter's or buffer's full name, when kParameter
  // True: the file's tensor may have more rows, of which the model has the first ones.
  bool first_rows = false;
  // True: the tensor has one row for each token of the vocabulary.
  bool vocabulary = false;
};

// Returns "Float [2, 3]" or "nothing", for errors.
std::string Describe(const at::Tensor& tensor);

// The effect of a model's BeforeStep.
enum class HookKind {
  kNone,   // nothing
  kFlags,  // freezes and unfreezes parameters; neither reads nor writes values
  kValues  // reads and writes values, too: all parameters must be in memory
};

// The keys and values that attention keeps of each position of a sequence, so that a later forward
// can continue the sequence. Each layer has `heads` heads of the width `head`.
struct KeyValueShape {
  int64_t layers = 0;
  int64_t heads = 0;  // of keys and values; fewer than of queries with grouped queries
  int64_t head = 0;

  // The memory of float32 keys and values.
  int64_t BytesPerPosition() const { return layers * 2 * heads * head * 4; }
};

// A model that keeps nothing: each new token costs a forward of the whole sequence, whose result
// are the logits of all positions.
struct WholeSequences {
  int64_t vocabulary = 0;
  std::optional<int64_t> length;  // the only length that a sequence can have; absent: any
  int64_t shortest = 1;           // the least length, if any is possible
};

// How a model continues a sequence.
using Continuation = std::variant<KeyValueShape, WholeSequences>;

class Model {
 public:
  virtual ~Model() = default;

  Unit& root() { return *root_; }
  const Unit& root() const { return *root_; }

  // All parameters in forward order, each once.
  std::vector<Parameter> Parameters() const { return root_->Parameters(); }
  std::vector<Buffer> Buffers() const { return root_->Buffers(); }

  // Returns the names of Parameters() in the order in which the source model registers them
  // (Hugging Face's model, if there is one). A position is then the index in the state of a Python
  // optimizer.
  virtual std::vector<std::string> SourceOrder() const;

  const std::string& kind() const { return kind_; }
  // The name of the model in errors: "plug-in FILE: model 'NAME'".
  virtual std::string name() const { return "model " + kind_; }

  // Sets the loss; must be called at most once, before the first batch. INVALID_ARGUMENT if the
  // model cannot have this loss.
  virtual absl::Status SetLoss(const LossOptions& loss);

  // INVALID_ARGUMENT if the model is not made for this precision of a job: "float32", "bfloat16" or
  // "float16".
  virtual absl::Status CheckPrecision(const std::string& precision) const {
    return absl::OkStatus();
  }

  // Returns the hash of the files that say what the model computes, which all ranks must share; ""
  // if there are none.
  virtual std::string file_hash() const { return ""; }

  // Returns the data that the model takes with its loss. Data sets are checked against it when they
  // are opened.
  InputSpec Input() const;

  // Returns the logits, float32: tokens [B, C] -> [B, C, vocab_size]; rows [B, ...] -> [B,
  // classes]. In a generation with a KeyValueCache only those of the last token of each row, [B, 1,
  // vocab_size].
  at::Tensor Logits(const at::Tensor& inputs, ForwardContext& context) {
    return context.Call(*root_, inputs);
  }
  // Returns the logits of a batch, whose inputs may be several: [B, ..., classes].
  at::Tensor Logits(const Batch& batch, ForwardContext& context) {
    return context.CallMany(*root_, InputsOf(batch))[0];
  }

  // Returns whether exp(loss) is a perplexity: the loss is a cross entropy over tokens.
  virtual bool HasPerplexity() const;

  // Returns the mean loss of the batch over all terms. Without terms (all targets ignored) the loss
  // is 0, with zero gradients.
  virtual LossOutput Loss(const Batch& batch, ForwardContext& context);

  // Called on every rank before the step with which `step` optimizer steps are done. Never called
  // inside an accumulation window. An error fails the job.
  virtual absl::Status BeforeStep(int64_t step) { return absl::OkStatus(); }
  // The kind of BeforeStep. With kValues every step first waits until all parameters are in memory.
  virtual HookKind step_hook() const { return HookKind::kNone; }

  // Returns whether the forward or the loss runs collectives of its own. Every rank must then run
  // them.
  virtual bool RunsCollectives() const { return false; }

  // Returns the floating-point operations of one sample's forward. Only matrix products and
  // convolutions count, and a multiply-add counts as 2. 0: not known.
  virtual double ForwardFlops() const { return 0; }

  // INVALID_ARGUMENT, with expected and found, if shapes or dtypes do not fit. Values are checked
  // when the data set is opened.
  absl::Status CheckBatch(const Batch& batch) const;

  // Returns nullopt if the model cannot generate (generate.h).
  virtual std::optional<Continuation> continuation() const { return std::nullopt; }
  // Says why continuation() is nullopt, and what to do: "...; expected ...".
  virtual std::string WhyNoContinuation() const {
    return "allowed: gpt2, llama, hf, and exported language models";
  }

  // Returns the use of the tensor `name` of a weights file. Several names may stand for one
  // parameter (a tied weight, a missing prefix); their values must then agree.
  virtual WeightName ResolveWeight(const std::string& name) const;

  // Returns the text of the config.json with which transformers opens the exported weights, or ""
  // if there is none.
  virtual std::string HuggingFaceConfig() const { return ""; }

  // Compares `text`, the config.json of transformers beside a weights file, with this model, in the
  // properties that weights do not show. INVALID_ARGUMENT with every difference. OK if there is
  // nothing to compare.
  virtual absl::Status CheckHuggingFaceConfig(const std::string& text) const {
    return absl::OkStatus();
  }

 protected:
  Model(std::string kind, std::unique_ptr<Unit> root)
      : kind_(std::move(kind)), root_(std::move(root)) {}

  // Returns the data that the units take, with classes as targets; or with the targets of the
  // model's own loss.
  virtual InputSpec UnitsInput() const = 0;

  // Returns all inputs of the batch, in the model's order.
  static Tensors InputsOf(const Batch& batch);

 private:
  LossOptions loss_;
  const std::string kind_;
  const std::unique_ptr<Unit> root_;
};

}  // namespace muster::models

#endif  // MUSTER_WORKER_MODELS_MODEL_H_
