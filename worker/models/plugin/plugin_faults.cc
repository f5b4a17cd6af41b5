// A plug-in for tests whose models have one fault each; the option `fault` names the fault.
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "ATen/TensorOperators.h"
#include "ATen/core/Tensor.h"
#include "ATen/core/grad_mode.h"
#include "ATen/ops/empty.h"
#include "ATen/ops/eye.h"
#include "ATen/ops/full.h"
#include "ATen/ops/item.h"
#include "ATen/ops/linear.h"
#include "ATen/ops/ones.h"
#include "ATen/ops/tanh.h"
#include "ATen/ops/zeros.h"
#include "muster/plugin.h"

namespace muster::plugin {
namespace {

// 3 numbers -> 2 classes.
class Root : public Unit {
 public:
  explicit Root(std::string fault) : Unit(""), fault_(std::move(fault)), stranger_(nullptr) {
    if (fault_ != "no-parameters") {
      AddParameter("weight", at::ones({2, 3}, fault_ == "double" ? at::kDouble : at::kFloat));
    }
    if (fault_.rfind("steers-", 0) == 0) AddParameter("bias", at::zeros({2}));
    if (fault_ == "twice") AddParameter("weight", at::ones({2, 3}));
    if (fault_ == "shared") AddParameter("same", parameter(0).detach());
    if (fault_ == "part") AddParameter("part", parameter(0).detach().narrow(0, 1, 1));
    if (fault_ == "no-tensor") AddParameter("nothing", at::Tensor());
    if (fault_ == "half-buffer") AddBuffer("half", at::ones({1}, at::kHalf));
    if (fault_ == "no-child") AddChild(std::unique_ptr<Unit>());
    if (fault_ == "stranger") stranger_ = std::make_unique<Root>("");
  }

  at::Tensor Forward(const at::Tensor& x, Context& context) override {
    if (fault_ == "forward-throws") throw std::runtime_error("no luck");
    if (fault_ == "forward-throws-when-training" && context.training()) throw 5;
    if (fault_ == "torch-throws") return at::linear(x, at::ones({2, 4}));
    if (fault_ == "returns-nothing") return {};
    if (fault_ == "stranger") return context.Call(*stranger_, x);
    if (fault_ == "steers-in-forward" && context.training() && ++forwards_ == 3) Freeze();
    if (fault_.rfind("steers-", 0) == 0) return at::linear(x, parameter(0), parameter(1));
    const at::Tensor y = at::linear(x, parameter(0));
    return fault_ == "other-shape" ? y.sum(1) : y;
  }

  void Freeze(bool freeze = true) { at::Tensor(parameter(0)).requires_grad_(!freeze); }
  void Fill() {
    const at::NoGradGuard no_grad;
    at::Tensor(parameter(0)).fill_(2);
  }
  // Clears the gradient like an optimizer's zero_grad, with or without set_to_none.
  void ClearGradient(bool set_to_none) {
    at::Tensor& gradient = at::Tensor(parameter(0)).mutable_grad();
    if (set_to_none) gradient.reset();
    if (gradient.defined()) gradient.zero_();
  }

 private:
  const std::string fault_;
  std::unique_ptr<Unit> stranger_;
  int forwards_ = 0;
};

// Returns the rank of this worker, for faults on one rank only.
std::string OwnRank() {
  std::ifstream file("/proc/self/cmdline");
  for (std::string word; std::getline(file, word, '\0');) {
    if (word == "--rank" && std::getline(file, word, '\0')) return word;
  }
  return "";
}

// 3 numbers -> 3 numbers.
class Square : public Unit {
 public:
  explicit Square(const std::string& name, int64_t unused = 0) : Unit(name) {
    AddParameter(name + ".weight", at::eye(3));
    if (unused > 0) AddParameter(name + ".unused", at::ones({unused}));
  }
  at::Tensor Forward(const at::Tensor& x, Context&) override { return at::linear(x, parameter(0)); }
};

// Two units that one rank calls in another way.
class TwoUnits : public Unit {
 public:
  TwoUnits(std::string fault, bool other)
      : Unit(""),
        fault_(std::move(fault)),
        other_(other),
        a_(AddChild(std::make_unique<Square>("a"))),
        b_(AddChild(std::make_unique<Square>("b"))) {
    AddParameter("weight", at::ones({2, 3}));
  }
  at::Tensor Forward(const at::Tensor& x, Context& context) override {
    at::Tensor y = x;
    const bool other = other_ && context.training() && ++forwards_ > 4;
    if (other && fault_ == "other-order") {
      y = context.Call(a_, context.Call(b_, y));
    } else {
      y = context.Call(b_, context.Call(a_, y));
      if (other && fault_ == "one-unit-more") y = context.Call(b_, context.Call(a_, y));
    }
    return at::linear(y, parameter(0));
  }

 private:
  const std::string fault_;
  const bool other_;
  Unit& a_;
  Unit& b_;
  int forwards_ = 0;
};

// One or two inputs and two outputs: the sum of the inputs, and its mean as a loss of its own.
class Adds : public Unit {
 public:
  Adds() : Unit("adds") { AddParameter("adds.weight", at::eye(3)); }
  std::vector<at::Tensor> ForwardMany(const std::vector<at::Tensor>& inputs, Context&) override {
    at::Tensor y = at::linear(inputs.at(0), parameter(0));
    if (inputs.size() > 1) y = y + inputs[1];
    return {y, y.mean()};
  }
};

// "several": child and root have several outputs. "several-...": a wrong number of tensors.
class Several : public Unit {
 public:
  explicit Several(std::string fault)
      : Unit(""),
        fault_(std::move(fault)),
        adds_(AddChild(std::make_unique<Adds>())),
        square_(AddChild(std::make_unique<Square>("square"))) {
    AddParameter("weight", at::ones({2, 3}));
  }
  std::vector<at::Tensor> ForwardMany(const std::vector<at::Tensor>& inputs,
                                      Context& context) override {
    if (fault_ == "several-outputs") return {context.Call(adds_, inputs[0])};
    if (fault_ == "several-inputs") return context.CallMany(square_, {inputs[0], inputs[0]});
    if (fault_ == "several-undefined") return context.CallMany(adds_, {inputs[0], at::Tensor()});
    const auto found = context.CallMany(adds_, {inputs[0], context.Call(square_, inputs[0])});
    return {at::linear(found[0], parameter(0)), found[1]};
  }

 private:
  const std::string fault_;
  Unit& adds_;
  Unit& square_;
};

class WithOwnLoss : public ModelWithLoss {
 public:
  explicit WithOwnLoss(const std::string& fault)
      : ModelWithLoss(std::make_unique<Several>(fault)), fault_(fault) {}
  Input input() const override { return Input::Rows({3}, 2); }
  LossOutput Loss(const Batch& batch, Context& context) override {
    std::vector<at::Tensor> inputs = {batch.inputs};
    if (fault_ == "several-for-root") inputs.push_back(batch.inputs);
    const auto outputs = context.CallMany(root(), inputs);
    return {.mean = outputs.at(0).mean() + outputs.at(1), .terms = batch.inputs.size(0)};
  }

 private:
  const std::string fault_;
};

// Four squares in a row. From its third forward in training on, this rank skips one square.
class Skips : public Unit {
 public:
  // uneven: the squares have different numbers of parameters.
  Skips(int skipped, bool uneven) : Unit(""), skipped_(skipped) {
    for (int i = 0; i < 4; ++i) {
      const std::string name = "block." + std::to_string(i);
      blocks_.push_back(&AddChild(std::make_unique<Square>(name, uneven ? 100 * i : 0)));
    }
    AddParameter("weight", at::ones({2, 3}));
  }
  at::Tensor Forward(const at::Tensor& x, Context& context) override {
    const bool skips = context.training() && ++forwards_ > 2;
    at::Tensor y = x;
    for (int i = 0; i < 4; ++i) {
      if (!skips || i != skipped_) y = context.Call(*blocks_[i], y);
    }
    return at::linear(y, parameter(0));
  }

 private:
  const int skipped_;
  std::vector<Unit*> blocks_;
  int forwards_ = 0;
};

// A root that is slow, or never returns, on one rank.
class Slow : public Unit {
 public:
  // "hangs": never returns from its 5th forward in training, unless the file `path` exists. The
  // root first makes this file, with its process id. "slow-evaluation": is slow, but continues.
  Slow(std::string fault, bool this_rank, std::string path)
      : Unit(""), fault_(std::move(fault)), this_rank_(this_rank), path_(std::move(path)) {
    AddParameter("weight", at::ones({2, 3}));
  }
  at::Tensor Forward(const at::Tensor& x, Context& context) override {
    if (this_rank_ && fault_ == "hangs" && context.training() && ++forwards_ == 5) {
      if (std::FILE* file = std::fopen(path_.c_str(), "wx"); file != nullptr) {
        std::fprintf(file, "%d\n", getpid());
        std::fclose(file);
        while (true) pause();
      }
    }
    if (this_rank_ && fault_ == "slow-evaluation" && !context.training()) usleep(400000);
    return at::linear(x, parameter(0));
  }

 private:
  const std::string fault_;
  const bool this_rank_;
  const std::string path_;
  int forwards_ = 0;
};

// Layers of 3 x `width`, `width` x `width` and `width` x 2, made in several ways, some with the
// process-wide generator.
class Deep : public Unit {
 public:
  class Layer : public Unit {
   public:
    Layer(const std::string& name, at::Tensor weight) : Unit(name) {
      AddParameter(name + ".weight", std::move(weight));
    }
    at::Tensor Forward(const at::Tensor& x, Context&) override {
      return at::linear(x, parameter(0));
    }
  };

  // `how`: "draws" takes all weights from the process-wide generator; "values" makes weights by
  // their names; "reads" does the same and also reads a value.
  Deep(const std::string& how, int64_t layers, int64_t width, Values& values)
      : Unit(""), scale_(at::full({width}, 0.5)) {
    for (int64_t i = 0; i < layers; ++i) {
      const std::string name = "layer." + std::to_string(i);
      const std::vector<int64_t> shape = {i + 1 < layers ? width : 2, i > 0 ? width : 3};
      at::Tensor weight =
          how == "draws" ? at::empty(shape).normal_(0, 0.1) : values.Normal(name, shape, 0.05);
      weight.mul_(2);
      if (how == "reads") mean_ += weight.mean().item<float>();
      layers_.push_back(&AddChild(std::make_unique<Layer>(name, weight)));
    }
    AddBuffer("shift", at::zeros({width}));
  }
  at::Tensor Forward(const at::Tensor& x, Context& context) override {
    at::Tensor y = x;
    for (size_t i = 0; i < layers_.size(); ++i) {
      y = context.Call(*layers_[i], y);
      if (i + 1 < layers_.size()) y = at::tanh(y * scale_ + buffer(0));
    }
    return y;
  }

 private:
  const at::Tensor scale_;  // neither parameter nor buffer
  float mean_ = 0;
  std::vector<Unit*> layers_;
};

class RowsModel : public Model {
 public:
  using Model::Model;
  Input input() const override { return Input::Rows({3}, 2); }
};

class Faulty : public Model, public StepHook {
 public:
  Faulty(std::string fault, std::string path)
      : Model(fault == "no-root" ? nullptr : std::make_unique<Root>(fault)),
        fault_(std::move(fault)),
        path_(std::move(path)) {}

  Input input() const override {
    if (fault_ == "no-classes") return Input::Rows({3}, 0);
    if (fault_ == "numbers-without-loss") return Input::Numbers({3}, 2);
    if (fault_ == "no-row") return Input::Rows({}, 2);
    return Input::Rows({3}, 2);
  }

  bool has_loss() const override { return fault_.rfind("loss-", 0) == 0; }
  LossOutput Loss(const Batch& batch, Context& context) override {
    const at::Tensor logits = context.Call(root(), batch.inputs);
    if (fault_ == "loss-not-scalar") return {.mean = logits, .terms = 2};
    if (fault_ == "loss-nothing") return {};
    if (fault_ == "loss-bfloat16") return {.mean = logits.mean().to(at::kBFloat16), .terms = 2};
    if (fault_ == "loss-no-terms") return {.mean = logits.mean(), .terms = 0};
    if (fault_ == "loss-no-gradient") return {.mean = logits.detach().mean(), .terms = 2};
    throw std::runtime_error("loss of face");
  }

  void BeforeStep(int64_t step) override {
    if (fault_ == "hook-throws" && step == 3) throw std::runtime_error("no third step");
    Root& root = static_cast<Root&>(Model::root());
    if (fault_ == "hook-freezes") root.Freeze();
    // Freezes in every second step.
    if (fault_ == "steers-in-turn") root.Freeze(step % 2 == 0);
    if (fault_ == "hook-zeroes-gradients") root.ClearGradient(false);
    if (fault_ == "hook-drops-gradients") root.ClearGradient(true);
    // Freezes on the rank that creates the file.
    if (fault_ == "steers-one-rank" && step == 3) {
      if (std::FILE* file = std::fopen(path_.c_str(), "wx"); file != nullptr) {
        std::fclose(file);
        root.Freeze();
      }
    }
  }

 private:
  const std::string fault_;
  const std::string path_;
};

// A model whose hook declares that it only freezes and unfreezes.
class Flags : public RowsModel, public FlagHook {
 public:
  explicit Flags(const std::string& fault) : RowsModel(std::make_unique<Root>("")), fault_(fault) {}
  void BeforeStep(int64_t step) override {
    Root& root = static_cast<Root&>(Model::root());
    if (fault_ == "flags-in-turn") root.Freeze(step % 2 == 0);
    if (fault_ == "flags-writes") root.Fill();
    if (fault_ == "flags-catches") {
      try {
        root.Fill();
      } catch (const std::exception&) {  // the hook continues after the refusal
      }
    }
  }

 private:
  const std::string fault_;
};

class Talkative : public Faulty, public RunsCollectives {
 public:
  using Faulty::Faulty;
};

// The fault is an option, so that one entry serves all models.
std::unique_ptr<Model> MakeFaulty(Options& options, Values& values) {
  const std::string fault = options.Text("fault");
  if (fault == "no-model") return nullptr;
  if (fault == "create-throws") throw std::runtime_error("not today");
  if (fault == "hangs" || fault == "slow-evaluation") {
    return std::make_unique<RowsModel>(
        std::make_unique<Slow>(fault, options.Text("rank") == OwnRank(), options.Text("path", "")));
  }
  if (fault == "other-order" || fault == "one-unit-more") {
    return std::make_unique<RowsModel>(
        std::make_unique<TwoUnits>(fault, options.Text("rank") == OwnRank()));
  }
  if (fault == "skips") {
    // The option rankR is the number of the block that rank R skips.
    const std::string skipped = options.Text("rank" + OwnRank(), "-1");
    for (int rank = 0; rank < 4; ++rank) options.Text("rank" + std::to_string(rank), "");
    return std::make_unique<RowsModel>(
        std::make_unique<Skips>(std::stoi(skipped), options.Flag("uneven", false)));
  }
  if (fault == "draws" || fault == "values" || fault == "reads") {
    return std::make_unique<RowsModel>(std::make_unique<Deep>(fault, options.Size("layers", 4),
                                                              options.Size("width", 64), values));
  }
  const std::string path = options.Text("path", "");
  if (fault == "says-when-made") {
    std::ofstream(path, std::ios::app) << "made\n";
    return std::make_unique<RowsModel>(std::make_unique<Root>(""));
  }
  if (fault.rfind("several", 0) == 0) return std::make_unique<WithOwnLoss>(fault);
  if (fault == "no-hook") return std::make_unique<RowsModel>(std::make_unique<Root>(""));
  if (fault.rfind("flags-", 0) == 0) return std::make_unique<Flags>(fault);
  if (fault == "runs-collectives") return std::make_unique<Talkative>(fault, "");
  return std::make_unique<Faulty>(fault, path);
}

}  // namespace
}  // namespace muster::plugin

MUSTER_PLUGIN({"faulty", muster::plugin::MakeFaulty})
