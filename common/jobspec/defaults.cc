#include <algorithm>
#include <limits>

#include "common/jobspec/jobspec.h"
#include "common/jobspec/rules.h"

namespace muster::jobspec {
namespace {

uint32_t Clamp(uint64_t value) {
  return static_cast<uint32_t>(std::min<uint64_t>(value, std::numeric_limits<uint32_t>::max()));
}

// 8/3 of the width, rounded up as by Llama's authors.
uint32_t LlamaInner(uint64_t width) {
  const uint64_t multiple = width >= 256 ? 256 : 8;
  return Clamp((8 * width + 3 * multiple - 1) / (3 * multiple) * multiple);
}

// Fills in defaults, but none that depends on a missing value, which would be a second problem.
void ResolveModel(v1::ModelSpec* model) {
  if (model->has_gpt2()) {
    v1::Gpt2Spec* gpt2 = model->mutable_gpt2();
    if (!gpt2->has_inner() && gpt2->width() > 0)
      gpt2->set_inner(Clamp(uint64_t{4} * gpt2->width()));
  } else if (model->has_llama()) {
    v1::LlamaSpec* llama = model->mutable_llama();
    if (!llama->has_kv_heads() && llama->heads() > 0) llama->set_kv_heads(llama->heads());
    if (!llama->has_inner() && llama->width() > 0) llama->set_inner(LlamaInner(llama->width()));
  }
}

uint32_t VocabularyOf(const v1::ModelSpec& model) {
  if (model.has_gpt2()) return model.gpt2().vocab_size();
  return model.has_llama() ? model.llama().vocab_size() : model.torchscript().vocab_size();
}

// Chooses the width of tokens by the vocabulary: a writer with 2 bytes for each token would have
// cut larger tokens silently. If only the workers know the vocabulary, they choose.
void ResolveTokens(const v1::ModelSpec& model, v1::DataSet* data) {
  if (!data->has_tokens() || data->tokens().dtype() != v1::TokenData::DTYPE_UNSPECIFIED) return;
  if (!KnowsVocabulary(model)) return;
  const bool wide = VocabularyOf(model) > 65536;
  data->mutable_tokens()->set_dtype(wide ? v1::TokenData::UINT32 : v1::TokenData::UINT16);
}

void ResolveData(const v1::ModelSpec& model, v1::DataSpec* data) {
  if (data->has_train()) ResolveTokens(model, data->mutable_train());
  if (data->has_validate()) ResolveTokens(model, data->mutable_validate());
  if (data->has_test()) ResolveTokens(model, data->mutable_test());
  if (data->has_predict()) ResolveTokens(model, data->mutable_predict());
}

// Ends the schedule at total_steps. A job without a fit stage has no such default. If the number of
// steps is not known yet, the ranks set the end of the schedule.
template <typename Schedule>
void ResolveTotalSteps(uint64_t fit_steps, Schedule* schedule) {
  if (!schedule->has_total_steps() && fit_steps > 0) schedule->set_total_steps(Clamp(fit_steps));
}

void ResolveSchedule(uint64_t fit_steps, v1::ScheduleSpec* schedule) {
  switch (schedule->kind_case()) {
    case v1::ScheduleSpec::kWarmupCosine:
      return ResolveTotalSteps(fit_steps, schedule->mutable_warmup_cosine());
    case v1::ScheduleSpec::kLinear:
      return ResolveTotalSteps(fit_steps, schedule->mutable_linear());
    case v1::ScheduleSpec::kOneCycle:
      return ResolveTotalSteps(fit_steps, schedule->mutable_one_cycle());
    case v1::ScheduleSpec::kConstant:
    case v1::ScheduleSpec::kStep:
    case v1::ScheduleSpec::KIND_NOT_SET:
      return;
  }
}

// Sets the field in every job in which it may have an effect.
void ResolveUnevenInputs(v1::JobSpec* spec) {
  if (spec->has_batch() && spec->batch().last() == v1::BatchSpec::LAST_UNSPECIFIED) {
    spec->mutable_batch()->set_last(spec->has_uneven_inputs() ? v1::BatchSpec::UNEVEN
                                                              : v1::BatchSpec::DROP);
  }
  // Micro-batches of documents have very different numbers of targets. The mean of their means
  // would be another loss for each number of ranks.
  const bool documents = spec->data().train().has_documents();
  if (!spec->has_uneven_inputs() && !documents && spec->batch().last() != v1::BatchSpec::UNEVEN) {
    return;
  }
  v1::UnevenInputsSpec* uneven = spec->mutable_uneven_inputs();
  if (uneven->has_stop_at_first()) return;
  v1::JoinSpec* join = uneven->mutable_join();
  if (join->divide_by() == v1::JoinSpec::DIVIDE_BY_UNSPECIFIED) {
    join->set_divide_by(documents ? v1::JoinSpec::SAMPLES : v1::JoinSpec::INITIAL);
  }
}

// Sets the defaults of buckets, whose cost on a GPU is launches of kernels.
template <typename Strategy>
void ResolveBuckets(v1::JobSpec::Device device, Strategy* strategy) {
  if (!strategy->has_bucket_mb()) strategy->set_bucket_mb(device == v1::JobSpec::CUDA ? 25 : 4);
}

void ResolveStrategy(v1::JobSpec* spec) {
  if (!spec->has_strategy()) spec->mutable_strategy()->mutable_ddp();
  v1::StrategySpec* strategy = spec->mutable_strategy();
  if (strategy->has_ddp()) ResolveBuckets(spec->device(), strategy->mutable_ddp());
  if (strategy->has_sharded_ddp()) ResolveBuckets(spec->device(), strategy->mutable_sharded_ddp());
}

void ResolvePredict(v1::PredictStage* stage) {
  if (stage->what() != v1::PredictStage::WHAT_UNSPECIFIED || stage->has_generate()) return;
  stage->set_what(v1::PredictStage::LOGITS);
}

// Sets the default mode: MAX for shares of correct answers, MIN for all other metrics.
template <typename Rule>
void ResolveMode(Rule* rule) {
  if (rule->mode() != v1::ValidationMetric::MODE_UNSPECIFIED) return;
  const bool share = rule->metric() == v1::ValidationMetric::ACCURACY ||
                     rule->metric() == v1::ValidationMetric::TOP_K_ACCURACY;
  rule->set_mode(share ? v1::ValidationMetric::MAX : v1::ValidationMetric::MIN);
}

}  // namespace

bool Trains(const v1::JobSpec& spec) {
  return std::any_of(spec.stages().begin(), spec.stages().end(),
                     [](const v1::StageSpec& stage) { return stage.has_fit(); });
}

bool MayGenerate(const v1::ModelSpec& model) {
  return model.has_gpt2() || model.has_llama() || model.has_hf() || model.has_exported();
}

bool HasDocuments(const v1::DataSpec& data) {
  return data.train().has_documents() || data.validate().has_documents() ||
         data.test().has_documents();
}

bool KnowsVocabulary(const v1::ModelSpec& model) {
  return !model.has_hf() && !model.has_exported() && !model.has_plugin();
}

std::optional<uint64_t> UnlimitedSteps(const v1::JobSpec& spec) {
  uint64_t steps = 0;
  for (const v1::StageSpec& stage : spec.stages()) {
    if (stage.fit().has_epochs()) return std::nullopt;
    steps += stage.fit().steps();
  }
  return steps;
}

std::optional<uint64_t> TotalSteps(const v1::JobSpec& spec) {
  uint64_t steps = 0;
  for (const v1::StageSpec& stage : spec.stages()) {
    const v1::FitStage& fit = stage.fit();
    if (fit.has_epochs()) return std::nullopt;
    steps += fit.limit_steps() > 0 ? std::min(fit.steps(), fit.limit_steps()) : fit.steps();
  }
  return steps;
}

v1::JobSpec ResolveDefaults(v1::JobSpec spec) {
  // The defaults that depend on other fields are first.
  if (spec.has_model()) ResolveModel(spec.mutable_model());
  if (spec.has_data()) ResolveData(spec.model(), spec.mutable_data());
  if (spec.has_schedule()) {
    ResolveSchedule(UnlimitedSteps(spec).value_or(0), spec.mutable_schedule());
  }
  if (spec.precision() == v1::JobSpec::FLOAT16) spec.mutable_loss_scale();
  // A plug-in or an exported model may have a loss of its own.
  const bool may_have_loss = spec.model().has_plugin() || spec.model().has_exported();
  if (!spec.has_loss() && !may_have_loss) spec.mutable_loss()->mutable_cross_entropy();
  if (HasDocuments(spec.data()) && spec.loss().has_cross_entropy() &&
      !spec.loss().cross_entropy().has_ignore_index()) {
    spec.mutable_loss()->mutable_cross_entropy()->set_ignore_index(kIgnoredTarget);
  }
  ResolveUnevenInputs(&spec);
  ResolveStrategy(&spec);
  for (v1::StageSpec& stage : *spec.mutable_stages()) {
    if (stage.has_predict()) ResolvePredict(stage.mutable_predict());
    if (!stage.has_fit()) continue;
    v1::FitStage* fit = stage.mutable_fit();
    if (fit->has_early_stopping()) ResolveMode(fit->mutable_early_stopping());
    if (fit->has_keep_best()) ResolveMode(fit->mutable_keep_best());
  }
  const bool cuda = spec.device() == v1::JobSpec::CUDA;
  if ((cuda || spec.has_collectives()) &&
      spec.collectives().order() == v1::CollectivesSpec::ORDER_UNSPECIFIED) {
    spec.mutable_collectives()->set_order(cuda ? v1::CollectivesSpec::FAST
                                               : v1::CollectivesSpec::RANK);
  }
  FillDefaults(&spec);
  return spec;
}

}  // namespace muster::jobspec
