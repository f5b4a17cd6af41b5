#include "coordinator/service/retry.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/notification.h"
#include "common/jobfile/check_files.h"
#include "common/jobfile/jobfile.h"
#include "common/jobspec/changes.h"
#include "common/jobspec/jobspec.h"
#include "common/jobspec/training_settings.h"
#include "common/rpc/error.h"
#include "common/status/status.h"
#include "coordinator/limits/limits.h"
#include "coordinator/membership/refusal.h"
#include "coordinator/service/submission.h"

namespace muster::service {
namespace {

// Returns the newest readable checkpoint of this step, whether it counts or not; null if there is
// none. `steps`: gets the steps of all checkpoints.
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

// Returns the optimizer steps of all fit stages; absent if unknown. A stage in epochs has as many
// steps per epoch as the ranks have reported for the settings before.
std::optional<uint64_t> StepsOf(const jobs::Job& job, const v1::JobSpec& before,
                                const v1::JobSpec& after) {
  if (const auto steps = jobspec::TotalSteps(after); steps.has_value()) return steps;
  const auto same = [&before](const v1::JobSpec& other) {
    return other.world_size() == before.world_size() &&
           other.batch().per_rank() == before.batch().per_rank() &&
           other.batch().accumulate() == before.batch().accumulate();
  };
  uint64_t epochs = 0, steps = 0, new_epochs = 0, new_steps = 0;
  for (const v1::StageSpec& stage : before.stages()) {
    if (stage.fit().limit_steps() > 0) return std::nullopt;
    epochs += stage.fit().epochs();
    steps += stage.fit().steps();
  }
  for (const v1::StageSpec& stage : after.stages()) {
    if (stage.fit().limit_steps() > 0) return std::nullopt;
    new_epochs += stage.fit().epochs();
    new_steps += stage.fit().steps();
  }
  if (epochs == 0 || job.fit_steps <= steps || !same(after)) return std::nullopt;
  return new_steps + (job.fit_steps - steps) / epochs * new_epochs;
}

// Adds a problem if stages change their number of steps and all these steps are done. Without such
// a change, a job may have trained to its end and failed after it.
void CheckSteps(const jobs::Job& job, const v1::JobSpec& before, const v1::JobSpec& after,
                uint64_t start, v1::SpecProblems* problems) {
  const std::optional<uint64_t> total = StepsOf(job, before, after);
  const std::optional<uint64_t> old_total = jobspec::TotalSteps(before).has_value()
                                                ? jobspec::TotalSteps(before)
                                                : std::optional<uint64_t>(job.fit_steps);
  if (!total.has_value() || *total == 0 || total == old_total || *total > start) return;
  auto* problem = problems->add_problems();
  problem->set_path("stages");
  problem->set_message(absl::StrCat("the fit stages have ", *total,
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
  if (!folder.empty()) RETURN_IF_ERROR(CheckFolder("settings_folder", folder));
  v1::JobSpec stored;
  stored.ParseFromString(job.spec);
  // An older musterd may have stored the job without the defaults of newer fields.
  const v1::JobSpec before = jobspec::ResolveDefaults(stored);
  v1::JobSpec base = before;
  // A schedule ends with the stages, unless a setting says otherwise.
  const auto& given = request.settings();
  if (std::none_of(given.begin(), given.end(), [](const std::string& setting) {
        return absl::StartsWith(setting, "schedule");
      })) {
    jobspec::UnsetOwnEnd(&base);
  }
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
  CheckSteps(job, before, after, StartOf(job, request), &problems);
  // The outputs are checked here, because an unwritable file would otherwise be an error after the
  // training.
  if (problems.problems().empty()) problems = jobfile::CheckOutputs(after);
  jobfile::AddPlaces(*file, &problems);
  // The job has no lines in a file.
  for (v1::SpecProblem& problem : *problems.mutable_problems()) problem.clear_line();
  if (!problems.problems().empty()) return InvalidSpec(problems);
  command->settings.spec = after.SerializeAsString();
  command->settings.plan = PlanOf(after);
  for (const jobspec::Change& change : jobspec::Changes(before, after)) {
    command->settings.changes.push_back(
        {.path = change.path, .old_value = change.old_value, .new_value = change.new_value});
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

absl::StatusOr<std::optional<jobs::Job>> ReadForRetry(Engine* engine, const std::string& job_id,
                                                      absl::Duration timeout) {
  // The engine may answer after the timeout.
  struct Answer {
    absl::Notification arrived;
    absl::Status status;
    std::optional<jobs::Job> job;
  };
  const auto answer = std::make_shared<Answer>();
  engine->Read([answer, engine, job_id](const absl::Status& committed) {
    answer->status = committed;
    const jobs::Job* job = committed.ok() ? engine->cluster().Find(job_id) : nullptr;
    if (job != nullptr) {
      jobs::Job& found = answer->job.emplace();
      found.id = job->id;
      found.spec = job->spec;
      found.checkpoints = job->checkpoints;
      found.found_checkpoints = job->found_checkpoints;
      // Skipped samples change the steps of an epoch, which then do not follow from the stages.
      const auto& commands = job->commands.commands();
      const bool skipped = std::any_of(commands.begin(), commands.end(), [](const auto& command) {
        return command.kind == v1::Operation::SKIP_DATA && command.applied_step.has_value() &&
               (!command.outcome.has_value() || command.outcome->code == absl::StatusCode::kOk);
      });
      found.fit_steps = skipped ? 0 : job->fit_steps;
    }
    answer->arrived.Notify();
  });
  if (!answer->arrived.WaitForNotificationWithTimeout(timeout)) {
    return absl::UnavailableError(absl::StrCat("the coordinator did not look at job '", job_id,
                                               "' within ", absl::FormatDuration(timeout),
                                               "; repeat the call"));
  }
  RETURN_IF_ERROR(answer->status);
  return std::move(answer->job);
}

}  // namespace muster::service
