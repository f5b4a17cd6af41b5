#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/status/status.h"
#include "common/trainability/from_proto.h"
#include "coordinator/jobs/job.h"
#include "coordinator/membership/refusal.h"
#include "coordinator/service/admission.h"
#include "coordinator/service/request.h"
#include "coordinator/service/sample_command.h"
#include "coordinator/service/services.h"
#include "coordinator/service/wire.h"
#include "proto/muster/v1/control_service.grpc.pb.h"
#include "proto/muster/v1/worker_service.pb.h"

namespace muster::service {
namespace {

// The most rules of a call. They are checked on the engine's thread, and an error that names them
// must fit into the trailers.
constexpr int kMostRules = 100;

absl::Status BadRules(const std::string& message, const About& about = {}) {
  return With(Refuse(absl::StatusCode::kInvalidArgument, "TRAINABILITY_INVALID", message, about),
              {{"field", "rules"}});
}

// Checks the rules without the model.
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

// Checks the rules with the model's parameters. The workers check if none has made the model yet.
absl::Status CheckParameters(const google::protobuf::RepeatedPtrField<v1::TrainableRule>& rules,
                             const jobs::Job& job) {
  const auto parameters = ParametersOf(job);
  if (!parameters.has_value()) return absl::OkStatus();
  const auto mask = parameters->With(RulesFromProto(rules));
  return mask.ok() ? absl::OkStatus() : BadRules(std::string(mask.status().message()));
}

absl::Status BadPath(const char* field, const std::string& path, const std::string& expected) {
  return Refuse(absl::StatusCode::kInvalidArgument, "PATH_INVALID",
                absl::StrCat(field, " is '", path, "'; expected ", expected), {{"field", field}});
}

absl::Status CheckFile(const v1::OptimizerStateFile& file) {
  const std::string& path = file.path();
  if (file.download()) {
    return path.empty()
               ? absl::OkStatus()
               : BadPath("file.path", path, "none with file.download: the client names its file");
  }
  if (!path.empty() && path.front() == '/' && path.back() != '/') return absl::OkStatus();
  return BadPath("file.path", path, "the absolute path of a file");
}

absl::Status CheckFolder(const v1::ModelFolder& folder) {
  const std::string& path = folder.path();
  if (path.size() >= 2 && path.front() == '/' && path.back() != '/') return absl::OkStatus();
  return BadPath("folder.path", path, "the absolute path of a folder, without a '/' at its end");
}

absl::Status CheckRate(double rate) {
  if (std::isfinite(rate) && rate >= 0) return absl::OkStatus();
  return Refuse(absl::StatusCode::kInvalidArgument, "LEARNING_RATE_INVALID",
                absl::StrCat("learning_rate is ", rate, "; expected a finite number of 0 or more"),
                {{"field", "learning_rate"}});
}

absl::Status CheckSamples(uint64_t samples) {
  constexpr uint64_t kMost = uint64_t{1} << 48;
  if (samples >= 1 && samples <= kMost) return absl::OkStatus();
  return Refuse(absl::StatusCode::kInvalidArgument, "SAMPLES_INVALID",
                absl::StrCat("samples is ", samples, "; expected 1 to ", kMost),
                {{"field", "samples"}, {"limit", absl::StrCat(kMost)}});
}

absl::Status CheckStage(const std::string& stage) {
  if (stage == "validate" || stage == "test") return absl::OkStatus();
  return Refuse(
      absl::StatusCode::kInvalidArgument, "STAGE_INVALID",
      absl::StrCat("stage is '", stage,
                   "'; expected validate or test; fit and predict belong into the `stages` of a "
                   "job file, because they train or write a file"),
      {{"field", "stage"}});
}

absl::Status CheckData(const jobs::Job& job, const std::string& stage) {
  const v1::DataSpec data = SpecOf(job).data();
  if (stage == "validate" ? data.has_validate() : data.has_test()) return absl::OkStatus();
  return Refuse(
      absl::StatusCode::kFailedPrecondition, "NO_DATA",
      absl::StrCat("job '", job.id, "' has no such data: its job file has no `data.", stage, "`"));
}

// The steps from a request to a command. `contents` makes the command, without number and step.
// `check` finds errors of the request that do not depend on its job. `check_job` finds what its job
// lacks beyond the command's rule. Null means no check.
template <typename Request>
struct Rules {
  void (*contents)(const Request& request, v1::Command* command);
  absl::Status (*check)(const Request& request) = nullptr;
  absl::Status (*check_job)(const Request& request, const jobs::Job& job) = nullptr;
};

class ControlService final : public Admitting<v1::ControlService::CallbackService> {
 public:
  explicit ControlService(const ServiceParts& parts)
      : Admitting(parts.authorize), engine_(parts.engine) {
    Admits("GetTrainability", &ControlService::GetTrainability);
    Admits("Sample", &ControlService::Sample);
    Stores<v1::SetTrainabilityRequest>(
        "SetTrainability",
        {.contents =
             [](const v1::SetTrainabilityRequest& request, v1::Command* command) {
               *command->mutable_set_trainability()->mutable_rules() = request.rules();
               command->mutable_set_trainability()->set_dry_run(request.dry_run());
             },
         .check = [](const auto& request) { return CheckRules(request.rules()); },
         .check_job = [](const auto& request,
                         const jobs::Job& job) { return CheckParameters(request.rules(), job); }});
    Stores<v1::RefreshRequest>("Refresh", {.contents = [](const auto&, v1::Command* command) {
                                 command->mutable_refresh();
                               }});
    Stores<v1::SaveCheckpointRequest>("SaveCheckpoint",
                                      {.contents = [](const auto&, v1::Command* command) {
                                        command->mutable_save_checkpoint();
                                      }});
    Stores<v1::GatherOptimizerStateRequest>(
        "GatherOptimizerState",
        {.contents =
             [](const auto& request, v1::Command* command) {
               *command->mutable_gather_optimizer_state()->mutable_file() = request.file();
             },
         .check = [](const auto& request) { return CheckFile(request.file()); }});
    Stores<v1::ConsolidateRequest>(
        "Consolidate",
        {.contents =
             [](const auto& request, v1::Command* command) {
               *command->mutable_consolidate()->mutable_folder() = request.folder();
             },
         .check = [](const auto& request) { return CheckFolder(request.folder()); }});
    Stores<v1::SetLearningRateRequest>(
        "SetLearningRate",
        {.contents =
             [](const auto& request, v1::Command* command) {
               command->mutable_set_learning_rate()->set_learning_rate(request.learning_rate());
             },
         .check = [](const auto& request) { return CheckRate(request.learning_rate()); }});
    Stores<v1::SkipDataRequest>(
        "SkipData", {.contents =
                         [](const auto& request, v1::Command* command) {
                           command->mutable_skip_data()->set_samples(request.samples());
                           command->mutable_skip_data()->set_dry_run(request.dry_run());
                         },
                     .check = [](const auto& request) { return CheckSamples(request.samples()); }});
    Stores<v1::RunStageRequest>(
        "RunStage",
        {.contents =
             [](const auto& request, v1::Command* command) {
               command->mutable_run_stage()->set_stage(request.stage());
             },
         .check = [](const auto& request) { return CheckStage(request.stage()); },
         .check_job = [](const auto& request,
                         const jobs::Job& job) { return CheckData(job, request.stage()); }});
  }

 private:
  // Adds the call of this name, which stores a command and answers with its operation.
  template <typename Request>
  void Stores(const char* name, const Rules<Request>& rules) {
    Admits<Request, v1::Operation>(name, [this, rules](Context* context, const Request* request,
                                                       v1::Operation* response) {
      const absl::Status bad = rules.check == nullptr ? absl::OkStatus() : rules.check(*request);
      if (!bad.ok()) return EndCall(context, bad, request->job_id());
      v1::Command contents;
      rules.contents(*request, &contents);
      cluster::CommandCheck check;
      if (rules.check_job != nullptr) {
        check = [rules, request = *request](const jobs::Job& job) {
          return rules.check_job(request, job);
        };
      }
      return PostCommand(engine_, context, CommandOf(context, *request, contents), response, check);
    });
  }

  Reactor* GetTrainability(Context* context, const v1::GetTrainabilityRequest* request,
                           v1::GetTrainabilityResponse* response) override {
    return ReadAndAnswer(engine_, context, request->job_id(), [=, this]() -> absl::Status {
      const jobs::Job* job = engine_->cluster().Find(request->job_id());
      if (job == nullptr) return NoSuchJob(request->job_id());
      const auto parameters = ParametersOf(*job);
      if (!parameters.has_value()) {
        return Refuse(absl::StatusCode::kFailedPrecondition, "NO_MODEL",
                      absl::StrCat("job '", job->id, "' is ", jobs::Name(job->state()),
                                   ", and no worker has made its model yet"));
      }
      *response->mutable_trainability() = *TrainabilityOf(*job, SIZE_MAX);
      for (size_t i = 0; i < parameters->parameters().size(); ++i) {
        const auto& parameter = parameters->parameters()[i];
        v1::ParameterStatus* status = response->add_parameters();
        status->set_name(parameter.name);
        status->set_elements(parameter.elements);
        status->set_trained(parameters->mask()[i]);
      }
      return absl::OkStatus();
    });
  }

  Reactor* Sample(Context* context, const v1::SampleRequest* request,
                  v1::Operation* response) override {
    v1::Command kind;
    kind.mutable_sample();
    return PostCommandFor(
        engine_, context, CommandOf(context, *request, kind), response,
        [request = *request](const jobs::Job& job) -> absl::StatusOr<v1::Command> {
          v1::Command contents;
          ASSIGN_OR_RETURN(*contents.mutable_sample(),
                           SampleCommandOf(request, SpecOf(job).model(), job.id));
          return contents;
        });
  }

  Engine* const engine_;
};

}  // namespace

std::unique_ptr<grpc::Service> NewControlService(const ServiceParts& parts) {
  return std::make_unique<ControlService>(parts);
}

}  // namespace muster::service
