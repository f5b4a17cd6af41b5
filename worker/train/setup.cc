#include "worker/train/setup.h"

#include <ATen/core/Tensor.h>
#include <xxhash.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status/status.h"
#include "worker/checkpoint/weights.h"
#include "worker/data/safetensors_dataset.h"
#include "worker/models/registry.h"

namespace muster::train {

absl::StatusOr<std::unique_ptr<models::Model>> BuildModel(const Job& job) {
  const auto options = nlohmann::json::parse(job.model.options_json, nullptr,
                                             /*allow_exceptions=*/false);
  if (options.is_discarded()) {
    return absl::InvalidArgumentError(absl::StrCat("model.", job.model.kind, ": options are no JSON"));
  }
  ASSIGN_OR_RETURN(auto model, models::Create(job.model.kind, options, job.seed));
  if (!job.model.weights.empty()) {
    RETURN_IF_ERROR(
        Annotate(checkpoint::LoadWeights(job.model.weights, *model), "model.weights"));
  }
  return model;
}

absl::StatusOr<std::unique_ptr<data::Dataset>> OpenDataset(const std::string& name,
                                                           const DataConfig& config,
                                                           const models::Model& model) {
  auto dataset = [&]() -> absl::StatusOr<std::unique_ptr<data::Dataset>> {
    if (const auto* tokens = std::get_if<TokenFiles>(&config)) {
      return data::OpenTokens(tokens->paths, tokens->type, model.Input());
    }
    return data::OpenSafetensors(std::get<RowFiles>(config).paths, model.Input());
  }();
  if (!dataset.ok()) return Annotate(dataset.status(), name);
  return dataset;
}

absl::StatusOr<std::unique_ptr<optim::Optimizer>> BuildOptimizer(const OptimizerConfig& config,
                                                                 const models::Model& model) {
  std::vector<optim::OptimizedParameter> parameters;
  for (const auto& parameter : model.Parameters()) {
    parameters.push_back({parameter.name, parameter.tensor});
  }
  if (const auto* adamw = std::get_if<optim::AdamWOptions>(&config.kind)) {
    return optim::CreateAdamW(std::move(parameters), *adamw);
  }
  return optim::CreateSgd(std::move(parameters), std::get<optim::SgdOptions>(config.kind));
}

checkpoint::State TrainingState(const models::Model& model, optim::Optimizer* optimizer) {
  checkpoint::State state;
  for (const auto& parameter : model.Parameters()) {
    state.push_back({"param", parameter.name, parameter.tensor.detach()});
  }
  for (const auto& buffer : model.Buffers()) {
    state.push_back({"buffer", buffer.name, buffer.tensor});
  }
  if (optimizer != nullptr) {
    for (const auto& piece : optimizer->State()) {
      state.push_back({piece.slot, piece.parameter, piece.tensor});
    }
  }
  return state;
}

namespace {

// Every bit of the numbers counts.
template <typename... Numbers>
std::string Exactly(Numbers... numbers) {
  std::string text;
  ((text += absl::StrFormat("%.17g ", static_cast<double>(numbers))), ...);
  return text;
}

std::string Describe(const optim::AdamWOptions& adamw) {
  return Exactly(adamw.beta1, adamw.beta2, adamw.eps, adamw.weight_decay);
}
std::string Describe(const optim::SgdOptions& sgd) {
  return Exactly(sgd.momentum, sgd.weight_decay, sgd.nesterov);
}
std::string Describe(const optim::Constant&) { return ""; }
std::string Describe(const optim::WarmupCosine& cosine) {
  return Exactly(cosine.warmup_steps, cosine.total_steps, cosine.min_ratio);
}

}  // namespace

int64_t PlanFingerprint(const Job& job, const models::Model& model, const data::Dataset* train,
                        const data::Dataset* validate) {
  std::string plan = absl::StrCat("ddp ", job.ddp.bucket_bytes, " ", job.ddp.first_bucket_bytes, ";");
  for (const auto& parameter : model.Parameters()) {
    absl::StrAppend(&plan, parameter.name);
    for (const int64_t size : parameter.tensor.sizes()) absl::StrAppend(&plan, ",", size);
    absl::StrAppend(&plan, ";");
  }
  for (const auto& buffer : model.Buffers()) {
    absl::StrAppend(&plan, "buffer ", buffer.name, " ", buffer.tensor.nbytes(), ";");
  }
  absl::StrAppend(&plan, "batch ", job.batch.per_rank, " ", job.batch.accumulate, " ",
                  static_cast<int>(job.batch.order), " ", static_cast<int>(job.batch.last), ";");
  absl::StrAppend(&plan, "clip ", Exactly(job.clip_grad_norm.value_or(0)), "; seed ", job.seed, ";");
  if (job.optimizer.has_value()) {
    absl::StrAppend(&plan, "optimizer ", job.optimizer->kind.index(), " ", Exactly(job.optimizer->lr),
                    std::visit([](const auto& kind) { return Describe(kind); }, job.optimizer->kind),
                    ";");
  }
  absl::StrAppend(&plan, "schedule ", job.schedule.index(), " ",
                  std::visit([](const auto& kind) { return Describe(kind); }, job.schedule), ";");
  absl::StrAppend(&plan, "samples ", train != nullptr ? train->size() : 0, " ",
                  validate != nullptr ? validate->size() : 0, ";");
  for (const Stage& stage : job.stages) {
    const auto* fit = std::get_if<FitStage>(&stage);
    absl::StrAppend(&plan, "stage ", fit ? fit->steps : 0, " ", fit ? fit->validate_every : 0, ";");
  }
  return static_cast<int64_t>(XXH3_64bits(plan.data(), plan.size()));
}

}  // namespace muster::train
