#include "coordinator/service/submission.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "common/jobfile/check_files.h"
#include "common/jobfile/jobfile.h"
#include "common/jobfile/overrides.h"
#include "common/jobspec/jobspec.h"
#include "common/jobspec/problem_list.h"
#include "common/jobspec/rules.h"
#include "common/jobspec/training_settings.h"
#include "common/manifest/name.h"
#include "common/rpc/error.h"
#include "common/status/status.h"
#include "common/utf8/utf8.h"
#include "coordinator/limits/limits.h"
#include "coordinator/membership/refusal.h"
#include "coordinator/service/request.h"

namespace muster::service {
namespace {

// Returns whether the id is valid. An empty id is valid: the coordinator makes the id. A '-' at the
// beginning would be an option on a command line.
bool IsJobId(const std::string& id) {
  return id.size() <= kLimits.job_id_bytes && (id.empty() || id[0] != '-') &&
         std::all_of(id.begin(), id.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
         });
}

// Returns the problems that fit into an error. The trailers of a call carry the error. gRPC limits
// them to 8 KiB, and they contain each text three times, two of them in base64.
v1::SpecProblems FirstOf(const v1::SpecProblems& all) {
  constexpr size_t kMaxBytes = 1500;
  constexpr size_t kLongestMessage = 400;
  v1::SpecProblems first;
  for (v1::SpecProblem problem : all.problems()) {
    if (problem.message().size() > kLongestMessage) {
      std::string cut = problem.message().substr(0, kLongestMessage);
      cut.resize(ValidUtf8Prefix(cut));  // not within a character
      problem.set_message(cut + "...");
    }
    if (first.ByteSizeLong() + problem.ByteSizeLong() > kMaxBytes) break;
    *first.add_problems() = std::move(problem);
  }
  if (const int more = all.problems_size() - first.problems_size(); more > 0) {
    const int most = jobspec::kMostProblems;
    first.add_problems()->set_message(
        all.problems_size() > most
            ? absl::StrCat("and more; ValidateJob returns the first ", most)
            : absl::StrCat("and ", more, " more; ValidateJob returns all of them"));
  }
  return first;
}

// The engine's facts about the job that a file names.
struct Named {
  v1::JobSpec file;  // with the directory of the checkpoint
  v1::SpecProblems problems;
  std::optional<v1::JobSpec> stored;  // the job that wrote it; absent for a directory
};

// Asks the engine; absent if the engine does not answer.
std::optional<Named> Find(Engine* engine, const v1::JobSpec& file) {
  std::optional<Named> found;
  absl::Notification done;
  engine->Read([&](const absl::Status& committed) {
    if (committed.ok()) {
      found.emplace(Named{.file = file, .problems = {}, .stored = std::nullopt});
      found->problems = ResolveStart(engine->cluster(), &found->file);
      const auto named = jobspec::ParseJobAndStep(file.start().checkpoint());
      const jobs::Job* job = named.has_value() ? engine->cluster().Find(named->job) : nullptr;
      if (job != nullptr) found->stored.emplace().ParseFromString(job->spec);
    }
    done.Notify();
  });
  done.WaitForNotification();
  return found;
}

// The file's name in messages of the reader, which no client sees. Each problem stands alone.
constexpr char kText[] = "the text";

// Checks that no request takes the coordinator more than about a second.
absl::Status CheckSettings(const v1::ParseJobRequest& request) {
  size_t bytes = 0;
  for (const std::string& setting : request.settings()) bytes += setting.size();
  const auto too_many = [](const std::string& what, size_t found, size_t limit) {
    return Refuse(
        absl::StatusCode::kInvalidArgument, "FIELD_TOO_LONG",
        absl::StrCat("settings: ", what, ": found ", found, ", allowed ", limit,
                     "; write the values into the text"),
        {{"field", "settings"}, {"found", absl::StrCat(found)}, {"limit", absl::StrCat(limit)}});
  };
  if (bytes > kLimits.job_settings_bytes) {
    return too_many("bytes in all", bytes, kLimits.job_settings_bytes);
  }
  const size_t work = request.yaml().size() * static_cast<size_t>(request.settings_size());
  if (work > kLimits.job_settings_times_text_bytes) {
    return too_many("their number times the bytes of the text", work,
                    kLimits.job_settings_times_text_bytes);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckFolder(const std::string& field, const std::string& folder) {
  if (absl::StartsWith(folder, "/")) return absl::OkStatus();
  return Refuse(absl::StatusCode::kInvalidArgument, "FOLDER_NOT_ABSOLUTE",
                absl::StrCat(field, ": found '", folder, "'; expected an absolute path"),
                {{"field", field}});
}

absl::StatusOr<v1::ParseJobResponse> ParseJob(const v1::ParseJobRequest& request) {
  const std::string& settings_folder =
      request.settings_folder().empty() ? request.base_folder() : request.settings_folder();
  RETURN_IF_ERROR(CheckFolder("base_folder", request.base_folder()));
  RETURN_IF_ERROR(CheckFolder("settings_folder", settings_folder));
  RETURN_IF_ERROR(CheckSettings(request));
  const jobfile::Overrides overrides{
      .settings = {request.settings().begin(), request.settings().end()},
      .base_folder = settings_folder};
  const auto file = jobfile::ParseJobFile(request.yaml(), kText, request.base_folder(), overrides);
  v1::ParseJobResponse response;
  if (file.ok()) {
    *response.mutable_spec() = file->spec;
    response.mutable_lines()->insert(file->lines.begin(), file->lines.end());
    return response;
  }
  v1::SpecProblems problems = Problems(file.status());
  if (problems.problems().empty()) return file.status();
  response.mutable_problems()->Swap(problems.mutable_problems());
  return response;
}

v1::SpecProblems ProblemsOf(const v1::JobSpec& spec, const membership::Timing& timing) {
  v1::SpecProblems problems = jobspec::ValidateSpec(spec);
  const auto no_progress = jobspec::DurationOf(spec.watchdog().no_progress());
  if (no_progress.has_value() && *no_progress < timing.ShortestNoProgress()) {
    auto* problem = problems.add_problems();
    problem->set_path("watchdog.no_progress");
    problem->set_message(
        absl::StrCat("found ", spec.watchdog().no_progress(),
                     "; allowed: ", absl::FormatDuration(timing.ShortestNoProgress()),
                     " or more, which is three leases of this coordinator (musterd --lease ",
                     absl::FormatDuration(timing.lease), ")"));
  }
  return problems;
}

v1::SpecProblems ProblemsOf(const v1::SubmitJobRequest& request, const membership::Timing& timing) {
  v1::SpecProblems problems = ProblemsOf(request.spec(), timing);
  if (!IsJobId(request.job_id())) {
    auto* problem = problems.add_problems();
    problem->set_path("job_id");
    problem->set_message(absl::StrCat("'", request.job_id(), "': expected 1 to ",
                                      kLimits.job_id_bytes,
                                      " of the characters a-z, 0-9 and -, the first one no -"));
  }
  return problems;
}

absl::Status InvalidSpec(const v1::SpecProblems& all) {
  const v1::SpecProblems problems = FirstOf(all);
  absl::Status status = Refuse(
      absl::StatusCode::kInvalidArgument, "JOB_SPEC_INVALID", jobspec::FormatProblems(problems),
      {{"field", problems.problems(0).path()}, {"problems", absl::StrCat(all.problems_size())}});
  AttachProblems(&status, problems);
  return status;
}

jobs::Device DeviceOf(const v1::JobSpec& spec) {
  return spec.device() == v1::JobSpec::CUDA ? jobs::Device::kCuda : jobs::Device::kCpu;
}

v1::SpecProblems ResolveStart(const cluster::Cluster& cluster, v1::JobSpec* spec) {
  v1::SpecProblems problems;
  const std::string& given = spec->start().checkpoint();
  const auto named = jobspec::ParseJobAndStep(given);
  if (!spec->has_start() || jobspec::IsDirectory(given) || !named.has_value()) return problems;
  const auto refuse = [&](const std::string& why) {
    problems.add_problems()->set_path("start.checkpoint");
    problems.mutable_problems(0)->set_message(absl::StrCat("found ", given, ", but ", why));
    return problems;
  };
  const jobs::Job* job = cluster.Find(named->job);
  if (job == nullptr) {
    return refuse(absl::StrCat("there is no job '", named->job,
                               "'; to name the directory of a checkpoint, write it with a '/', "
                               "such as ./",
                               given));
  }
  std::string steps;
  const jobs::Checkpoint* chosen = nullptr;
  for (const jobs::Checkpoint& one : job->checkpoints) {
    if (!one.bad_reason.empty()) continue;
    absl::StrAppend(&steps, steps.empty() ? "" : ", ", one.step);
    if (named->step.value_or(one.step) != one.step) continue;
    if (chosen == nullptr || one.step >= chosen->step) chosen = &one;
  }
  if (steps.empty()) return refuse(absl::StrCat("job '", named->job, "' has no checkpoint"));
  if (chosen == nullptr) {
    return refuse(absl::StrCat("the checkpoints of job '", named->job, "' are of steps ", steps));
  }
  spec->mutable_start()->set_checkpoint(chosen->path);
  return problems;
}

void ResolveStart(const cluster::Cluster& cluster, cluster::Submission* submission) {
  v1::JobSpec spec;
  spec.ParseFromString(submission->spec);
  const v1::SpecProblems problems = ResolveStart(cluster, &spec);
  if (!problems.problems().empty() && submission->refusal.ok()) {
    submission->refusal = InvalidSpec(problems);
  }
  submission->spec = spec.SerializeAsString();
}

jobs::Plan PlanOf(const v1::JobSpec& spec) {
  jobs::Plan plan{
      .world_size = spec.world_size(),
      .device = DeviceOf(spec),
      .threads = spec.threads(),
      .total_steps = jobspec::TotalSteps(spec).value_or(0),
      .max_restarts = spec.restart().max_restarts(),
      .keep_checkpoints = spec.checkpoint().keep(),
      .priority = spec.priority(),
      .continue_when_cut_off = spec.when_cut_off() == v1::JobSpec::CONTINUE,
      .no_progress = jobspec::DurationOf(spec.watchdog().no_progress()),
      .startup = jobspec::DurationOf(spec.watchdog().startup()),
      .time_limit = jobspec::DurationOf(spec.time_limit()).value_or(absl::InfiniteDuration())};
  SetUnstored(spec, &plan);
  return plan;
}

cluster::Submission ToSubmission(const v1::SubmitJobRequest& request,
                                 const jobfile::Continued& continued) {
  const v1::JobSpec spec = jobspec::ResolveDefaults(continued.spec);
  const v1::SpecProblems refused =
      continued.problems.problems().empty() ? jobfile::CheckOutputs(spec) : continued.problems;
  std::vector<std::pair<std::string, std::string>> events;
  if (!continued.taken.empty()) events.emplace_back("SETTING_FROM_CHECKPOINT", continued.taken);
  if (!continued.differing.empty()) events.emplace_back("SETTING_DIFFERS", continued.differing);
  return {.job_id = request.job_id(),
          .name = spec.name(),
          .request_id = request.request_id(),
          .fingerprint = FingerprintOf("submit", request),
          .job_file = request.job_file(),
          .spec = spec.SerializeAsString(),
          .plan = PlanOf(spec),
          .refusal = refused.problems().empty() ? absl::OkStatus() : InvalidSpec(refused),
          .events = std::move(events)};
}

jobfile::Continued ContinueFromStart(Engine* engine, const v1::JobSpec& file) {
  jobfile::Continued as_it_is{.spec = file, .problems = {}, .taken = {}, .differing = {}};
  if (!jobfile::GoesOn(file)) return as_it_is;
  const std::optional<Named> named = Find(engine, file);
  if (!named.has_value()) return as_it_is;
  if (!named->problems.problems().empty()) {
    as_it_is.problems = named->problems;
    return as_it_is;
  }
  const std::string& directory = named->file.start().checkpoint();
  auto from = jobfile::ReadSettings(directory);
  const auto name = manifest::ParseFinalName(manifest::NameOfDirectory(directory));
  // The stored settings lack the learning rate that commands gave the job.
  if (!from.ok() && named->stored.has_value() && name.has_value() && file.has_optimizer()) {
    from = jobfile::CheckpointSettings{.step = static_cast<uint64_t>(name->step),
                                       .settings = jobspec::TrainingSettings(*named->stored)};
  }
  if (from.ok()) return jobfile::Continue(named->file, *from, directory);
  as_it_is.problems = jobfile::CannotRead(directory, from.status());
  return as_it_is;
}

}  // namespace muster::service
