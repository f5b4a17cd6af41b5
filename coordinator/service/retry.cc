#include "coordinator/service/retry.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/jobfile/jobfile.h"
#include "common/jobspec/changes.h"
#include "common/jobspec/jobspec.h"
#include "common/rpc/error.h"
#include "common/status/status.h"
#include "coordinator/limits/limits.h"
#include "coordinator/membership/refusal.h"
#include "coordinator/service/submission.h"

namespace muster::service {
namespace {

// The newest checkpoint of this step that can be read, whether it counts or not; null if there is
// none. `steps`: those of all.
const jobs::Checkpoint* CheckpointOf(const jobs::Job& job, uint64_t step, std::string* steps) {
  const jobs::Checkpoint* found = nullptr;
  std::vector<uint64_t> known;
  for (const auto* checkpoints : {&job.found_checkpoints, &job.checkpoints}) {
    for (const jobs::Checkpoint& one : *checkpoints) {
      if (!one.bad_reason.empty()) continue;
      known.push_back(one.step);
      if (one.step == step) found = &one;
    }
  }
  std::sort(known.begin(), known.end());
  known.erase(std::unique(known.begin(), known.end()), known.end());
  *steps = absl::StrJoin(known, ", ");
  return found;
}

absl::Status AddStart(const jobs::Job& job, uint64_t step, cluster::CommandRequest* command) {
  std::string steps;
  if (const jobs::Checkpoint* checkpoint = CheckpointOf(job, step, &steps); checkpoint != nullptr) {
    command->from = checkpoint->path;
    return absl::OkStatus();
  }
  command->from_scratch = step == 0;
  if (step == 0) return absl::OkStatus();
  return Refuse(absl::StatusCode::kFailedPrecondition, "CHECKPOINT_NOT_FOUND",
                absl::StrCat("job '", job.id, "' has no checkpoint of step ", step, "; it has ",
                             steps.empty() ? "none" : absl::StrCat("those of steps ", steps),
                             "; 0 is its beginning"),
                {{"field", "from_step"}});
}

// A schedule that ends with the job's steps ends with its new steps, unless a setting says else.
void UnsetTotalSteps(const v1::RetryJobRequest& request, v1::JobSpec* spec) {
  const uint64_t steps = jobspec::UnlimitedSteps(*spec).value_or(0);
  const bool given =
      std::any_of(request.settings().begin(), request.settings().end(),
                  [](const std::string& setting) { return absl::StartsWith(setting, "schedule"); });
  if (given || steps == 0) return;
  const auto unset = [steps](auto* schedule) {
    if (schedule->total_steps() == steps) schedule->clear_total_steps();
  };
  v1::ScheduleSpec* schedule = spec->mutable_schedule();
  if (schedule->has_warmup_cosine()) unset(schedule->mutable_warmup_cosine());
  if (schedule->has_linear()) unset(schedule->mutable_linear());
  if (schedule->has_one_cycle()) unset(schedule->mutable_one_cycle());
}

// The settings that put the job's end before its beginning.
void CheckSteps(const v1::JobSpec& after, uint64_t start, v1::SpecProblems* problems) {
  const uint64_t total = jobspec::TotalSteps(after).value_or(0);
  if (total == 0 || total > start || !jobspec::Trains(after)) return;
  auto* problem = problems->add_problems();
  problem->set_path("stages");
  problem->set_message(absl::StrCat("the fit stages have ", total,
                                    " steps, and the job begins again after step ", start,
                                    ": nothing would be trained; allowed: more steps, or an "
                                    "earlier checkpoint (from_step)"));
}

uint64_t StartOf(const jobs::Job& job, const v1::RetryJobRequest& request) {
  if (request.has_from_step()) return request.from_step();
  uint64_t step = 0;
  for (const jobs::Checkpoint& one : job.checkpoints) {
    if (one.bad_reason.empty()) step = std::max(step, one.step);
  }
  return step;
}

absl::Status CheckSize(const jobs::Job& job, const v1::RetryJobRequest& request) {
  constexpr Limits kLimits;
  size_t bytes = 0;
  for (const std::string& setting : request.settings()) bytes += setting.size();
  const size_t work = job.spec.size() * static_cast<size_t>(request.settings_size());
  if (bytes <= kLimits.job_settings_bytes && work <= kLimits.job_settings_times_text_bytes) {
    return absl::OkStatus();
  }
  return Refuse(absl::StatusCode::kInvalidArgument, "FIELD_TOO_LONG",
                absl::StrCat("settings: found ", request.settings_size(), " with ", bytes,
                             " bytes, too many for a job of ", job.spec.size(), " bytes"),
                {{"field", "settings"}, {"found", absl::StrCat(bytes)}});
}

absl::Status AddSettings(const jobs::Job& job, const v1::RetryJobRequest& request,
                         const membership::Timing& timing, cluster::CommandRequest* command) {
  RETURN_IF_ERROR(CheckSize(job, request));
  const std::string& folder = request.settings_folder();
  if (!folder.empty() && folder[0] != '/') {
    return Refuse(absl::StatusCode::kInvalidArgument, "FOLDER_NOT_ABSOLUTE",
                  absl::StrCat("settings_folder: found '", folder, "'; expected an absolute path"),
                  {{"field", "settings_folder"}});
  }
  v1::JobSpec before;
  before.ParseFromString(job.spec);
  v1::JobSpec base = before;
  UnsetTotalSteps(request, &base);
  const auto file = jobfile::ChangeJob(
      base, absl::StrCat("job ", job.id),
      {.settings = {request.settings().begin(), request.settings().end()}, .base_folder = folder});
  if (!file.ok()) {
    const v1::SpecProblems problems = Problems(file.status());
    return problems.problems().empty() ? file.status() : InvalidSpec(problems);
  }
  const v1::JobSpec after = jobspec::ResolveDefaults(file->spec);
  v1::SpecProblems problems = jobspec::FixedSettings(before, after);
  problems.MergeFrom(ProblemsOf(after, timing));
  CheckSteps(after, StartOf(job, request), &problems);
  jobfile::AddPlaces(*file, &problems);
  // The job has no lines.
  for (v1::SpecProblem& problem : *problems.mutable_problems()) problem.clear_line();
  if (!problems.problems().empty()) return InvalidSpec(problems);
  command->settings.spec = after.SerializeAsString();
  command->settings.plan = PlanOf(after);
  for (const jobspec::Change& change : jobspec::Changes(before, after)) {
    command->settings.changes.push_back({.path = change.path,
                                         .old_value = change.old_value,
                                         .new_value = change.new_value});
  }
  return absl::OkStatus();
}

}  // namespace

void AddRetry(const jobs::Job& job, const v1::RetryJobRequest& request,
              const membership::Timing& timing, cluster::CommandRequest* command) {
  if (request.settings_size() > 0) {
    command->refusal = AddSettings(job, request, timing, command);
  }
  if (request.has_from_step() && command->refusal.ok()) {
    command->refusal = AddStart(job, request.from_step(), command);
  }
}

}  // namespace muster::service
