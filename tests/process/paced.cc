// A plug-in for tests of faults: a small classifier that trains at a given pace, and fails at a
// given step.
//
// paced {inputs, width, classes}: an MLP with noise from the rank's generator. So the tests notice
// a resumed run that draws other numbers.
// - pace_ms: each step takes at least this long.
// - evaluation_ms: each micro-batch of a validation takes at least this long.
// - predict_ms: each forward that is not training takes at least this long.
// - hold_step, release: before this step the rank waits until the file `release` exists. So the job
//   cannot end before the test is done with the job.
// - fault: none, forward, loss, backward, hook (each of these throws), or hang (the thread stands
//   still and the process lives).
// - fault_step: the step in which the fault happens.
// - fault_on: the rank with the fault.
//   - marked: the rank whose input has a number above 100.
//   - empty: the rank whose input is all zeros, because it has joined.
//   - first: the rank that creates the file `fault_file`. No later rank fails, not even after a
//     restart.
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include "ATen/TensorOperators.h"
#include "ATen/core/Tensor.h"
#include "ATen/ops/linear.h"
#include "ATen/ops/log_softmax.h"
#include "ATen/ops/rand.h"
#include "ATen/ops/tanh.h"
#include "muster/plugin.h"

namespace {

using muster::plugin::Batch;
using muster::plugin::Context;
using muster::plugin::Input;
using muster::plugin::LossOutput;
using muster::plugin::ModelWithLoss;
using muster::plugin::Options;
using muster::plugin::StepHook;
using muster::plugin::Unit;
using muster::plugin::Values;

class Layer : public Unit {
 public:
  Layer(const std::string& name, int64_t in, int64_t out, Values& values) : Unit(name) {
    AddParameter(name + ".weight", values.Normal(name + ".weight", {out, in}, 0.3));
    AddParameter(name + ".bias", values.Constant({out}, 0));
  }
  at::Tensor Forward(const at::Tensor& x, Context&) override {
    return at::linear(x, parameter(0), parameter(1));
  }
};

class Fault {
 public:
  explicit Fault(Options& options)
      : what_(options.Text("fault", "none")),
        step_(options.Size("fault_step", 1)),
        on_(options.Text("fault_on", "first")),
        file_(options.Text("fault_file", "")) {}

  void Begin(int64_t step) {
    now_ = step;
    if (what_ == "hook" && now_ == step_ && First()) Throw();
  }

  // Returns true if the fault happens now, at this place and on this rank.
  bool Happens(const std::string& place, const at::Tensor& inputs) {
    if (what_ != place || now_ != step_) return false;
    if (on_ == "marked") return inputs.max().item<float>() > 100;
    if (on_ == "empty") return inputs.abs().max().item<float>() == 0;
    return First();
  }

  [[noreturn]] void Throw() const {
    throw std::runtime_error("the " + what_ + " fails, as the test wants");
  }

 private:
  bool First() {
    std::FILE* file = std::fopen(file_.c_str(), "wx");
    if (file == nullptr) return false;
    // The process that failed, for the test.
    std::fprintf(file, "%d\n", static_cast<int>(getpid()));
    std::fclose(file);
    return true;
  }

  const std::string what_;
  const int64_t step_;
  const std::string on_, file_;
  int64_t now_ = 0;
};

class Root : public Unit {
 public:
  Root(int64_t inputs, int64_t width, int64_t classes, std::chrono::milliseconds predict,
       Fault& fault, Values& values)
      : Unit(""), predict_(predict), fault_(fault) {
    first_ = &AddChild(std::make_unique<Layer>("first", inputs, width, values));
    second_ = &AddChild(std::make_unique<Layer>("second", width, width, values));
    head_ = &AddChild(std::make_unique<Layer>("head", width, classes, values));
  }

  at::Tensor Forward(const at::Tensor& rows, Context& context) override {
    at::Tensor x = at::tanh(context.Call(*first_, rows));
    if (context.training()) {
      x = x * (at::rand(x.sizes(), context.generator()) + 0.5);
      if (fault_.Happens("forward", rows)) fault_.Throw();
      if (fault_.Happens("hang", rows)) {
        for (;;) pause();
      }
      if (fault_.Happens("backward", rows)) {
        x.register_hook([this](const at::Tensor&) { fault_.Throw(); });
      }
    } else {
      std::this_thread::sleep_for(predict_);
    }
    return context.Call(*head_, at::tanh(context.Call(*second_, x)));
  }

 private:
  const std::chrono::milliseconds predict_;
  Fault& fault_;
  Layer *first_, *second_, *head_;
};

struct Shape {
  explicit Shape(Options& options)
      : inputs(options.Size("inputs")),
        width(options.Size("width")),
        classes(options.Size("classes")),
        predict(static_cast<int64_t>(options.Number("predict_ms", 0))) {}
  int64_t inputs, width, classes;
  std::chrono::milliseconds predict;
};

class Paced : public ModelWithLoss, public StepHook {
 public:
  Paced(const Shape& shape, Options& options, std::unique_ptr<Fault> fault, Values& values)
      : ModelWithLoss(std::make_unique<Root>(shape.inputs, shape.width, shape.classes,
                                             shape.predict, *fault, values)),
        shape_(shape),
        pace_(static_cast<int64_t>(options.Number("pace_ms", 0))),
        evaluation_(static_cast<int64_t>(options.Number("evaluation_ms", 0))),
        hold_step_(options.Size("hold_step", int64_t{1} << 31)),
        release_(options.Text("release", "")),
        fault_(std::move(fault)) {}

  Input input() const override { return Input::Rows({shape_.inputs}, shape_.classes); }

  LossOutput Loss(const Batch& batch, Context& context) override {
    const at::Tensor logits = context.Call(root(), batch.inputs);
    if (context.training() && fault_->Happens("loss", batch.inputs)) fault_->Throw();
    if (!context.training()) std::this_thread::sleep_for(evaluation_);
    const at::Tensor target = batch.targets.unsqueeze(1);
    return {.mean = -at::log_softmax(logits, 1, at::kFloat).gather(1, target).mean(),
            .terms = batch.targets.numel()};
  }

  void BeforeStep(int64_t step) override {
    std::this_thread::sleep_for(pace_);
    while (step >= hold_step_ && access(release_.c_str(), F_OK) != 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    fault_->Begin(step);
  }

 private:
  const Shape shape_;
  const std::chrono::milliseconds pace_, evaluation_;
  const int64_t hold_step_;
  const std::string release_;
  // The fault, to which the root refers.
  const std::unique_ptr<Fault> fault_;
};

std::unique_ptr<muster::plugin::Model> MakePaced(Options& options, Values& values) {
  const Shape shape(options);
  return std::make_unique<Paced>(shape, options, std::make_unique<Fault>(options), values);
}

}  // namespace

MUSTER_PLUGIN({"paced", MakePaced})
