// Units: the parts of a model. A unit owns named parameters and child units and computes one
// forward. The runtime owns the *calls* of units (ForwardContext::Call), so that a sharding
// strategy can gather a unit's parameters around the calls. A unit therefore reads its parameters
// again in each Forward (`parameter(index)`), and calls its children only through the context.
//
// Threading: a model and its context belong to one rank's thread.
// Exceptions pass through Forward: LibTorch's (c10::Error) and ModelError. Only the step loop
// catches them.
#ifndef MUSTER_WORKER_MODELS_UNIT_H_
#define MUSTER_WORKER_MODELS_UNIT_H_

#include <cstddef>
#include <memory>
#include <stdexcept>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "ATen/core/Generator.h"
#include "ATen/core/Tensor.h"
#include "absl/status/status.h"

namespace muster::models {

// A parameter under its full Hugging Face name: float32, contiguous, a leaf that requires grad.
// Copies share the tensor.
struct Parameter {
  std::string name;
  at::Tensor tensor;
};

// State that a forward changes and that gets no gradient, for example BatchNorm's statistics:
// float32 or int64, contiguous. Copies share the tensor. Buffers are saved, exported and broadcast.
// A forward in Mode::kEvaluate does not change them.
struct Buffer {
  std::string name;
  at::Tensor tensor;
};

// An error of a model's own code, with the names of the model and the unit. The error would happen
// again, so a restart of the job does not help. Lack of memory is not a ModelError, but
// std::bad_alloc or LibTorch's error.
class ModelError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// An error of a context during a forward, for example a failed gather of a unit's parameters. The
// model did not cause the error, which passes through the forward as an exception.
class ContextError : public std::runtime_error {
 public:
  explicit ContextError(absl::Status status)
      : std::runtime_error(std::string(status.message())), status_(std::move(status)) {}

  const absl::Status& status() const { return status_; }

 private:
  const absl::Status status_;
};

// Returns whether an error of LibTorch is a lack of memory. The error's text decides, because on
// the CPU the error has no type of its own.
bool IsLackOfMemory(const std::string& text);

class Unit;

// The inputs or the outputs of a unit.
using Tensors = std::vector<at::Tensor>;

enum class Mode { kTrain, kEvaluate };

class KeyValueCache;

// An observer of forwards that a backward will follow. The context tells the observer how gradients
// will arrive at parameters. A recomputed call of a unit brings one gradient to each parameter of
// the unit and of the units below. All other calls of a unit together bring one gradient to each of
// its own parameters.
class UseObserver {
 public:
  virtual ~UseObserver() = default;
  virtual void Used(const Unit& unit, bool recomputed) = 0;
  // Called in backward, before a forward is repeated: all forwards of this graph are done. During
  // the repeated forward the unit's buffers have their values from before the first forward.
  virtual void BeforeRecomputation() = 0;
};

// The state of a forward besides its input. One per rank; strategies derive from it to wrap Call.
class ForwardContext {
 public:
  // `generator`: the rank's own CPU generator, the only source of dropout. The step loop re-seeds
  // the generator before each micro-batch, so a resumed run needs no generator state.
  ForwardContext(Mode mode, at::Generator generator)
      : mode_(mode), generator_(std::move(generator)) {}
  virtual ~ForwardContext() = default;

  bool training() const { return mode_ == Mode::kTrain; }
  void set_mode(Mode mode) { mode_ = mode; }
  at::Generator& generator() { return generator_; }

  // The keys and values that attention keeps from forward to forward (key_value_cache.h). Null,
  // except during the life of a Generating: each forward takes whole sequences.
  KeyValueCache* cache() const { return cache_; }

  // Makes forwards those of a generation during the life of the object: they evaluate, and continue
  // the sequences of this cache, or take whole sequences if `cache` is null. The cache must outlive
  // the object. Afterwards restores both.
  class Generating {
   public:
    Generating(ForwardContext* context, KeyValueCache* cache)
        : context_(context),
          mode_before_(std::exchange(context->mode_, Mode::kEvaluate)),
          cache_before_(std::exchange(context->cache_, cache)) {}
    ~Generating() {
      context_->mode_ = mode_before_;
      context_->cache_ = cache_before_;
    }
    Generating(const Generating&) = delete;
    Generating& operator=(const Generating&) = delete;

   private:
    ForwardContext* const context_;
    const Mode mode_before_;
    KeyValueCache* const cache_before_;
  };

  // Returns whether calls of units wait until the other ranks call the units, too. All ranks must
  // then run the same forwards.
  virtual bool collective() const { return false; }

  // Runs one unit. Every call of every unit, including the root, goes through CallMany. Call is for
  // units with one input and one output, and throws ModelError for any other number of outputs. All
  // tensors are defined.
  at::Tensor Call(Unit& unit, const at::Tensor& x);
  virtual Tensors CallMany(Unit& unit, const Tensors& inputs);

  // Makes later forwards of these units in training recompute in backward (recompute.h). Of nested
  // units only the outermost is recomputed.
  void Recompute(const std::vector<const Unit*>& units);
  // Returns whether the unit, or a unit around it, is recomputed.
  bool recomputes(const Unit& unit) const { return repeated_.contains(&unit); }
  // Called only if a unit is recomputed. Must outlive the context; null: none.
  void set_use_observer(UseObserver* observer) { use_observer_ = observer; }
  UseObserver* use_observer() const { return use_observer_; }

  // During its life, forwards are repeated ones: neither recomputed nor told to the observer.
  class Recomputing {
   public:
    explicit Recomputing(ForwardContext* context)
        : context_(context), before_(std::exchange(context->recomputing_, true)) {}
    ~Recomputing() { context_->recomputing_ = before_; }
    Recomputing(const Recomputing&) = delete;
    Recomputing& operator=(const Recomputing&) = delete;

   private:
    ForwardContext* const context_;
    const bool before_;
  };

 private:
  Mode mode_;
  at::Generator generator_;
  KeyValueCache* cache_ = nullptr;
  std::unordered_set<const Unit*> recomputed_;
  std::unordered_set<const Unit*> repeated_;  // recomputed_ and all units inside of them
  UseObserver* use_observer_ = nullptr;
  bool recomputing_ = false;
};

class Unit {
 public:
  explicit Unit(std::string name) : name_(std::move(name)) {}
  virtual ~Unit() = default;
  Unit(const Unit&) = delete;
  Unit& operator=(const Unit&) = delete;

  // The full name, for example "transformer.h.3"; empty for a root without a name.
  const std::string& name() const { return name_; }

  // Computes the forward. A unit with one input and one output overrides Forward, others
  // ForwardMany. The defaults throw ModelError, except that ForwardMany with one input calls
  // Forward.
  virtual at::Tensor Forward(const at::Tensor& x, ForwardContext& context);
  virtual Tensors ForwardMany(const Tensors& inputs, ForwardContext& context);

  // Returns false if the backward of a forward with these inputs reads no parameters of the unit or
  // of the units below. The parameters then need not be in memory during backward.
  virtual bool BackwardReadsParameters(const Tensors& inputs) const { return true; }

  // The unit's own parameters and its children, each in the order of registration.
  const std::vector<Parameter>& own_parameters() const { return parameters_; }
  const std::vector<Buffer>& own_buffers() const { return buffers_; }
  const std::vector<std::unique_ptr<Unit>>& children() const { return children_; }

  // Returns all parameters of this unit and below in forward order, each once (also a tied weight).
  std::vector<Parameter> Parameters() const;
  // Returns all buffers of this unit and below: first the unit's own, then the children's.
  std::vector<Buffer> Buffers() const;

  // Replaces the tensor of one of the unit's own parameters by a tensor of the same shape. For
  // sharding strategies.
  void ReplaceParameter(size_t index, at::Tensor tensor);

 protected:
  // Registration, in forward order. `full_name` is the weight file's name.
  size_t AddParameter(std::string full_name, at::Tensor tensor);
  size_t AddBuffer(std::string full_name, at::Tensor tensor);
  Unit& AddChild(std::unique_ptr<Unit> child);

  const at::Tensor& parameter(size_t index) const { return parameters_[index].tensor; }
  const at::Tensor& buffer(size_t index) const { return buffers_[index].tensor; }

 private:
  void Collect(std::vector<Parameter>* out) const;
  void CollectBuffers(std::vector<Buffer>* out) const;

  const std::string name_;
  std::vector<Parameter> parameters_;
  std::vector<Buffer> buffers_;
  std::vector<std::unique_ptr<Unit>> children_;
  // The registration order of both: {true, index of a parameter} or {false, index of a child}.
  std::vector<std::pair<bool, size_t>> order_;
};

}  // namespace muster::models

#endif  // MUSTER_WORKER_MODELS_UNIT_H_
