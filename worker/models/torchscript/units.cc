#include "worker/models/torchscript/units.h"

#include <algorithm>
#include <mutex>
#include <optional>
#include <utility>

#include "ATen/CPUGeneratorImpl.h"
#include "ATen/core/grad_mode.h"
#include "absl/strings/str_cat.h"
#include "c10/util/Exception.h"
#include "torch/csrc/jit/runtime/graph_executor.h"
#include "worker/models/model.h"
#include "worker/models/output_check.h"
#include "worker/models/seed.h"
#include "worker/models/torchscript/forward.h"

namespace muster::models {
namespace {

using torch::jit::Module;
using Kind = ScriptTensor::Kind;

// Returns the reason in an error of a script.
std::string LastLine(const std::string& text) {
  const size_t end = text.find_last_not_of(" \n\t");
  if (end == std::string::npos) return "no reason given";
  const size_t before = text.find_last_of('\n', end);
  const size_t begin = before == std::string::npos ? 0 : before + 1;
  return text.substr(begin, std::min<size_t>(end + 1 - begin, 300));
}

uint64_t Draw(at::Generator& generator) {
  const std::lock_guard<std::mutex> lock(generator.mutex());
  return generator.get<at::CPUGeneratorImpl>()->random64();
}

// A module with all modules below.
class ScriptUnit : public Unit {
 public:
  // `tensors`: those in the module. `row`: the shape to which rows are reshaped; empty: no reshape.
  ScriptUnit(const std::string& who, const std::string& name, Module module,
             const std::vector<const ScriptTensor*>& tensors, std::vector<int64_t> row)
      : Unit(name),
        who_(name.empty() ? who : absl::StrCat(who, ": unit '", name, "'")),
        module_(std::move(module)),
        row_(std::move(row)) {
    for (const ScriptTensor* one : tensors) {
      if (one->kind == Kind::kParameter) {
        AddParameter(one->names.front(), one->tensor);
        parameter_slots_.push_back(one->slots);
      } else if (one->kind == Kind::kBuffer) {
        AddBuffer(one->names.front(), one->tensor);
        buffers_.push_back({.slots = one->slots, .assigned = one->assigned});
      } else {
        constants_.push_back(
            {one->names.front(), one->slots.front(), one->tensor, one->tensor._version()});
      }
    }
  }

  at::Tensor Forward(const at::Tensor& x, ForwardContext& context) override {
    PutParameters();
    PutBuffers();
    SetMode(context.training());
    const at::Tensor y = Run(InRows(x, row_), context);
    TakeBuffers();
    CheckConstants();
    return y;
  }

 private:
  struct Constant {
    std::string name;
    ScriptSlot slot;
    at::Tensor tensor;
    int64_t version;
  };

  struct BufferSlots {
    std::vector<ScriptSlot> slots;
    bool assigned;
    // The tensor in the slots during a forward, if `assigned`.
    at::Tensor copy = {};
    int64_t version = 0;
  };

  at::Tensor Run(const at::Tensor& x, ForwardContext& context) {
    // The interpreter runs operator by operator, as Python does. The optimizer would fuse operators
    // after some calls, with other bits; a resumed run would start without the fusion.
    const torch::jit::GraphOptimizerEnabledGuard unoptimized(false);
    // TorchScript's random operators use only the process-wide generator.
    std::optional<BorrowedProcessGenerator> process;
    if (context.training()) {
      process.emplace();
      process->Seed(Draw(context.generator()));
    }
    std::string wrong;
    try {
      const c10::IValue y = module_.forward({x});
      if (y.isTensor()) return y.toTensor().contiguous();
      wrong = absl::StrCat("expected a tensor, found ", y.tagKind());
    } catch (const std::exception& error) {
      // The interpreter converts errors of LibTorch to others. All end with the reason, after the
      // traceback.
      const auto* own = dynamic_cast<const c10::Error*>(&error);
      const std::string text = own != nullptr ? own->what_without_backtrace() : error.what();
      if (IsLackOfMemory(text)) throw;
      wrong = LastLine(text);
    }
    throw ModelError(absl::StrCat(who_, ": forward: ", wrong));
  }

  // A strategy may have replaced the tensor of a parameter since the last call.
  void PutParameters() {
    for (size_t i = 0; i < parameter_slots_.size(); ++i) {
      if (parameter_slots_[i].front().Get().is_same(parameter(i))) continue;
      for (const ScriptSlot& slot : parameter_slots_[i]) slot.Set(parameter(i));
    }
  }

  void SetMode(bool training) {
    if (mode_ == training) return;
    module_.train(training);
    mode_ = training;
  }

  // Puts copies of assigned buffers into their slots: backward may need the values that forward
  // read.
  void PutBuffers() {
    for (size_t i = 0; i < buffers_.size(); ++i) {
      BufferSlots& one = buffers_[i];
      if (!one.assigned) continue;
      one.copy = buffer(i).clone();
      one.version = one.copy._version();
      for (const ScriptSlot& slot : one.slots) slot.Set(one.copy);
    }
  }

  // Copies the values of tensors that the script assigned to a buffer into the unit's buffer. Also
  // in evaluation: the new tensor must not stay in the slot for training.
  void TakeBuffers() {
    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < buffers_.size(); ++i) {
      for (const ScriptSlot& slot : buffers_[i].slots) {
        const at::Tensor now = slot.Get();
        if (now.is_same(buffer(i))) continue;
        slot.Set(buffer(i));
        if (now.is_same(buffers_[i].copy) && now._version() == buffers_[i].version) continue;
        if (now.sizes() != buffer(i).sizes() || now.scalar_type() != buffer(i).scalar_type()) {
          throw ModelError(absl::StrCat(who_, ": forward assigns the buffer '",
                                        own_buffers()[i].name, "': expected ", Describe(buffer(i)),
                                        " as before, found ", Describe(now)));
        }
        buffer(i).copy_(now);
      }
    }
  }

  void CheckConstants() const {
    for (const Constant& one : constants_) {
      const at::Tensor now = one.slot.Get();
      if (now.is_same(one.tensor) && now._version() == one.version) continue;
      throw ModelError(absl::StrCat(who_, ": '", one.name,
                                    "' was changed by forward, but is no buffer of type Float "
                                    "or Long, so no checkpoint holds it"));
    }
  }

  const std::string who_;
  Module module_;
  const std::vector<int64_t> row_;
  std::vector<std::vector<ScriptSlot>> parameter_slots_;
  std::vector<BufferSlots> buffers_;
  std::vector<Constant> constants_;
  std::optional<bool> mode_;
};

// A root that runs the children one after the other.
class SequenceRoot : public Unit {
 public:
  SequenceRoot(const std::string& who, const Module& top, const std::vector<ScriptTensor>& tensors,
               std::vector<int64_t> row)
      : Unit(""), row_(std::move(row)) {
    for (const auto& [name, child] : top.named_children()) {
      std::vector<const ScriptTensor*> inside;
      for (const ScriptTensor& one : tensors) {
        if (one.children.count(name) > 0) inside.push_back(&one);
      }
      AddChild(std::make_unique<ScriptUnit>(who, name, child, inside, std::vector<int64_t>{}));
    }
  }

  at::Tensor Forward(const at::Tensor& rows, ForwardContext& context) override {
    at::Tensor x = InRows(rows, row_);
    for (const auto& child : children()) x = context.Call(*child, x);
    return x;
  }

 private:
  const std::vector<int64_t> row_;
};

}  // namespace

bool IsSequence(const Module& top, const std::vector<ScriptTensor>& tensors) {
  const auto name = top.type()->name();
  if (!name.has_value() || name->name() != "Sequential" ||
      name->prefix().rfind("__torch__.torch.nn.modules.container", 0) != 0) {
    return false;
  }
  for (const ScriptTensor& one : tensors) {
    if (one.children.size() != 1 || one.children.count("") > 0) return false;
  }
  for (const Module& child : top.children()) {
    if (!TakesAndGivesOneTensor(child)) return false;
  }
  return true;
}

std::unique_ptr<Unit> AsOneUnit(const std::string& who, const Module& top,
                                const std::vector<ScriptTensor>& tensors,
                                const std::vector<int64_t>& row) {
  std::vector<const ScriptTensor*> all;
  for (const ScriptTensor& one : tensors) all.push_back(&one);
  return std::make_unique<ScriptUnit>(who, "", top, all, row);
}

std::unique_ptr<Unit> AsSequence(const std::string& who, const Module& top,
                                 const std::vector<ScriptTensor>& tensors,
                                 const std::vector<int64_t>& row) {
  return std::make_unique<SequenceRoot>(who, top, tensors, row);
}

}  // namespace muster::models
