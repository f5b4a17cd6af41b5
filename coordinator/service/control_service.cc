#include "coordinator/service/control_service.h"

#include <cmath>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status.h"
#include "common/trainability/from_proto.h"
#include "coordinator/membership/refusal.h"
#include "coordinator/service/request.h"
#include "coordinator/service/sample_command.h"
#include "coordinator/service/wire.h"

namespace muster::service {
namespace {

// The rules of a call are limited because they are checked on the engine's thread, and because an
// error that names them must fit into the trailers.
constexpr int kMostRules = 100;

v1::JobSpec SpecOf(const jobs::Job& job) {
  v1::JobSpec spec;
  spec.ParseFromString(job.spec);
  return spec;
}

absl::Status NeedsCheckpoints(const jobs::Job& job) {
  if (SpecOf(job).has_checkpoint()) return absl::OkStatus();
  return Refuse(absl::StatusCode::kFailedPrecondition, "NO_CHECKPOINTS",
                absl::StrCat("job '", job.id,
                             "' has no place for checkpoints: its job file has no `checkpoint`"));
}

absl::Status NeedsOptimizer(const jobs::Job& job) {
  if (SpecOf(job).has_optimizer()) return absl::OkStatus();
  return Refuse(absl::StatusCode::kFailedPrecondition, "NO_OPTIMIZER",
                absl::StrCat("job '", job.id, "' trains nothing: its job file has no `optimizer`"));
}

absl::Status BadRules(const std::string& message, const About& about = {}) {
  return With(Refuse(absl::StatusCode::kInvalidArgument, "TRAINABILITY_INVALID", message, about),
              {{"field", "rules"}});
}

// Checks what is wrong whatever the model is.
absl::Status CheckRules(const google::protobuf::RepeatedPtrField<v1::TrainableRule>& rules) {
  if (rules.empty()) return BadRules("there are no rules");
  if (rules.size() > kMostRules) {
    return BadRules(
        absl::StrCat("there are ", rules.size(), " rules; allowed are ", kMostRules,
                     " at a time (quote patterns, so that the shell does not fill them in)"),
        LimitOf(kMostRules));
  }
  for (int i = 0; i < rules.size(); ++i) {
    const std::string& pattern = rules[i].has_freeze() ? rules[i].freeze() : rules[i].unfreeze();
    if (pattern.empty()) return BadRules(absl::StrCat("rules[", i, "] has no pattern"));
  }
  return absl::OkStatus();
}

}  // namespace

grpc::ServerUnaryReactor* ControlService::SetTrainability(grpc::CallbackServerContext* context,
                                                          const v1::SetTrainabilityRequest* request,
                                                          v1::Operation* response) {
  auto* reactor = context->DefaultReactor();
  if (const absl::Status bad = CheckRules(request->rules()); !bad.ok()) {
    reactor->Finish(ToWire(bad, request->job_id()));
    return reactor;
  }
  v1::Command contents;
  *contents.mutable_set_trainability()->mutable_rules() = request->rules();
  contents.mutable_set_trainability()->set_dry_run(request->dry_run());
  // A dry run only computes a plan: it is carried out once, and changes no state.
  const auto kind =
      request->dry_run() ? commands::Kind::kPlanTrainability : commands::Kind::kSetTrainability;
  return PostCommand(
      engine_, CommandOf(context, "set_trainability", *request, kind, contents, AtStep(*request)),
      response, reactor, [rules = RulesFromProto(request->rules())](const jobs::Job& job) {
        if (const absl::Status status = NeedsOptimizer(job); !status.ok()) return status;
        const auto parameters = ParametersOf(job);
        if (!parameters.has_value()) return absl::OkStatus();
        const auto mask = parameters->With(rules);
        return mask.ok() ? absl::OkStatus() : BadRules(std::string(mask.status().message()));
      });
}

grpc::ServerUnaryReactor* ControlService::Refresh(grpc::CallbackServerContext* context,
                                                  const v1::RefreshRequest* request,
                                                  v1::Operation* response) {
  v1::Command contents;
  contents.mutable_refresh();
  return PostCommand(engine_,
                     CommandOf(context, "refresh", *request, commands::Kind::kRefresh, contents),
                     response, context->DefaultReactor(), NeedsOptimizer);
}

grpc::ServerUnaryReactor* ControlService::GetTrainability(grpc::CallbackServerContext* context,
                                                          const v1::GetTrainabilityRequest* request,
                                                          v1::GetTrainabilityResponse* response) {
  auto* reactor = context->DefaultReactor();
  engine_->Read([=, this](const absl::Status& committed) {
    if (!committed.ok()) return reactor->Finish(ToWire(committed));
    const jobs::Job* job = engine_->cluster().Find(request->job_id());
    if (job == nullptr) return reactor->Finish(ToWire(NoSuchJob(request->job_id())));
    const auto parameters = ParametersOf(*job);
    if (!parameters.has_value()) {
      return reactor->Finish(
          ToWire(Refuse(absl::StatusCode::kFailedPrecondition, "NO_MODEL",
                        absl::StrCat("job '", job->id, "' is ", jobs::Name(job->state()),
                                     ", and no worker has made its model yet")),
                 job->id));
    }
    *response->mutable_trainability() = *TrainabilityOf(*job, SIZE_MAX);
    for (size_t i = 0; i < parameters->parameters().size(); ++i) {
      const auto& parameter = parameters->parameters()[i];
      v1::ParameterStatus* status = response->add_parameters();
      status->set_name(parameter.name);
      status->set_elements(parameter.elements);
      status->set_trained(parameters->mask()[i]);
    }
    reactor->Finish(grpc::Status::OK);
  });
  return reactor;
}

grpc::ServerUnaryReactor* ControlService::SaveCheckpoint(grpc::CallbackServerContext* context,
                                                         const v1::SaveCheckpointRequest* request,
                                                         v1::Operation* response) {
  v1::Command contents;
  contents.mutable_save_checkpoint();
  return PostCommand(engine_,
                     CommandOf(context, "save_checkpoint", *request,
                               commands::Kind::kSaveCheckpoint, contents, AtStep(*request)),
                     response, context->DefaultReactor(), NeedsCheckpoints);
}

grpc::ServerUnaryReactor* ControlService::Consolidate(grpc::CallbackServerContext* context,
                                                      const v1::ConsolidateRequest* request,
                                                      v1::Operation* response) {
  auto* reactor = context->DefaultReactor();
  if (const std::string& path = request->folder().path();
      path.size() < 2 || path.front() != '/' || path.back() == '/') {
    reactor->Finish(ToWire(
        Refuse(absl::StatusCode::kInvalidArgument, "PATH_INVALID",
               absl::StrCat("folder.path is '", path,
                            "'; expected the absolute path of a folder, without a '/' at its end"),
               {{"field", "folder.path"}}),
        request->job_id()));
    return reactor;
  }
  v1::Command contents;
  *contents.mutable_consolidate()->mutable_folder() = request->folder();
  return PostCommand(engine_,
                     CommandOf(context, "consolidate", *request, commands::Kind::kConsolidate,
                               contents, AtStep(*request)),
                     response, reactor, NeedsOptimizer);
}

grpc::ServerUnaryReactor* ControlService::GatherOptimizerState(
    grpc::CallbackServerContext* context, const v1::GatherOptimizerStateRequest* request,
    v1::Operation* response) {
  auto* reactor = context->DefaultReactor();
  const bool download = request->file().download();
  const std::string& path = request->file().path();
  if (download && !path.empty()) {
    reactor->Finish(ToWire(
        Refuse(absl::StatusCode::kInvalidArgument, "PATH_INVALID",
               absl::StrCat("file.path is '", path,
                            "'; expected none with file.download: the client names its file"),
               {{"field", "file.path"}}),
        request->job_id()));
    return reactor;
  }
  if (!download && (path.empty() || path.front() != '/' || path.back() == '/')) {
    reactor->Finish(ToWire(
        Refuse(absl::StatusCode::kInvalidArgument, "PATH_INVALID",
               absl::StrCat("file.path is '", path, "'; expected the absolute path of a file"),
               {{"field", "file.path"}}),
        request->job_id()));
    return reactor;
  }
  v1::Command contents;
  *contents.mutable_gather_optimizer_state()->mutable_file() = request->file();
  cluster::CommandRequest command =
      CommandOf(context, "gather_optimizer_state", *request, commands::Kind::kGatherOptimizerState,
                contents, AtStep(*request));
  return PostCommand(engine_, command, response, reactor, NeedsOptimizer);
}

grpc::ServerUnaryReactor* ControlService::SetLearningRate(grpc::CallbackServerContext* context,
                                                          const v1::SetLearningRateRequest* request,
                                                          v1::Operation* response) {
  const double rate = request->learning_rate();
  if (!std::isfinite(rate) || rate < 0) {
    auto* reactor = context->DefaultReactor();
    reactor->Finish(ToWire(
        Refuse(absl::StatusCode::kInvalidArgument, "LEARNING_RATE_INVALID",
               absl::StrCat("learning_rate is ", rate, "; expected a finite number of 0 or more"),
               {{"field", "learning_rate"}}),
        request->job_id()));
    return reactor;
  }
  v1::Command contents;
  contents.mutable_set_learning_rate()->set_learning_rate(rate);
  return PostCommand(engine_,
                     CommandOf(context, "set_learning_rate", *request,
                               commands::Kind::kSetLearningRate, contents, AtStep(*request)),
                     response, context->DefaultReactor(), NeedsOptimizer);
}

grpc::ServerUnaryReactor* ControlService::RunStage(grpc::CallbackServerContext* context,
                                                   const v1::RunStageRequest* request,
                                                   v1::Operation* response) {
  auto* reactor = context->DefaultReactor();
  const bool validate = request->stage() == "validate";
  if (!validate && request->stage() != "test") {
    reactor->Finish(ToWire(
        Refuse(absl::StatusCode::kInvalidArgument, "STAGE_INVALID",
               absl::StrCat(
                   "stage is '", request->stage(),
                   "'; expected validate or test: a fit would change what the job's other stages "
                   "train, and a predict writes a file that its job must own, so both belong "
                   "into the `stages` of a job file"),
               {{"field", "stage"}}),
        request->job_id()));
    return reactor;
  }
  v1::Command contents;
  contents.mutable_run_stage()->set_stage(request->stage());
  return PostCommand(engine_,
                     CommandOf(context, "run_stage", *request, commands::Kind::kRunStage, contents,
                               AtStep(*request)),
                     response, reactor, [validate](const jobs::Job& job) {
                       const v1::DataSpec data = SpecOf(job).data();
                       if (validate ? data.has_validate() : data.has_test())
                         return absl::OkStatus();
                       return Refuse(absl::StatusCode::kFailedPrecondition, "NO_DATA",
                                     absl::StrCat("job '", job.id,
                                                  "' has no such data: its job file has no `data.",
                                                  validate ? "validate" : "test", "`"));
                     });
}

grpc::ServerUnaryReactor* ControlService::Sample(grpc::CallbackServerContext* context,
                                                 const v1::SampleRequest* request,
                                                 v1::Operation* response) {
  return PostCommandFor(
      engine_,
      CommandOf(context, "sample", *request, commands::Kind::kSample, {}, AtStep(*request)),
      response, context->DefaultReactor(),
      [request = *request](const jobs::Job& job) -> absl::StatusOr<v1::Command> {
        ASSIGN_OR_RETURN(v1::SampleCommand sample,
                         SampleCommandOf(request, SpecOf(job).model(), job.id));
        v1::Command contents;
        *contents.mutable_sample() = std::move(sample);
        return contents;
      });
}

}  // namespace muster::service
