#include "worker/models/plugin/plugin.h"

#include <dlfcn.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ATen/core/grad_mode.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/pluginfolders/plugin_folders.h"
#include "common/status/status.h"
#include "muster/plugin.h"
#include "worker/models/deferred_values.h"
#include "worker/models/init.h"
#include "worker/models/output_check.h"
#include "worker/models/plugin/file.h"
#include "worker/models/plugin/recording.h"
#include "worker/models/plugin/units.h"
#include "worker/models/seed.h"
#include "worker/models/value_watch.h"
#include "worker/models/values_on_demand.h"

namespace muster::models {
namespace {

class SeededValues : public plugin::Values {
 public:
  // `recording`: null if tensors get their memory at once.
  SeededValues(uint64_t seed, Recording* recording) : seed_(seed), recording_(recording) {}
  at::Tensor Normal(const std::string& name, const std::vector<int64_t>& shape,
                    double deviation) override {
    return NowOrLater(shape,
                      [=, seed = seed_] { return NormalInit(seed, name, shape, deviation); });
  }
  at::Tensor Uniform(const std::string& name, const std::vector<int64_t>& shape,
                     double bound) override {
    return NowOrLater(shape, [=, seed = seed_] { return UniformInit(seed, name, shape, bound); });
  }
  at::Tensor Constant(const std::vector<int64_t>& shape, double value) override {
    return NowOrLater(shape, [=] { return ConstantInit(shape, value); });
  }

 private:
  at::Tensor NowOrLater(const std::vector<int64_t>& shape, DeferredValues::Maker init) {
    auto maker = [init = std::move(init)] {
      const DeferredValues::Scope now(nullptr);
      return init();
    };
    return recording_ != nullptr ? recording_->Make(shape, std::move(maker)) : maker();
  }

  const uint64_t seed_;
  Recording* const recording_;
};

InputSpec ToSpec(const plugin::Input& input) {
  if (input.kind == plugin::Input::Kind::kTokens) {
    return {
        .kind = InputSpec::Kind::kTokens, .vocab_size = input.vocab_size, .context = input.context};
  }
  int64_t elements = 1;
  for (int64_t size : input.row) elements *= size;
  return {.kind = InputSpec::Kind::kRows,
          .row_elements = elements,
          .classes = input.classes,
          .target_numbers = input.target_numbers};
}

// Returns a problem of the numbers; empty: none.
std::string Wrong(const plugin::Input& input, bool own_loss) {
  // Large enough for every use, small enough that nothing overflows.
  constexpr int64_t kMax = int64_t{1} << 31;
  const auto size = [](int64_t value) { return value >= 1 && value <= kMax; };
  if (input.kind == plugin::Input::Kind::kTokens) {
    return size(input.vocab_size) && size(input.context) ? ""
                                                         : "tokens need vocab_size and context";
  }
  int64_t elements = 1;
  for (int64_t one : input.row) {
    if (!size(one) || (elements *= one) > kMax) {
      return "rows need a shape of sizes from 1 on, with at most 2^31 numbers";
    }
  }
  if (input.row.empty()) return "rows need a shape";
  if (input.target_numbers != 0) {
    if (!own_loss) return "target_numbers are for a model with a loss of its own (ModelWithLoss)";
    return size(input.target_numbers) && input.classes == 0 ? ""
                                                            : "either classes or target_numbers";
  }
  return size(input.classes) ? "" : "rows need classes";
}

// Returns the model's hook. The cast to FlagHook comes first: a model with two StepHook bases
// cannot be cast to StepHook directly.
plugin::StepHook* HookOf(plugin::Model* model) {
  if (auto* flags = dynamic_cast<plugin::FlagHook*>(model)) return flags;
  return dynamic_cast<plugin::StepHook*>(model);
}

class PluginModel : public Model {
 public:
  PluginModel(std::string who, std::unique_ptr<plugin::Model> inner,
              std::unique_ptr<PluginUnit> root)
      : Model("plugin", std::move(root)),
        who_(std::move(who)),
        inner_(std::move(inner)),
        hook_(HookOf(inner_.get())),
        hook_kind_(hook_ == nullptr                                    ? HookKind::kNone
                   : dynamic_cast<plugin::FlagHook*>(hook_) != nullptr ? HookKind::kFlags
                                                                       : HookKind::kValues),
        input_(inner_->input()),
        root_(static_cast<PluginUnit*>(&Model::root())) {}

  absl::Status SetLoss(const LossOptions& loss) override {
    if (!inner_->has_loss()) return Model::SetLoss(loss);
    return absl::InvalidArgumentError(
        absl::StrCat("loss: ", who_, ": the model has a loss of its own; allowed: no `loss`"));
  }

  bool HasPerplexity() const override { return !inner_->has_loss() && Model::HasPerplexity(); }

  LossOutput Loss(const Batch& batch, ForwardContext& context) override {
    if (!inner_->has_loss()) return Model::Loss(batch, context);
    const std::string who = absl::StrCat(who_, ": loss");
    PluginContext inner_context(who, {&root_, 1}, context);
    const plugin::LossOutput loss = CallPlugin(who, [&] {
      return inner_->Loss({InRows(batch.inputs, input_.row), batch.targets}, inner_context);
    });
    const at::Tensor& mean = loss.mean;
    if (!mean.defined() || mean.dim() != 0 || mean.scalar_type() != at::kFloat) {
      throw ModelError(absl::StrCat(
          who, ": expected a mean that is one Float without dimensions, found ", Describe(mean),
          "; under bfloat16 and float16 take the logits to Float first"));
    }
    if (loss.terms < 1) {
      throw ModelError(absl::StrCat(who, ": expected 1 or more terms, found ", loss.terms));
    }
    if (context.training() && !mean.requires_grad() && SomethingIsTrained()) {
      throw ModelError(absl::StrCat(who, ": expected a mean that depends on the parameters"));
    }
    LossOutput output{.mean_loss = mean, .terms = loss.terms};
    if (loss.correct >= 0 && !context.training()) output.correct = loss.correct;
    return output;
  }

  std::string name() const override { return who_; }
  HookKind step_hook() const override { return hook_kind_; }
  bool RunsCollectives() const override {
    return dynamic_cast<const plugin::RunsCollectives*>(inner_.get()) != nullptr;
  }
  absl::Status BeforeStep(int64_t step) override {
    if (hook_ == nullptr) return absl::OkStatus();
    const std::string who = absl::StrCat(who_, ": step hook");
    RETURN_IF_ERROR(RunHook(who, step));
    if (hook_kind_ == HookKind::kFlags) return absl::OkStatus();  // computes nothing
    // The hook may freeze and unfreeze a parameter, but must not replace a parameter by the result
    // of an operation.
    for (const auto& [name, tensor] : Parameters()) {
      if (tensor.is_leaf()) continue;
      return absl::FailedPreconditionError(
          absl::StrCat(who, ": parameter '", name,
                       "': expected a leaf, found the result of an operation; change values under "
                       "at::NoGradGuard"));
    }
    return absl::OkStatus();
  }

  // Checks that the model accepts and returns what it declares. `deferred`: the values of
  // parameters without memory; null if all have memory.
  absl::Status Check(const DeferredValues* deferred) {
    const at::NoGradGuard no_grad;
    const ValuesOnDemand values(Parameters(), deferred);
    ForwardContext context(Mode::kEvaluate, MakeGenerator(0));
    const InputSpec input = UnitsInput();
    const Batch batch = ProbeBatch(input, input_.row);
    try {
      if (inner_->has_loss()) {
        Loss(batch, context);
      } else {
        RETURN_IF_ERROR(Annotate(CheckLogits(Logits(batch.inputs, context), input), who_));
      }
    } catch (const ModelError& error) {
      return absl::InvalidArgumentError(absl::StrCat(error.what(), " (for a first small batch)"));
    }
    return absl::OkStatus();
  }

 protected:
  InputSpec UnitsInput() const override { return ToSpec(input_); }

 private:
  // `who` names the hook in errors.
  absl::Status RunHook(const std::string& who, int64_t step) {
    std::optional<ValueWatch> watch;
    if (hook_kind_ == HookKind::kFlags) watch.emplace(*this, ValueWatch::Mode::kRefuse);
    absl::Status status;
    try {
      CallPlugin(who, [&] { hook_->BeforeStep(step); });
    } catch (const ModelError& error) {
      status = absl::FailedPreconditionError(error.what());
    }
    // The plug-in may have caught the watch's exception, or thrown another exception instead.
    if (watch.has_value() && !watch->refusal().empty()) {
      return absl::FailedPreconditionError(absl::StrCat(who, ": ", watch->refusal()));
    }
    return status;
  }

  bool SomethingIsTrained() const {
    for (const Parameter& parameter : Parameters()) {
      if (parameter.tensor.requires_grad()) return true;
    }
    return false;
  }

  const std::string who_;
  const std::unique_ptr<plugin::Model> inner_;
  plugin::StepHook* const hook_;  // the same object as inner_; null: no hook
  const HookKind hook_kind_;
  const plugin::Input input_;
  PluginUnit* const root_;
};

absl::StatusOr<const muster_plugin*> Load(const std::string& given) {
  std::string path = given;
  if (const auto allowed = PluginFoldersOfThisProcess(); allowed.has_value()) {
    ASSIGN_OR_RETURN(path, AllowedPlugin(given, *allowed));
  }
  RETURN_IF_ERROR(CheckPluginFile(path));
  // Never closed, because models, and tensors that the plug-in made, may exist longer.
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(path, ": cannot be loaded: ", dlerror()));
  }
  auto* entry =
      reinterpret_cast<muster_plugin_entry_function*>(dlsym(library, "muster_plugin_entry"));
  if (entry == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, ": has no symbol muster_plugin_entry (MUSTER_PLUGIN makes it)"));
  }
  const muster_plugin* found = entry();
  if (found == nullptr || found->models == nullptr || found->count == 0) {
    return absl::FailedPreconditionError(absl::StrCat(path, ": has no models"));
  }
  return found;
}

absl::StatusOr<const plugin::ModelEntry*> FindModel(const std::string& path,
                                                    const std::string& name) {
  ASSIGN_OR_RETURN(const muster_plugin* const found, Load(path));
  std::vector<std::string> names;
  for (size_t i = 0; i < found->count; ++i) {
    if (found->models[i].name == name) return &found->models[i];
    names.push_back(found->models[i].name);
  }
  return absl::InvalidArgumentError(absl::StrCat(
      path, ": has no model '", name, "'; allowed is one of: ", absl::StrJoin(names, ", ")));
}

absl::Status CheckAllAsked(const std::string& who, const plugin::Options& options) {
  std::vector<std::string> unknown;
  for (const auto& [name, text] : options.given()) {
    if (options.asked().count(name) == 0) unknown.push_back(name);
  }
  if (unknown.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(who, ": unknown options: ", absl::StrJoin(unknown, ", "),
                   "; allowed: ", absl::StrJoin(options.asked(), ", ")));
}

// The request for a model.
struct Request {
  std::string who;
  const plugin::ModelEntry* entry;
  std::map<std::string, std::string> options;
  uint64_t seed;
};

// `recording`: null if tensors get their memory at once.
absl::StatusOr<std::unique_ptr<PluginModel>> MakeModel(const Request& request,
                                                       Recording* recording) {
  const std::string& who = request.who;
  plugin::Options options(request.options);
  SeededValues values(request.seed, recording);
  std::unique_ptr<plugin::Model> inner;
  {
    // Recorded or not, the process-wide generator begins with the job's seed on all ranks.
    std::optional<BorrowedProcessGenerator> process;
    std::optional<Recording::Scope> scope;
    if (recording != nullptr) {
      scope.emplace(recording);
    } else {
      process.emplace().Seed(request.seed);
    }
    inner = request.entry->create(options, values);
    if (process.has_value()) process->Leave(process->State());
  }
  RETURN_IF_ERROR(CheckAllAsked(who, options));
  if (inner == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(who, ": expected a model, found nothing"));
  }
  const plugin::Input input = inner->input();
  const std::string wrong = Wrong(input, inner->has_loss());
  if (!wrong.empty()) return absl::InvalidArgumentError(absl::StrCat(who, ": input: ", wrong));
  ASSIGN_OR_RETURN(auto root, PluginUnit::Create(who, inner->root(), input.row));
  return std::make_unique<PluginModel>(who, std::move(inner), std::move(root));
}

// Turns exceptions into INVALID_ARGUMENT.
template <typename Body>
auto Caught(const std::string& who, Body&& body) -> decltype(body()) {
  try {
    return CallPlugin(who, body);
  } catch (const ModelError& error) {
    return absl::InvalidArgumentError(error.what());
  }
}

absl::StatusOr<std::unique_ptr<Model>> CreateWhole(const Request& request) {
  const DeferredValues::Scope not_deferred(nullptr);
  ASSIGN_OR_RETURN(auto model,
                   Caught(request.who, [&] { return MakeModel(request, /*recording=*/nullptr); }));
  RETURN_IF_ERROR(model->Check(nullptr));
  return model;
}

// Makes a model whose parameters have no memory; `deferred` gets the values.
absl::StatusOr<std::unique_ptr<Model>> CreateRecorded(const Request& request,
                                                      DeferredValues* deferred) {
  return Caught(request.who, [&]() -> absl::StatusOr<std::unique_ptr<Model>> {
    const auto recording = std::make_shared<Recording>(request.seed);
    ASSIGN_OR_RETURN(auto model, MakeModel(request, recording.get()));
    recording->End();
    DeferredValues own;
    for (const Parameter& parameter : model->Parameters()) {
      if (!recording->Has(parameter.tensor)) continue;
      own.Take(parameter.tensor,
               [recording, make = recording->Maker(parameter.tensor)] { return make(); });
    }
    recording->Settle();
    RETURN_IF_ERROR(model->Check(&own));
    deferred->Add(std::move(own));
    return model;
  });
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> CreatePlugin(const v1::PluginSpec& spec, uint64_t seed) {
  Request request{.who = absl::StrCat("plug-in ", spec.path(), ": model '", spec.name(), "'"),
                  .options = {spec.options().begin(), spec.options().end()},
                  .seed = seed};
  ASSIGN_OR_RETURN(request.entry, FindModel(spec.path(), spec.name()));
  DeferredValues* const deferred = DeferredValues::Current();
  if (deferred == nullptr) return CreateWhole(request);
  auto recorded = CreateRecorded(request, deferred);
  if (recorded.ok()) return recorded;
  // The reason does not matter: an error of the model occurs again in the model with memory.
  auto whole = CreateWhole(request);
  if (whole.ok()) deferred->Refuse(std::string(recorded.status().message()));
  return whole;
}

}  // namespace muster::models
