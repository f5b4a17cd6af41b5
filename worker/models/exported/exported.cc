#include "worker/models/exported/exported.h"

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "ATen/ops/eq.h"
#include "ATen/ops/item.h"
#include "ATen/ops/ne.h"
#include "ATen/ops/sum.h"
#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status/status.h"
#include "worker/models/deferred_values.h"
#include "worker/models/exported/folder.h"
#include "worker/models/exported/graph.h"
#include "worker/models/exported/input.h"
#include "worker/models/exported/run.h"
#include "worker/models/output_check.h"

namespace muster::models {
namespace {

using exported::Folder;
using exported::Graph;
using exported::GraphUnit;
using exported::StateTensor;

// The tensors of a model by name.
using ByName = std::map<std::string, at::Tensor>;

// What all units of a model share.
struct Program {
  std::string who;
  Graph train;
  Graph evaluate;
  ByName constants;
  std::vector<int64_t> row;     // the shape of a row of numbers; empty: other inputs
  std::vector<int64_t> result;  // the shape of the result; the first size is any; empty: a loss
  bool any_length = false;      // the second size of the result is that of the first input
};

class ExportedUnit : public Unit {
 public:
  ExportedUnit(std::shared_ptr<const Program> program, size_t index, const ByName& tensors)
      : Unit(program->train.units[index].tensors.name),
        program_(std::move(program)),
        index_(index),
        who_(name().empty() ? program_->who
                            : absl::StrCat(program_->who, ": unit '", name(), "'")) {
    const exported::UnitTensors& own = program_->train.units[index].tensors;
    for (const std::string& name : own.parameters) AddParameter(name, tensors.at(name));
    for (const std::string& name : own.buffers) AddBuffer(name, tensors.at(name));
    // Only the root has units below.
    for (size_t i = 1; index == 0 && i < program_->train.units.size(); ++i) {
      AddChild(std::make_unique<ExportedUnit>(program_, i, tensors));
    }
  }

  Tensors ForwardMany(const Tensors& inputs, ForwardContext& context) override {
    const GraphUnit& unit =
        (context.training() ? program_->train : program_->evaluate).units[index_];
    if (inputs.size() != unit.inputs.size()) {
      throw ModelError(
          absl::StrCat(who_, ": expected ", unit.inputs.size(), " inputs, found ", inputs.size()));
    }
    Tensors tensors = inputs;
    if (index_ == 0) {
      if (!program_->row.empty()) tensors[0] = InRows(tensors[0], program_->row);
      // The batch must keep its values.
      for (const int input : unit.written_inputs) tensors[input] = tensors[input].clone();
    }
    for (const Parameter& one : own_parameters()) tensors.push_back(one.tensor);
    for (const Buffer& one : own_buffers()) tensors.push_back(one.tensor);
    AddConstants(unit, &tensors);
    const std::function<Tensors(size_t, const Tensors&)> call = [&](size_t child,
                                                                    const Tensors& given) {
      return context.CallMany(*children()[child - 1], given);
    };
    Tensors outputs = exported::RunUnit(unit, std::move(tensors), {who_, context, call});
    if (index_ == 0) {
      CheckResult(outputs[0], inputs[0]);
    } else {
      CheckOwnMemory(outputs);
    }
    return outputs;
  }

 private:
  // The data and the loss were chosen for the shape in the manifest.
  void CheckResult(const at::Tensor& result, const at::Tensor& input) const {
    std::vector<int64_t> expected = program_->result;
    if (!expected.empty()) expected[0] = input.size(0);
    if (program_->any_length) expected[1] = input.size(1);
    if (result.sizes() == at::IntArrayRef(expected)) return;
    throw ModelError(absl::StrCat(who_, ": expected a result of [", absl::StrJoin(expected, ", "),
                                  "] as in manifest.json, found ", Describe(result)));
  }

  // A strategy frees the unit's parameters after the call.
  void CheckOwnMemory(const Tensors& outputs) const {
    for (const at::Tensor& one : outputs) {
      for (const Parameter& parameter : own_parameters()) {
        if (!one.is_alias_of(parameter.tensor)) continue;
        throw ModelError(absl::StrCat(who_, ": returns its parameter '", parameter.name,
                                      "' or a view of it; expected a result that was computed"));
      }
    }
  }

  // Adds the constants that the unit uses, on the device of its other tensors.
  void AddConstants(const GraphUnit& unit, Tensors* tensors) {
    c10::Device device = c10::kCPU;
    for (const at::Tensor& one : *tensors) {
      if (!one.device().is_cpu()) device = one.device();
    }
    for (const std::string& name : unit.constants) {
      at::Tensor& constant = constants_[name];
      if (!constant.defined()) constant = program_->constants.at(name);
      if (constant.device() != device) constant = constant.to(device);
      tensors->push_back(constant);
    }
  }

  const std::shared_ptr<const Program> program_;
  const size_t index_;  // in the units of the graphs
  const std::string who_;
  ByName constants_;
};

// The number of logits of a position; 0: a loss.
int64_t WidthOf(const exported::TensorShape& output) {
  return output.dimensions.empty() ? 0 : output.dimensions.back().size.value_or(0);
}

// Says why a model cannot continue sequences. Empty: it can.
std::string WhyNotContinued(const InputSpec& input, std::optional<bool> causal) {
  if (input.own_loss) {
    return "it returns its loss; expected a model that returns logits (exported without `labels`)";
  }
  if (input.kind != InputSpec::Kind::kTokens) {
    return "expected one input of tokens, and logits over a vocabulary for each";
  }
  if (!causal.has_value()) {
    return "it is not known whether its logits depend on later tokens; export it again, with an "
           "example of different tokens";
  }
  return *causal ? ""
                 : "its logits depend on later tokens; expected a model that does not see them";
}

class ExportedModel : public Model {
 public:
  ExportedModel(std::string who, std::unique_ptr<Unit> root, InputSpec input, const Folder& folder)
      : Model("exported", std::move(root)),
        who_(std::move(who)),
        input_(std::move(input)),
        precisions_(folder.manifest.precisions),
        ties_(folder.manifest.ties),
        config_(folder.config),
        hash_(folder.hash),
        why_no_continuation_(WhyNotContinued(input_, folder.manifest.causal)),
        sequences_{.vocabulary = WidthOf(folder.manifest.output)} {
    if (folder.manifest.sequence.has_value()) {
      sequences_.shortest = folder.manifest.sequence->least;
    } else {
      sequences_.length = input_.context;
    }
    for (const StateTensor& one : folder.manifest.parameters) source_order_.push_back(one.name);
  }

  std::string name() const override { return who_; }
  std::string HuggingFaceConfig() const override { return config_; }
  std::string file_hash() const override { return hash_; }
  std::vector<std::string> SourceOrder() const override { return source_order_; }

  absl::Status CheckPrecision(const std::string& precision) const override {
    if (absl::c_linear_search(precisions_, precision)) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("precision: ", who_, ": expected ", absl::StrJoin(precisions_, " or "),
                     ", for which the model was exported, found ", precision,
                     "; export it with precision=\"", precision, "\""));
  }

  std::optional<Continuation> continuation() const override {
    return why_no_continuation_.empty() ? std::optional<Continuation>(sequences_) : std::nullopt;
  }
  std::string WhyNoContinuation() const override { return why_no_continuation_; }

  absl::Status SetLoss(const LossOptions& loss) override {
    if (!input_.own_loss) return Model::SetLoss(loss);
    return absl::InvalidArgumentError(
        absl::StrCat("loss: ", who_, ": the model returns its loss; allowed: no `loss`"));
  }

  LossOutput Loss(const Batch& batch, ForwardContext& context) override {
    if (!input_.own_loss) return Model::Loss(batch, context);
    Tensors inputs = InputsOf(batch);
    LossOutput output{.terms = batch.inputs.size(0)};
    if (input_.counted.has_value()) {
      output.terms = batch.counted_targets.has_value()
                         ? *batch.counted_targets
                         : batch.targets.ne(*input_.ignored).sum().item<int64_t>();
    }
    if (output.terms == 0) {
      // A mean over nothing is no number. The loss of other targets has the same shape.
      at::Tensor& targets = inputs[input_.counted->input];
      targets = targets.masked_fill(targets.eq(*input_.ignored), 0);
    }
    output.mean_loss = context.CallMany(root(), inputs)[0].to(at::kFloat);
    if (output.terms == 0) output.mean_loss = output.mean_loss.mul(0);
    return output;
  }

  WeightName ResolveWeight(const std::string& name) const override {
    const auto tie = ties_.find(name);
    return Model::ResolveWeight(tie == ties_.end() ? name : tie->second);
  }

 protected:
  InputSpec UnitsInput() const override { return input_; }

 private:
  const std::string who_;
  const InputSpec input_;
  const std::vector<std::string> precisions_;
  const std::map<std::string, std::string> ties_;
  const std::string config_;
  const std::string hash_;
  const std::string why_no_continuation_;  // empty: the model continues sequences
  WholeSequences sequences_;
  std::vector<std::string> source_order_;
};

// Makes the tensors of the folder's parameters and buffers.
ByName MakeTensors(const Folder& folder) {
  ByName tensors;
  DeferredValues* const deferred = DeferredValues::Current();
  const auto reader = [&](const StateTensor& one) {
    return [weights = folder.weights, stored = folder.weights->Find(one.name), type = one.type](
               int64_t begin, int64_t end) {
      return exported::ReadRange(*stored, type, begin, end);
    };
  };
  const auto whole = [&](const StateTensor& one) {
    int64_t elements = 1;
    for (const int64_t size : one.shape) elements *= size;
    return reader(one)(0, elements).view(one.shape);
  };
  for (const StateTensor& one : folder.manifest.parameters) {
    at::Tensor& tensor = tensors[one.name];
    tensor = deferred != nullptr ? deferred->AddInRanges(one.shape, reader(one)) : whole(one);
  }
  for (const StateTensor& one : folder.manifest.buffers) tensors[one.name] = whole(one);
  return tensors;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> CreateExported(const std::string& path, int64_t context) {
  const std::string who = absl::StrCat("exported ", path);
  ASSIGN_OR_RETURN(Folder folder, exported::OpenFolder(path));
  const bool any_length = exported::HasFreeLength(folder.manifest.output);
  RETURN_IF_ERROR(Annotate(exported::SetContext(context, &folder.manifest), who));
  auto input = exported::InputOf(folder.manifest);
  if (!input.ok()) return Annotate(input.status(), who);
  ByName tensors;
  try {
    tensors = MakeTensors(folder);
  } catch (const ModelError& error) {
    return absl::FailedPreconditionError(absl::StrCat(who, ": ", error.what()));
  }
  std::vector<int64_t> row;
  if (input->kind == InputSpec::Kind::kRows) {
    const auto& dimensions = folder.manifest.inputs[0].dimensions;
    for (size_t i = 1; i < dimensions.size(); ++i) row.push_back(*dimensions[i].size);
  }
  std::vector<int64_t> result;
  for (const auto& one : folder.manifest.output.dimensions) result.push_back(one.size.value_or(0));
  auto program = std::make_shared<const Program>(
      Program{who, std::move(folder.train), std::move(folder.evaluate), std::move(folder.constants),
              std::move(row), std::move(result), any_length});
  auto root = std::make_unique<ExportedUnit>(std::move(program), 0, tensors);
  for (const StateTensor& one : folder.manifest.parameters) {
    tensors.at(one.name).requires_grad_(one.trainable);
  }
  return std::make_unique<ExportedModel>(who, std::move(root), *std::move(input), folder);
}

}  // namespace muster::models
