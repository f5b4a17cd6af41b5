// A model of your own for Muster, in a shared object (docs/how-to/plugins.md; examples/plugin is an
// example). A plug-in is built only against this header and LibTorch. Everything here is inline or
// called through virtual methods. So a plug-in needs no symbol of the worker, and the worker
// exports none.
//
// Devices: a model is made on the CPU. With `device: cuda` the worker then moves its registered
// parameters and buffers to the rank's GPU. The inputs of forwards, losses and hooks are on the
// GPU, too, and context.generator() belongs to the GPU. Other tensors of a model are not moved:
// make such tensors in the forward with the options of an input, or register them as buffers. Work
// belongs to the current stream. A forward should not ask for values (item(), or a copy to the
// CPU), because the rank would wait for the GPU in each step.
//
// Versions: the object carries a text with the version of this interface, of LibTorch and of the
// C++ library's ABI. The worker compares these versions with its own before it loads the object, so
// no code of the object runs if they differ.
//
// Life cycle: the object is loaded once per process and never unloaded. A session makes one model
// and destroys the model at the session's end. With fsdp the session records how the model is made,
// so that no rank holds the whole model. If this is not possible, the session makes the model a
// second time (docs/how-to/plugins.md).
//
// Threading: a model is used by one thread. Ranks may be threads of one process, so use no global
// variables.
//
// Errors: exceptions of any kind. An exception ends the job without a restart, and the error names
// the plug-in, the model and the unit. Only after std::bad_alloc, which may be temporary, the job
// is started again.
#ifndef MUSTER_PLUGIN_H_
#define MUSTER_PLUGIN_H_

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "ATen/core/Generator.h"
#include "ATen/core/Tensor.h"
#include "torch/version.h"

// The version of this interface. It grows with every change to a class of this file.
#define MUSTER_PLUGIN_INTERFACE 3

#define MUSTER_PLUGIN_TEXT_OF(value) #value
#define MUSTER_PLUGIN_TEXT(value) MUSTER_PLUGIN_TEXT_OF(value)
#if defined(_LIBCPP_VERSION)
#define MUSTER_PLUGIN_ABI "libc++"
#elif defined(_GLIBCXX_DEBUG)
#define MUSTER_PLUGIN_ABI                                                         \
  "libstdc++ with _GLIBCXX_DEBUG and _GLIBCXX_USE_CXX11_ABI=" MUSTER_PLUGIN_TEXT( \
      _GLIBCXX_USE_CXX11_ABI)
#else
#define MUSTER_PLUGIN_ABI \
  "libstdc++ with _GLIBCXX_USE_CXX11_ABI=" MUSTER_PLUGIN_TEXT(_GLIBCXX_USE_CXX11_ABI)
#endif

// The text for which the worker searches the object. Its form never changes.
#define MUSTER_PLUGIN_STAMP                            \
  "muster-plugin-stamp:interface=" MUSTER_PLUGIN_TEXT( \
      MUSTER_PLUGIN_INTERFACE) ";torch=" TORCH_VERSION ";abi=" MUSTER_PLUGIN_ABI ";"

namespace muster::plugin {

// The model's options from the job file, as text. Read each option by one of the methods. An option
// that is given and never read is unknown to the model, and the job is refused. Each method throws
// if the text is not a value of its type, or if there is neither a text nor a `fallback`.
class Options {
 public:
  explicit Options(std::map<std::string, std::string> given) : given_(std::move(given)) {}

  std::string Text(const std::string& name, std::optional<std::string> fallback = std::nullopt) {
    const std::string* text = Find(name);
    if (text == nullptr && !fallback.has_value()) Wrong(name, "a text", text);
    return text != nullptr ? *text : *fallback;
  }
  // A whole number from 1 to 2^31.
  int64_t Size(const std::string& name, std::optional<int64_t> fallback = std::nullopt) {
    const std::string* text = Find(name);
    if (text == nullptr && fallback.has_value()) return *fallback;
    int64_t value = 0;
    if (!Parse(text, &value) || value < 1 || value > (int64_t{1} << 31)) {
      Wrong(name, "an integer from 1 on", text);
    }
    return value;
  }
  double Number(const std::string& name, std::optional<double> fallback = std::nullopt) {
    const std::string* text = Find(name);
    if (text == nullptr && fallback.has_value()) return *fallback;
    double value = 0;
    // The second condition also refuses NaN.
    if (!Parse(text, &value) || !(value - value == 0)) Wrong(name, "a finite number", text);
    return value;
  }
  bool Flag(const std::string& name, std::optional<bool> fallback = std::nullopt) {
    const std::string* text = Find(name);
    if (text == nullptr && fallback.has_value()) return *fallback;
    if (text == nullptr || (*text != "true" && *text != "false"))
      Wrong(name, "true or false", text);
    return *text == "true";
  }

  const std::map<std::string, std::string>& given() const { return given_; }
  const std::set<std::string>& asked() const { return asked_; }

 private:
  const std::string* Find(const std::string& name) {
    asked_.insert(name);
    const auto found = given_.find(name);
    return found == given_.end() ? nullptr : &found->second;
  }
  template <typename Value>
  static bool Parse(const std::string* text, Value* value) {
    if (text == nullptr) return false;
    const char* end = text->data() + text->size();
    const auto result = std::from_chars(text->data(), end, *value);
    return result.ec == std::errc() && result.ptr == end;
  }
  [[noreturn]] static void Wrong(const std::string& name, const std::string& expected,
                                 const std::string* text) {
    throw std::invalid_argument("option " + name + ": expected " + expected + ", found " +
                                (text == nullptr ? "nothing" : "'" + *text + "'"));
  }

  std::map<std::string, std::string> given_;
  std::set<std::string> asked_;
};

// Initial values, float32. They depend only on the job's seed and the parameter's full name.
class Values {
 public:
  virtual ~Values() = default;
  virtual at::Tensor Normal(const std::string& name, const std::vector<int64_t>& shape,
                            double deviation) = 0;
  // Uniform in [-bound, bound).
  virtual at::Tensor Uniform(const std::string& name, const std::vector<int64_t>& shape,
                             double bound) = 0;
  virtual at::Tensor Constant(const std::vector<int64_t>& shape, double value) = 0;
};

class Unit;

// The things that a forward needs besides its inputs.
class Context {
 public:
  virtual ~Context() = default;
  virtual bool training() const = 0;
  // The rank's own generator, which is seeded again for every micro-batch. Draw random numbers
  // (dropout, noise) only from it; otherwise the job can neither be repeated nor resumed exactly.
  virtual at::Generator& generator() = 0;
  // Runs a child of the unit whose Forward calls this; in a loss, runs the model's root. There is
  // no other way to run a unit, because the worker may have to gather the unit's parameters first.
  virtual at::Tensor Call(Unit& unit, const at::Tensor& x) = 0;
  // Runs a child with several inputs or outputs in the same way. All tensors are defined.
  virtual std::vector<at::Tensor> CallMany(Unit& /*unit*/,
                                           const std::vector<at::Tensor>& /*inputs*/) {
    throw std::logic_error("this context has no CallMany");
  }
};

// A piece of a model: named parameters and child units, and one forward. The worker gathers and
// shards unit by unit.
class Unit {
 public:
  // `name`: the full name, such as "body.0"; empty for a root.
  explicit Unit(std::string name) : name_(std::move(name)) {}
  virtual ~Unit() = default;
  Unit(const Unit&) = delete;
  Unit& operator=(const Unit&) = delete;

  // A unit with one input and one output overrides Forward; any other unit overrides ForwardMany.
  // Several tensors are, for example, a mask beside the input, or a loss of the unit beside its
  // output. The root of a model has one input. Both return tensors on the device of the inputs. Get
  // the parameters by `parameter(index)` in each call, because their tensors are replaced.
  virtual at::Tensor Forward(const at::Tensor& /*x*/, Context& /*context*/) {
    throw std::logic_error("has no Forward with one input");
  }
  virtual std::vector<at::Tensor> ForwardMany(const std::vector<at::Tensor>& inputs,
                                              Context& context) {
    if (inputs.size() != 1) {
      throw std::invalid_argument("expected one input, found " + std::to_string(inputs.size()));
    }
    return {Forward(inputs[0], context)};
  }

  const std::string& name() const { return name_; }

 protected:
  // Registers a parameter and returns its index. Called in the constructor, in the order of the
  // forward. `full_name` is the name in weights files, checkpoints and exports. `value` is float32,
  // contiguous, and has its own memory.
  size_t AddParameter(std::string full_name, at::Tensor value) {
    order_.emplace_back(true, parameters_.size());
    parameters_.push_back({std::move(full_name), std::move(value)});
    return parameters_.size() - 1;
  }
  // Registers a buffer: state without a gradient, float32 or int64. A forward changes buffers in
  // place, and only while training. Buffers are saved, exported and resumed like parameters.
  size_t AddBuffer(std::string full_name, at::Tensor value) {
    buffers_.push_back({std::move(full_name), std::move(value)});
    return buffers_.size() - 1;
  }
  template <typename Child>
  Child& AddChild(std::unique_ptr<Child> child) {
    Child& added = *child;
    order_.emplace_back(false, children_.size());
    children_.push_back(std::move(child));
    return added;
  }

  const at::Tensor& parameter(size_t index) const { return parameters_[index].tensor; }
  const at::Tensor& buffer(size_t index) const { return buffers_[index].tensor; }
  const std::vector<std::unique_ptr<Unit>>& children() const { return children_; }

 private:
  friend class UnitAccess;
  struct Named {
    std::string name;
    at::Tensor tensor;
  };

  const std::string name_;
  std::vector<Named> parameters_;
  std::vector<Named> buffers_;
  std::vector<std::unique_ptr<Unit>> children_;
  // The registration order of parameters and children: {true, index of a parameter} or {false,
  // index of a child}.
  std::vector<std::pair<bool, size_t>> order_;
};

// The input and output of a model. The root's output is float32; under `precision` bfloat16 and
// float16, LibTorch's autocast decides its type.
struct Input {
  enum class Kind { kTokens, kRows };
  Kind kind = Kind::kRows;
  // Tokens: int64 [B, context], each below vocab_size -> float32 [B, context, vocab_size].
  int64_t vocab_size = 0;
  int64_t context = 0;
  // Rows: float32 [B, row...] -> float32 [B, classes].
  std::vector<int64_t> row;
  int64_t classes = 0;
  // The number of numbers in each target, which is no class. Only for rows of a model with its own
  // loss.
  int64_t target_numbers = 0;

  static Input Tokens(int64_t vocab_size, int64_t context) {
    Input input;
    input.kind = Kind::kTokens;
    input.vocab_size = vocab_size;
    input.context = context;
    return input;
  }
  static Input Rows(std::vector<int64_t> row, int64_t classes) {
    Input input;
    input.row = std::move(row);
    input.classes = classes;
    return input;
  }
  static Input Numbers(std::vector<int64_t> row, int64_t target_numbers) {
    Input input;
    input.row = std::move(row);
    input.target_numbers = target_numbers;
    return input;
  }
};

// One micro-batch of one rank. Targets of tokens: int64 [B, context], the inputs shifted by one; of
// rows: int64 [B] (classes) or float32 [B, target_numbers].
struct Batch {
  at::Tensor inputs;
  at::Tensor targets;
};

struct LossOutput {
  at::Tensor mean;    // a scalar float32 under any precision, differentiable: the mean over `terms`
  int64_t terms = 0;  // at least 1: the rows, tokens or other terms of the mean
  // The number of terms that the model predicted correctly, for the accuracy in evaluation. -1: not
  // known.
  int64_t correct = -1;
};

// A model that is trained with the job's loss (cross_entropy, mse). The root's output is the
// logits.
class Model {
 public:
  explicit Model(std::unique_ptr<Unit> root) : root_(std::move(root)) {
    if (root_ == nullptr) throw std::invalid_argument("a model needs a root");
  }
  virtual ~Model() = default;

  Unit& root() { return *root_; }

  virtual Input input() const = 0;

  virtual bool has_loss() const { return false; }
  virtual LossOutput Loss(const Batch& batch, Context& context) {
    throw std::logic_error("this model has no loss of its own");
  }

 private:
  const std::unique_ptr<Unit> root_;
};

// A model with a loss of its own: `Loss` calls context.Call(root(), batch.inputs), whose result may
// be anything. In evaluation, `Loss` gives the validation loss.
class ModelWithLoss : public Model {
 public:
  using Model::Model;
  bool has_loss() const final { return true; }
  LossOutput Loss(const Batch& batch, Context& context) override = 0;
};

// A step hook: a model with a hook also derives from this class. With fsdp all parameters are
// gathered for the hook in every step. A hook that only freezes and unfreezes derives from
// FlagHook.
class StepHook {
 public:
  virtual ~StepHook() = default;

  // Called on every rank before each optimizer step, `step` counting from 1 over the whole job.
  // Never called between the micro-batches of a step. The hook may change the values of parameters
  // and buffers in place, and freeze and unfreeze parameters (requires_grad_). The hook must do the
  // same on all ranks. Its actions may depend on `step` and on the values of parameters and
  // buffers, but on nothing outside of a checkpoint. A parameter that is frozen or unfrozen
  // anywhere else, while a step runs, ends the job.
  virtual void BeforeStep(int64_t step) = 0;
};

// A step hook that only freezes and unfreezes parameters (requires_grad_). The hook neither reads
// nor writes a value of a parameter or a buffer, so nothing is gathered. A model with such a hook
// derives from this class in the place of StepHook. An operation of LibTorch on a parameter or
// buffer ends the job with an error that names the operation and the tensor.
class FlagHook : public StepHook {};

// A mark: a model that also derives from this class runs its own collectives in its forward or its
// loss. A rank without input would not take part in these collectives. So the model is refused if
// ranks may have no input (batch.last: uneven).
class RunsCollectives {
 public:
  virtual ~RunsCollectives() = default;
};

// A kind of model that the plug-in makes. `name` is its name in job files.
struct ModelEntry {
  const char* name;
  std::unique_ptr<Model> (*create)(Options& options, Values& values);
};

}  // namespace muster::plugin

extern "C" {
struct muster_plugin {
  const char* stamp;
  const muster::plugin::ModelEntry* models;
  std::size_t count;
};
using muster_plugin_entry_function = const muster_plugin*();
}

// The list of the plug-in's models, once in a plug-in and outside of namespaces:
//   MUSTER_PLUGIN({"name", MakeIt}, {"other", MakeOther})
#define MUSTER_PLUGIN(...)                                                                       \
  extern "C" __attribute__((visibility("default"))) const muster_plugin* muster_plugin_entry() { \
    static const ::muster::plugin::ModelEntry models[] = {__VA_ARGS__};                          \
    static const muster_plugin plugin = {MUSTER_PLUGIN_STAMP, models,                            \
                                         sizeof(models) / sizeof(models[0])};                    \
    return &plugin;                                                                              \
  }

#endif  // MUSTER_PLUGIN_H_
