#include "coordinator/service/needs.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "common/commands/command_rule.h"
#include "common/status/status.h"
#include "coordinator/membership/refusal.h"

namespace muster::service {
namespace {

absl::Status Lacks(const char* reason, const std::string& message) {
  return Refuse(absl::StatusCode::kFailedPrecondition, reason, message);
}

absl::Status Check(const v1::JobSpec& spec, const std::string& job, int need) {
  switch (need) {
    case v1::CommandRule::TRAINING:
    case v1::CommandRule::OPTIMIZER:
      if (spec.has_optimizer()) return absl::OkStatus();
      return Lacks("NO_OPTIMIZER", absl::StrCat("job '", job,
                                                "' trains nothing: its job file has no "
                                                "`optimizer`"));
    case v1::CommandRule::CHECKPOINTS:
      if (spec.has_checkpoint()) return absl::OkStatus();
      return Lacks(
          "NO_CHECKPOINTS",
          absl::StrCat("job '", job,
                       "' has no place for checkpoints: its job file has no `checkpoint`"));
    case v1::CommandRule::TOKENS:
      if (spec.model().has_gpt2() || spec.model().has_llama()) return absl::OkStatus();
      return Lacks("CANNOT_GENERATE",
                   absl::StrCat("the model of job '", job,
                                "' cannot continue a prompt: it is neither gpt2 nor llama"));
    default:
      return absl::OkStatus();
  }
}

}  // namespace

v1::JobSpec SpecOf(const jobs::Job& job) {
  v1::JobSpec spec;
  spec.ParseFromString(job.spec);
  return spec;
}

absl::Status CheckNeeds(const jobs::Job& job, v1::Operation::Kind kind) {
  const v1::CommandRule& rule = commands::RuleOf(kind);
  if (rule.needs().empty()) return absl::OkStatus();
  const v1::JobSpec spec = SpecOf(job);
  for (const int need : rule.needs()) RETURN_IF_ERROR(Check(spec, job.id, need));
  return absl::OkStatus();
}

}  // namespace muster::service
