#include "worker/control/job_from_spec.h"

#include <google/protobuf/util/json_util.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "common/status/status.h"

namespace muster::control {
namespace {

absl::Status Missing(const char* path) {
  return absl::InvalidArgumentError(absl::StrCat(path, ": no known alternative is set"));
}

absl::StatusOr<train::ModelConfig> Model(const v1::ModelSpec& spec) {
  train::ModelConfig model;
  model.weights = spec.weights();
  const google::protobuf::Message* options = nullptr;
  switch (spec.kind_case()) {
    case v1::ModelSpec::kGpt2:
      model.kind = "gpt2";
      options = &spec.gpt2();
      break;
    case v1::ModelSpec::kMlp:
      model.kind = "mlp";
      options = &spec.mlp();
      break;
    case v1::ModelSpec::KIND_NOT_SET:
      return Missing("model");
  }
  google::protobuf::util::JsonPrintOptions print;
  print.preserve_proto_field_names = true;
  if (!google::protobuf::util::MessageToJsonString(*options, &model.options_json, print).ok()) {
    return absl::InternalError("model options cannot be written as JSON");
  }
  return model;
}

absl::StatusOr<train::DataConfig> Data(const char* path, const v1::DataSet& spec) {
  switch (spec.kind_case()) {
    case v1::DataSet::kTokens:
      return train::TokenFiles{
          {spec.tokens().path().begin(), spec.tokens().path().end()},
          spec.tokens().dtype() == v1::TokenData::UINT32 ? data::TokenType::kUint32
                                                         : data::TokenType::kUint16};
    case v1::DataSet::kSafetensors:
      return train::RowFiles{{spec.safetensors().path()}};
    case v1::DataSet::KIND_NOT_SET:
      break;
  }
  return Missing(path);
}

absl::StatusOr<train::OptimizerConfig> Optimizer(const v1::OptimizerSpec& spec) {
  switch (spec.kind_case()) {
    case v1::OptimizerSpec::kAdamw:
      if (spec.adamw().betas_size() != 2) return Missing("optimizer.adamw.betas");
      return train::OptimizerConfig{spec.adamw().lr(),
                                    optim::AdamWOptions{.beta1 = spec.adamw().betas(0),
                                                        .beta2 = spec.adamw().betas(1),
                                                        .eps = spec.adamw().eps(),
                                                        .weight_decay = spec.adamw().weight_decay()}};
    case v1::OptimizerSpec::kSgd:
      return train::OptimizerConfig{spec.sgd().lr(),
                                    optim::SgdOptions{.momentum = spec.sgd().momentum(),
                                                      .weight_decay = spec.sgd().weight_decay()}};
    case v1::OptimizerSpec::KIND_NOT_SET:
      break;
  }
  return Missing("optimizer");
}

optim::Schedule Schedule(const v1::ScheduleSpec& spec) {
  if (!spec.has_warmup_cosine()) return optim::Constant{};
  const auto& cosine = spec.warmup_cosine();
  return optim::WarmupCosine{.warmup_steps = cosine.warmup_steps(),
                             .total_steps = cosine.total_steps(),
                             .min_ratio = cosine.min_ratio()};
}

absl::StatusOr<train::Stage> StageOf(const v1::StageSpec& spec) {
  switch (spec.kind_case()) {
    case v1::StageSpec::kFit:
      return train::FitStage{spec.fit().steps(), spec.fit().validate_every()};
    case v1::StageSpec::kValidate:
      return train::ValidateStage{};
    case v1::StageSpec::KIND_NOT_SET:
      break;
  }
  return Missing("stages");
}

}  // namespace

absl::StatusOr<train::Job> JobFromSpec(const v1::JobSpec& spec) {
  train::Job job;
  job.seed = spec.seed();
  ASSIGN_OR_RETURN(job.model, Model(spec.model()));
  if (spec.data().has_train()) {
    ASSIGN_OR_RETURN(job.train, Data("data.train", spec.data().train()));
  }
  if (spec.data().has_validate()) {
    ASSIGN_OR_RETURN(job.validate, Data("data.validate", spec.data().validate()));
  }
  if (!spec.strategy().has_ddp()) return Missing("strategy");
  job.ddp.bucket_bytes = static_cast<int64_t>(spec.strategy().ddp().bucket_mb() * (1 << 20));
  if (spec.optimizer().kind_case() != v1::OptimizerSpec::KIND_NOT_SET) {
    ASSIGN_OR_RETURN(job.optimizer, Optimizer(spec.optimizer()));
  }
  job.schedule = Schedule(spec.schedule());
  job.batch = {.per_rank = spec.batch().per_rank(),
               .accumulate = spec.batch().accumulate(),
               .order = spec.batch().order() == v1::BatchSpec::SEQUENTIAL
                            ? data::Order::kSequential
                            : data::Order::kShuffled,
               .last = spec.batch().last() == v1::BatchSpec::PAD ? data::Last::kPad
                                                                 : data::Last::kDrop};
  if (spec.has_clip_grad_norm()) job.clip_grad_norm = spec.clip_grad_norm();
  for (const v1::StageSpec& stage : spec.stages()) {
    ASSIGN_OR_RETURN(job.stages.emplace_back(), StageOf(stage));
  }
  if (spec.has_checkpoint()) {
    job.checkpoint = {.directory = spec.checkpoint().directory(),
                      .every_steps = spec.checkpoint().every_steps()};
  }
  job.export_path = spec.export_().path();
  return job;
}

}  // namespace muster::control
