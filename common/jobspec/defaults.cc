#include <algorithm>
#include <limits>

#include "common/jobspec/jobspec.h"

namespace muster::jobspec {
namespace {

uint32_t Clamp(uint64_t value) {
  return static_cast<uint32_t>(std::min<uint64_t>(value, std::numeric_limits<uint32_t>::max()));
}

void ResolveModel(v1::ModelSpec* model) {
  if (!model->has_gpt2()) return;
  v1::Gpt2Spec* gpt2 = model->mutable_gpt2();
  if (!gpt2->has_inner()) gpt2->set_inner(Clamp(uint64_t{4} * gpt2->width()));
  if (!gpt2->has_dropout()) gpt2->set_dropout(0);
  if (!gpt2->has_tied()) gpt2->set_tied(true);
}

void ResolveDataSet(v1::DataSet* data) {
  if (!data->has_tokens()) return;
  v1::TokenData* tokens = data->mutable_tokens();
  if (tokens->dtype() == v1::TokenData::DTYPE_UNSPECIFIED) tokens->set_dtype(v1::TokenData::UINT16);
}

void ResolveOptimizer(v1::OptimizerSpec* optimizer) {
  if (optimizer->has_adamw()) {
    v1::AdamwSpec* adamw = optimizer->mutable_adamw();
    if (adamw->betas().empty()) {
      adamw->add_betas(0.9);
      adamw->add_betas(0.999);
    }
    if (!adamw->has_eps()) adamw->set_eps(1e-8);
    if (!adamw->has_weight_decay()) adamw->set_weight_decay(0.01);
  } else if (optimizer->has_sgd()) {
    v1::SgdSpec* sgd = optimizer->mutable_sgd();
    if (!sgd->has_momentum()) sgd->set_momentum(0);
    if (!sgd->has_weight_decay()) sgd->set_weight_decay(0);
  }
}

void ResolveBatch(v1::BatchSpec* batch) {
  if (!batch->has_accumulate()) batch->set_accumulate(1);
  if (batch->order() == v1::BatchSpec::ORDER_UNSPECIFIED) batch->set_order(v1::BatchSpec::SHUFFLED);
  if (batch->last() == v1::BatchSpec::LAST_UNSPECIFIED) batch->set_last(v1::BatchSpec::DROP);
}

}  // namespace

uint64_t TotalSteps(const v1::JobSpec& spec) {
  uint64_t steps = 0;
  for (const v1::StageSpec& stage : spec.stages()) steps += stage.fit().steps();
  return steps;
}

v1::JobSpec ResolveDefaults(v1::JobSpec spec) {
  if (spec.device() == v1::JobSpec::DEVICE_UNSPECIFIED) spec.set_device(v1::JobSpec::CPU);
  if (spec.precision() == v1::JobSpec::PRECISION_UNSPECIFIED) spec.set_precision(v1::JobSpec::FLOAT32);
  if (spec.has_model()) ResolveModel(spec.mutable_model());
  if (spec.data().has_train()) ResolveDataSet(spec.mutable_data()->mutable_train());
  if (spec.data().has_validate()) ResolveDataSet(spec.mutable_data()->mutable_validate());

  if (!spec.has_strategy()) spec.mutable_strategy()->mutable_ddp();
  if (spec.strategy().has_ddp() && !spec.strategy().ddp().has_bucket_mb()) {
    spec.mutable_strategy()->mutable_ddp()->set_bucket_mb(4);
  }
  if (spec.has_optimizer()) ResolveOptimizer(spec.mutable_optimizer());

  if (!spec.has_schedule()) spec.mutable_schedule()->mutable_constant();
  if (spec.schedule().has_warmup_cosine()) {
    v1::WarmupCosineSchedule* cosine = spec.mutable_schedule()->mutable_warmup_cosine();
    // Without a fit stage there is nothing to schedule, and no default either.
    if (!cosine->has_total_steps() && TotalSteps(spec) > 0) cosine->set_total_steps(Clamp(TotalSteps(spec)));
    if (!cosine->has_min_ratio()) cosine->set_min_ratio(0);
  }
  if (spec.has_batch()) ResolveBatch(spec.mutable_batch());
  if (spec.has_checkpoint() && !spec.checkpoint().has_keep()) spec.mutable_checkpoint()->set_keep(3);
  if (!spec.restart().has_max_restarts()) spec.mutable_restart()->set_max_restarts(3);
  return spec;
}

}  // namespace muster::jobspec
