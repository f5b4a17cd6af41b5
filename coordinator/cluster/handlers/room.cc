#include "absl/strings/str_cat.h"
#include "common/status/status.h"
#include "coordinator/cluster/handlers/consequences.h"
#include "coordinator/membership/refusal.h"

namespace muster::cluster {
namespace {

absl::Status Full(const char* reason, const std::string& message, uint64_t limit) {
  return Refuse(absl::StatusCode::kResourceExhausted, reason, message, LimitOf(limit));
}

}  // namespace

absl::Status CheckRoomForJob(const Jobs& jobs, const Limits& limits, const std::string& spec) {
  if (jobs.submitted().size() >= limits.jobs) {
    return Full("TOO_MANY_JOBS",
                absl::StrCat("there are ", jobs.submitted().size(),
                             " jobs, as many as allowed; `muster delete JOB` removes one that has "
                             "ended"),
                limits.jobs);
  }
  if (const size_t bytes = jobs.spec_bytes() + spec.size(); bytes > limits.spec_bytes) {
    return Full("JOBS_TOO_LARGE",
                absl::StrCat("with this one the job files of all jobs would have ", bytes,
                             " bytes, encoded; allowed are ", limits.spec_bytes,
                             "; `muster delete JOB` removes a job that has ended"),
                limits.spec_bytes);
  }
  return CheckOpenJobs(jobs, limits);
}

absl::Status CheckOpenJobs(const Jobs& jobs, const Limits& limits) {
  if (jobs.open_count() < limits.open_jobs) return absl::OkStatus();
  return Full("TOO_MANY_OPEN_JOBS",
              absl::StrCat(jobs.open_count(),
                           " jobs have not ended yet, as many as allowed; wait for some, or stop "
                           "some"),
              limits.open_jobs);
}

absl::Status CheckRoomFor(const Limits& limits, const jobs::Job& job,
                          const commands::Command& command) {
  if (job.commands.open().size() >= limits.open_commands) {
    return Full("TOO_MANY_OPEN_COMMANDS",
                absl::StrCat(job.commands.open().size(), " operations of job '", job.id,
                             "' are not done yet, as many as allowed; wait for some, or cancel "
                             "some (`muster operation JOB/N --cancel`)"),
                limits.open_commands);
  }
  if (job.commands.newest() >= limits.commands) {
    return Full("TOO_MANY_COMMANDS",
                absl::StrCat("job '", job.id, "' has had ", job.commands.newest(),
                             " operations, as many as allowed; it can only be stopped"),
                limits.commands);
  }
  const size_t bytes = job.commands.contents_bytes() + command.contents.size();
  if (bytes <= limits.command_bytes) return absl::OkStatus();
  return Full("COMMANDS_TOO_LARGE",
              absl::StrCat("with this one the operations of job '", job.id, "' would have ", bytes,
                           " bytes in all; allowed are ", limits.command_bytes,
                           ": every new process of the job must receive all of them"),
              limits.command_bytes);
}

}  // namespace muster::cluster
