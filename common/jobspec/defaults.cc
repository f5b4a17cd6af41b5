#include <algorithm>
#include <limits>

#include "common/jobspec/jobspec.h"

namespace muster::jobspec {
namespace {

uint32_t Clamp(uint64_t value) {
  return static_cast<uint32_t>(std::min<uint64_t>(value, std::numeric_limits<uint32_t>::max()));
}

void ResolveGpt2(v1::Gpt2Spec* gpt2) {
  if (!gpt2->has_inner()) gpt2->set_inner(Clamp(uint64_t{4} * gpt2->width()));
  if (!gpt2->has_dropout()) gpt2->set_dropout(0);
  if (!gpt2->has_tied()) gpt2->set_tied(true);
}

// 8/3 of the width, rounded up as Llama's authors do.
uint32_t LlamaInner(uint64_t width) {
  const uint64_t multiple = width >= 256 ? 256 : 8;
  return Clamp((8 * width + 3 * multiple - 1) / (3 * multiple) * multiple);
}

void ResolveLlama(v1::LlamaSpec* llama) {
  // A default made of what is missing would be a second problem.
  if (!llama->has_kv_heads() && llama->heads() > 0) llama->set_kv_heads(llama->heads());
  if (!llama->has_inner() && llama->width() > 0) llama->set_inner(LlamaInner(llama->width()));
  if (!llama->has_rope_theta()) llama->set_rope_theta(10000);
  if (!llama->has_norm_eps()) llama->set_norm_eps(1e-5);
  if (!llama->has_tied()) llama->set_tied(false);
}

void ResolveModel(v1::ModelSpec* model) {
  if (model->has_gpt2()) ResolveGpt2(model->mutable_gpt2());
  if (model->has_llama()) ResolveLlama(model->mutable_llama());
}

void ResolveDataSet(v1::DataSet* data) {
  if (data->has_tokens()) {
    v1::TokenData* tokens = data->mutable_tokens();
    if (tokens->dtype() == v1::TokenData::DTYPE_UNSPECIFIED) tokens->set_dtype(v1::TokenData::UINT16);
  } else if (data->has_idx()) {
    v1::IdxData* idx = data->mutable_idx();
    if (!idx->has_mean()) idx->set_mean(0);
    if (!idx->has_std()) idx->set_std(1);
  }
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
    if (!sgd->has_nesterov()) sgd->set_nesterov(false);
  }
}

// A schedule that ends at total_steps. Without a fit stage there is nothing to schedule, and no default either.
template <typename Schedule>
void ResolveTotalSteps(uint64_t fit_steps, Schedule* schedule) {
  if (!schedule->has_total_steps() && fit_steps > 0) schedule->set_total_steps(Clamp(fit_steps));
}

void ResolveSchedule(uint64_t fit_steps, v1::ScheduleSpec* schedule) {
  if (schedule->has_warmup_cosine()) {
    v1::WarmupCosineSchedule* cosine = schedule->mutable_warmup_cosine();
    ResolveTotalSteps(fit_steps, cosine);
    if (!cosine->has_min_ratio()) cosine->set_min_ratio(0);
  } else if (schedule->has_linear()) {
    v1::LinearSchedule* linear = schedule->mutable_linear();
    ResolveTotalSteps(fit_steps, linear);
    if (!linear->has_min_ratio()) linear->set_min_ratio(0);
  } else if (schedule->has_step()) {
    if (!schedule->step().has_gamma()) schedule->mutable_step()->set_gamma(0.1);
  } else if (schedule->has_one_cycle()) {
    v1::OneCycleSchedule* cycle = schedule->mutable_one_cycle();
    ResolveTotalSteps(fit_steps, cycle);
    if (!cycle->has_pct_start()) cycle->set_pct_start(0.3);
    if (!cycle->has_div_factor()) cycle->set_div_factor(25);
    if (!cycle->has_final_div_factor()) cycle->set_final_div_factor(1e4);
    if (cycle->anneal() == v1::OneCycleSchedule::ANNEAL_UNSPECIFIED) {
      cycle->set_anneal(v1::OneCycleSchedule::COS);
    }
    if (!cycle->has_three_phase()) cycle->set_three_phase(false);
  }
}

// Of a strategy that shards gradients.
template <typename Strategy>
void ResolveReduction(Strategy* strategy) {
  if (strategy->reduce_every() == v1::ShardedDdpSpec::REDUCE_EVERY_UNSPECIFIED) {
    strategy->set_reduce_every(v1::ShardedDdpSpec::STEP);
  }
  if (strategy->reduce_dtype() == v1::ShardedDdpSpec::REDUCE_DTYPE_UNSPECIFIED) {
    strategy->set_reduce_dtype(v1::ShardedDdpSpec::FLOAT32);
  }
}

// The blocks, where a setting that goes by units names none.
template <typename Spec>
void ResolveUnits(Spec* spec) {
  if (spec->unit().empty()) spec->add_unit("block");
}

void ResolveStrategy(v1::StrategySpec* strategy) {
  if (strategy->has_ddp() && !strategy->ddp().has_bucket_mb()) strategy->mutable_ddp()->set_bucket_mb(4);
  if (strategy->has_sharded_ddp()) {
    v1::ShardedDdpSpec* sharded = strategy->mutable_sharded_ddp();
    if (!sharded->has_bucket_mb()) sharded->set_bucket_mb(4);
    ResolveReduction(sharded);
  }
  if (strategy->has_fsdp()) {
    v1::FsdpSpec* fsdp = strategy->mutable_fsdp();
    if (!fsdp->has_reshard_after_forward()) fsdp->set_reshard_after_forward(true);
    ResolveUnits(fsdp);
    if (fsdp->frozen() == v1::FsdpSpec::FROZEN_UNSPECIFIED) fsdp->set_frozen(v1::FsdpSpec::PER_STEP);
    if (fsdp->param_dtype() == v1::FsdpSpec::PARAM_DTYPE_UNSPECIFIED) {
      fsdp->set_param_dtype(v1::FsdpSpec::FLOAT32);
    }
    ResolveReduction(fsdp);
  }
}

void ResolveLossScale(v1::LossScaleSpec* scale) {
  if (!scale->has_initial()) scale->set_initial(65536);
  if (!scale->has_growth_factor()) scale->set_growth_factor(2);
  if (!scale->has_backoff_factor()) scale->set_backoff_factor(0.5);
  if (!scale->has_growth_interval()) scale->set_growth_interval(2000);
}

void ResolveLoss(v1::JobSpec* spec) {
  // Whether a plug-in has a loss of its own is not known here.
  if (!spec->has_loss() && !spec->model().has_plugin()) spec->mutable_loss()->mutable_cross_entropy();
  if (!spec->loss().has_cross_entropy()) return;
  v1::CrossEntropySpec* cross_entropy = spec->mutable_loss()->mutable_cross_entropy();
  if (!cross_entropy->has_label_smoothing()) cross_entropy->set_label_smoothing(0);
}

void ResolveBatch(bool uneven_inputs, v1::BatchSpec* batch) {
  if (!batch->has_accumulate()) batch->set_accumulate(1);
  if (batch->order() == v1::BatchSpec::ORDER_UNSPECIFIED) batch->set_order(v1::BatchSpec::SHUFFLED);
  if (batch->last() == v1::BatchSpec::LAST_UNSPECIFIED) {
    batch->set_last(uneven_inputs ? v1::BatchSpec::UNEVEN : v1::BatchSpec::DROP);
  }
}

// Said wherever it may have an effect.
void ResolveUnevenInputs(v1::JobSpec* spec) {
  if (!spec->has_uneven_inputs() && spec->batch().last() != v1::BatchSpec::UNEVEN) return;
  v1::UnevenInputsSpec* uneven = spec->mutable_uneven_inputs();
  if (uneven->has_stop_at_first()) return;
  if (uneven->join().divide_by() == v1::JoinSpec::DIVIDE_BY_UNSPECIFIED) {
    uneven->mutable_join()->set_divide_by(v1::JoinSpec::INITIAL);
  }
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
  if (spec.precision() == v1::JobSpec::FLOAT16) ResolveLossScale(spec.mutable_loss_scale());
  if (spec.on_nan() == v1::JobSpec::ON_NAN_UNSPECIFIED) spec.set_on_nan(v1::JobSpec::FAIL);
  if (spec.when_cut_off() == v1::JobSpec::WHEN_CUT_OFF_UNSPECIFIED) {
    spec.set_when_cut_off(v1::JobSpec::STOP);
  }
  if (spec.has_model()) ResolveModel(spec.mutable_model());
  if (spec.data().has_train()) ResolveDataSet(spec.mutable_data()->mutable_train());
  if (spec.data().has_validate()) ResolveDataSet(spec.mutable_data()->mutable_validate());

  if (!spec.has_strategy()) spec.mutable_strategy()->mutable_ddp();
  ResolveStrategy(spec.mutable_strategy());
  if (spec.has_trainable() && spec.trainable().refresh() == v1::TrainableSpec::REFRESH_UNSPECIFIED) {
    spec.mutable_trainable()->set_refresh(v1::TrainableSpec::AUTO);
  }
  if (spec.has_activation_checkpointing()) ResolveUnits(spec.mutable_activation_checkpointing());
  if (spec.has_optimizer()) ResolveOptimizer(spec.mutable_optimizer());

  if (!spec.has_schedule()) spec.mutable_schedule()->mutable_constant();
  ResolveSchedule(TotalSteps(spec), spec.mutable_schedule());
  ResolveLoss(&spec);
  if (spec.has_batch()) ResolveBatch(spec.has_uneven_inputs(), spec.mutable_batch());
  ResolveUnevenInputs(&spec);
  if (spec.has_checkpoint() && !spec.checkpoint().has_keep()) spec.mutable_checkpoint()->set_keep(3);
  if (!spec.has_priority()) spec.set_priority(0);
  if (!spec.restart().has_max_restarts()) spec.mutable_restart()->set_max_restarts(3);
  return spec;
}

}  // namespace muster::jobspec
