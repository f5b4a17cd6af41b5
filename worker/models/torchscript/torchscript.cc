#include "worker/models/torchscript/torchscript.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "ATen/core/grad_mode.h"
#include "ATen/ops/allclose.h"
#include "absl/strings/str_cat.h"
#include "common/problems/problems.h"
#include "common/status/status.h"
#include "torch/csrc/jit/api/module.h"
#include "worker/models/deferred_values.h"
#include "worker/models/output_check.h"
#include "worker/models/seed.h"
#include "worker/models/torchscript/checks.h"
#include "worker/models/torchscript/file.h"
#include "worker/models/torchscript/forward.h"
#include "worker/models/torchscript/tensors.h"
#include "worker/models/torchscript/units.h"
#include "worker/models/values_on_demand.h"

namespace muster::models {
namespace {

using torch::jit::Module;

class TorchscriptModel : public Model {
 public:
  TorchscriptModel(std::unique_ptr<Unit> root, const InputSpec& input,
                   const std::vector<ScriptTensor>& tensors)
      : Model("torchscript", std::move(root)), input_(input) {
    for (const ScriptTensor& one : tensors) {
      for (const std::string& name : one.names) {
        weights_[name] = one.kind == ScriptTensor::Kind::kConstant
                             ? WeightName{WeightName::Kind::kIgnored, ""}
                             : WeightName{WeightName::Kind::kParameter, one.names.front()};
      }
    }
  }

  // Finds a parameter by any of its names: a file from Python's state_dict() may have every name of
  // a shared tensor, and the constants.
  WeightName ResolveWeight(const std::string& name) const override {
    const auto found = weights_.find(name);
    return found == weights_.end() ? WeightName{} : found->second;
  }

 protected:
  InputSpec UnitsInput() const override { return input_; }

 private:
  const InputSpec input_;
  std::map<std::string, WeightName> weights_;
};

struct Script {
  Module top;
  std::vector<ScriptTensor> tensors;
};

// `deferred`: receives the values of the parameters, which get no memory. Null: they get memory.
absl::StatusOr<Script> OpenScript(const std::string& path, DeferredValues* deferred) {
  ASSIGN_OR_RETURN(LoadedFile loaded_file,
                   deferred != nullptr ? LoadWithoutMemory(path) : LoadWhole(path));
  const Module& top = loaded_file.module;
  ASSIGN_OR_RETURN(const AssignedTensors assigned, CheckForward(top));
  RETURN_IF_ERROR(CheckOperators(top));
  Script script = {top, FindTensors(top, assigned)};
  std::vector<at::Tensor> loaded;
  for (const ScriptTensor& one : script.tensors) loaded.push_back(one.tensor);
  RETURN_IF_ERROR(CheckMemory(path, loaded));
  Problems problems;
  CheckTensors(script.tensors, &problems);
  if (problems.count() > 0) return absl::InvalidArgumentError(problems.Text());
  if (loaded_file.storages.has_value()) {
    DeferParameters(&script.tensors, &*loaded_file.storages, deferred);
  }
  Separate(&script.tensors);
  return script;
}

bool Same(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && a.scalar_type() == b.scalar_type() &&
         at::allclose(a, b, /*rtol=*/0, /*atol=*/0, /*equal_nan=*/true);
}

// Runs the units twice in evaluation. The result must have the right shape and be the same both
// times, and no buffer may change. Units that draw random numbers run more often, because two
// results may be the same by chance.
absl::StatusOr<at::Tensor> Probe(const std::string& who, Unit& root, const Batch& batch,
                                 const InputSpec& input, const DeferredValues* deferred) {
  const ValuesOnDemand values(root.Parameters(), deferred);
  std::vector<at::Tensor> before;
  for (const Buffer& buffer : root.Buffers()) before.push_back(buffer.tensor.clone());
  ForwardContext context(Mode::kEvaluate, MakeGenerator(0));
  BorrowedProcessGenerator process;
  at::Tensor first;
  bool random = false;
  try {
    int runs = 2;
    for (int run = 0; run < runs && !random; ++run) {
      process.Seed(run);
      const at::Tensor state = process.State();
      const at::Tensor output = context.Call(root, batch.inputs);
      if (!process.State().equal(state)) runs = 16;
      random = first.defined() && !Same(output, first);
      if (!first.defined()) first = output;
    }
  } catch (const ModelError& error) {
    return absl::InvalidArgumentError(absl::StrCat(error.what(), " (for a first small batch)"));
  }
  RETURN_IF_ERROR(Annotate(CheckLogits(first, input), who));
  const auto buffers = root.Buffers();
  for (size_t i = 0; i < buffers.size(); ++i) {
    if (Same(buffers[i].tensor, before[i])) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(who, ": changes its buffer '", buffers[i].name,
                     "' in evaluation too; if it was traced while training, script it instead"));
  }
  if (random) {
    return absl::InvalidArgumentError(absl::StrCat(
        who, ": is random in evaluation too; if it was traced while training, script it instead"));
  }
  return first;
}

absl::StatusOr<std::unique_ptr<Model>> MakeModel(const std::string& who, Script script,
                                                 const InputSpec& input,
                                                 const std::vector<int64_t>& row,
                                                 const DeferredValues* deferred) {
  const at::NoGradGuard no_grad;
  const Batch batch = ProbeBatch(input, row);
  auto root = AsOneUnit(who, script.top, script.tensors, row);
  ASSIGN_OR_RETURN(const at::Tensor expected, Probe(who, *root, batch, input, deferred));
  if (IsSequence(script.top, script.tensors)) {
    auto sequence = AsSequence(who, script.top, script.tensors, row);
    // A traced forward may do more than run the children.
    const auto found = Probe(who, *sequence, batch, input, deferred);
    if (found.ok() && Same(*found, expected)) root = std::move(sequence);
  }
  return std::make_unique<TorchscriptModel>(std::move(root), input, script.tensors);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> CreateTorchscript(const v1::TorchscriptSpec& spec) {
  InputSpec input;
  const std::vector<int64_t> row(spec.inputs().begin(), spec.inputs().end());
  if (spec.vocab_size() > 0) {
    input = {.kind = InputSpec::Kind::kTokens,
             .vocab_size = spec.vocab_size(),
             .context = spec.context()};
  } else {
    input = {.kind = InputSpec::Kind::kRows, .row_elements = 1, .classes = spec.classes()};
    for (const int64_t size : row) input.row_elements *= size;
  }
  const std::string who = absl::StrCat("torchscript ", spec.path());
  const auto create = [&](DeferredValues* deferred) -> absl::StatusOr<std::unique_ptr<Model>> {
    auto script = OpenScript(spec.path(), deferred);
    if (!script.ok()) return Annotate(script.status(), who);
    return MakeModel(who, *std::move(script), input, row, deferred);
  };
  DeferredValues* const deferred = DeferredValues::Current();
  if (deferred == nullptr) return create(nullptr);
  DeferredValues own;
  auto model = create(&own);
  if (model.ok()) {
    deferred->Add(std::move(own));
    return model;
  }
  // The reason does not matter: an error of the file occurs again with memory.
  auto whole = create(nullptr);
  if (whole.ok()) deferred->Refuse(std::string(model.status().message()));
  return whole;
}

}  // namespace muster::models
