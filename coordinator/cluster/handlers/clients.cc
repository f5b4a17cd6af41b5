#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/commands/command_rule.h"
#include "common/status/status.h"
#include "coordinator/cluster/handlers/consequences.h"
#include "coordinator/cluster/handlers/handlers.h"
#include "coordinator/jobs/checkpoints.h"
#include "coordinator/jobs/events.h"
#include "coordinator/jobs/settings.h"
#include "coordinator/membership/refusal.h"

namespace muster::cluster {
namespace {

// The highest at_step. No job has so many steps.
constexpr uint64_t kLatestStep = uint64_t{1} << 48;

// Stores the command's number as the answer of this request.
void RememberAnswer(HandlerContext& context, const CommandRequest& request, uint64_t number) {
  context.Remember({.request_id = request.request_id,
                    .fingerprint = request.fingerprint,
                    .job_id = request.job_id,
                    .answer = absl::StrCat(number)});
}

// Returns whether lost processes may have carried out the command without a report. Then a
// checkpoint of these processes may include the command. Only processes that continue from this
// checkpoint can report the command.
bool MayHaveBeenCarriedOut(const jobs::Job& job, const commands::Command& command) {
  return job.generation > 0 && commands::ChangesState(command.kind) &&
         command.number <= std::max(job.told_before, job.told_commands);
}

// Checks the request's choice of the job's start, if there is one.
absl::Status CheckStart(const jobs::Job& job, const CommandRequest& request) {
  if (!request.from_scratch && request.from.empty()) return absl::OkStatus();
  const auto invalid = [](const std::string& why) {
    return Refuse(absl::StatusCode::kInvalidArgument, "START_INVALID", why);
  };
  if (request.from_scratch && !request.from.empty()) {
    return invalid("from and from_scratch exclude each other");
  }
  if (!request.from.empty() && request.from[0] != '/') {
    return invalid(absl::StrCat("from: expected an absolute path, found '", request.from, "'"));
  }
  if (!job.live()) return absl::OkStatus();
  return invalid(absl::StrCat("job '", job.id, "' is ", jobs::Name(job.state()),
                              "; stop it first: only then `from` or `from_scratch` can "
                              "choose another start"));
}

// OK if each known worker of the job has this protocol or a newer protocol. Workers with a broken
// stream count, too. AttachWorker checks all other workers.
absl::Status CheckWorkersAreOf(const membership::Membership& membership, uint32_t protocol,
                               const jobs::Job& job) {
  for (uint32_t rank = 0; rank < job.ranks.size(); ++rank) {
    const membership::Worker* worker = membership.FindWorker(job.id, rank);
    const bool known = worker != nullptr && (worker->attached() || worker->protocol > 0);
    if (!known || worker->protocol >= protocol) continue;
    return Refuse(
        absl::StatusCode::kFailedPrecondition, "WORKER_TOO_OLD",
        absl::StrCat(
            "rank ", rank, " on node '", worker->node,
            "' is a worker of an older program "
            "(protocol ",
            worker->protocol, ", needed is ", protocol,
            "), which would ignore this; update the node's programs and move the job there "
            "again (`muster drain ",
            worker->node, "`)"));
  }
  return absl::OkStatus();
}

// Returns the job, or the refusal that all commands share.
absl::StatusOr<jobs::Job*> OpenJob(Jobs& jobs, const std::string& job_id) {
  jobs::Job* job = jobs.Find(job_id);
  if (job == nullptr) return NoSuchJob(job_id);
  if (job->terminal()) {
    return Refuse(absl::StatusCode::kFailedPrecondition, "JOB_ALREADY_ENDED",
                  absl::StrCat("job '", job_id, "' is ", jobs::Name(job->state()), " already",
                               job->state() == jobs::State::kSucceeded
                                   ? ""
                                   : absl::StrCat("; `muster retry ", job_id,
                                                  "` continues it, with --set KEY=VALUE (such as "
                                                  "optimizer.adamw.lr=1e-4) for other settings")));
  }
  return job;
}

// Ends the command at once, because the job has no process that could carry it out.
uint64_t DoneAtOnce(HandlerContext& context, jobs::Job* job, const CommandRequest& request,
                    uint64_t number) {
  job->commands.Applied(number, job->step);
  job->commands.Finished(number, {.time = context.now});
  RememberAnswer(context, request, number);
  ApplyListsChange(context, job, {});
  return number;
}

}  // namespace

absl::StatusOr<std::string> Submit(HandlerContext& context, const Submission& submission) {
  ASSIGN_OR_RETURN(const store::RequestRow* const repeat,
                   context.requests.Repeat(submission.request_id, submission.fingerprint));
  if (repeat != nullptr) {
    if (repeat->job_deleted()) return JobOfRequestDeleted(repeat->job_id);
    return repeat->job_id;
  }
  if (!submission.refusal.ok()) return submission.refusal;

  RETURN_IF_ERROR(context.requests.CheckRoom(submission.request_id));
  RETURN_IF_ERROR(CheckRoomForJob(context.jobs, context.options.limits, submission.spec));
  jobs::Job* const job = context.jobs.Add(submission.job_id, submission.name, submission.spec);
  if (job == nullptr) {
    const std::string& id = submission.job_id;
    return Refuse(
        absl::StatusCode::kAlreadyExists, "JOB_ALREADY_EXISTS",
        absl::StrCat("there already is a job '", id, "' (",
                     jobs::Name(context.jobs.Find(id)->state()), "); choose another id, or none"),
        {{"job", id}, {"field", "job_id"}});
  }
  job->submitter = submission.submitter;
  job->job_file = submission.job_file;
  job->plan = submission.plan;
  job->create_time = context.now;
  context.Remember({.request_id = submission.request_id,
                    .fingerprint = submission.fingerprint,
                    .job_id = job->id});
  for (const auto& [reason, text] : submission.events)
    jobs::AddEvent(job, context.now, reason, text);
  ApplyListsChange(context, job, {});
  return job->id;
}

absl::StatusOr<uint64_t> Command(HandlerContext& context, const CommandRequest& request,
                                 const CommandCheck& check) {
  ASSIGN_OR_RETURN(const auto repeated,
                   context.requests.RepeatedCommand(request.request_id, request.fingerprint));
  if (repeated.has_value()) return *repeated;
  if (const jobs::Job* ended = context.jobs.Find(request.job_id);
      request.command.kind == v1::Operation::RESUME && ended != nullptr && ended->terminal()) {
    return NextAttempt(context, request);
  }
  ASSIGN_OR_RETURN(jobs::Job * job, OpenJob(context.jobs, request.job_id));
  // A stop is accepted even above the limits of a job's commands.
  if (request.command.kind != v1::Operation::STOP) {
    RETURN_IF_ERROR(context.requests.CheckRoom(request.request_id));
    RETURN_IF_ERROR(CheckRoomFor(context.options.limits, *job, request.command));
  }
  if (request.command.at_step > kLatestStep) {
    return Refuse(
        absl::StatusCode::kInvalidArgument, "AT_STEP_INVALID",
        absl::StrCat("at_step is ", *request.command.at_step, ", allowed is up to ", kLatestStep),
        {{"field", "at_step"}, {"limit", absl::StrCat(kLatestStep)}});
  }
  if (check != nullptr) {
    if (absl::Status refused = check(*job); !refused.ok()) return refused;
  }
  const v1::Operation::Kind kind = request.command.kind;
  RETURN_IF_ERROR(
      CheckWorkersAreOf(context.membership, commands::RuleOf(kind).since_protocol(), *job));
  const bool paused = job->commands.WillBePaused() || job->halted();
  RETURN_IF_ERROR(CheckStart(*job, request));
  if (kind == v1::Operation::RESUME && job->halted()) {
    jobs::DecideStart(job, request.from_scratch, request.from);
    jobs::Resume(job);
    return DoneAtOnce(context, job, request, Append(context, job, request.command));
  }
  if (kind == v1::Operation::PAUSE && paused) {
    return Refuse(absl::StatusCode::kFailedPrecondition, "JOB_ALREADY_PAUSED",
                  absl::StrCat("job '", job->id, "' is paused already, or will be; `muster resume ",
                               job->id, "` continues it"));
  }
  if (kind == v1::Operation::RESUME && !paused) {
    return Refuse(
        absl::StatusCode::kFailedPrecondition, "JOB_NOT_PAUSED",
        absl::StrCat("job '", job->id, "' is ", jobs::Name(job->state()),
                     jobs::PausedByCommand(job->phase) ? ", and resumes already" : ", not paused"));
  }
  const bool stops_now = kind == v1::Operation::STOP && !request.command.at_step.has_value();
  jobs::RanksToEnd ended;
  const bool repeats_stop = stops_now && job->stop_requested();
  if (stops_now) ended = jobs::OnStop(job, context.options.end_timeouts, context.now);
  const uint64_t number =
      repeats_stop ? job->commands.newest() : Append(context, job, request.command);
  RememberAnswer(context, request, number);
  ApplyJobChange(context, job, ended);
  return number;
}

absl::StatusOr<uint64_t> NextAttempt(HandlerContext& context, const CommandRequest& request) {
  ASSIGN_OR_RETURN(const auto repeated,
                   context.requests.RepeatedCommand(request.request_id, request.fingerprint));
  if (repeated.has_value()) return *repeated;
  jobs::Job* job = context.jobs.Find(request.job_id);
  if (job == nullptr) return NoSuchJob(request.job_id);
  if (!job->terminal()) {
    return Refuse(
        absl::StatusCode::kFailedPrecondition, "JOB_NOT_ENDED",
        absl::StrCat("job '", job->id, "' is ", jobs::Name(job->state()),
                     "; only a job that has FAILED or was CANCELLED begins its next attempt"));
  }
  if (job->state() == jobs::State::kSucceeded) {
    return Refuse(absl::StatusCode::kFailedPrecondition, "JOB_ALREADY_ENDED",
                  absl::StrCat("job '", job->id, "' SUCCEEDED: there is nothing left to do"));
  }
  RETURN_IF_ERROR(request.refusal);
  RETURN_IF_ERROR(context.requests.CheckRoom(request.request_id));
  RETURN_IF_ERROR(CheckRoomFor(context.options.limits, *job, request.command));
  RETURN_IF_ERROR(CheckOpenJobs(context.jobs, context.options.limits));
  RETURN_IF_ERROR(CheckStart(*job, request));
  jobs::DecideStart(job, request.from_scratch, request.from);
  jobs::OnNextAttempt(job, context.now);
  const uint64_t number = Append(context, job, request.command);
  job->told_commands = job->told_before = number;
  context.jobs.ChangeSettings(job, request.settings, request.command.requester, number,
                              context.now);
  // The command also ends a pause from before the job's end.
  return DoneAtOnce(context, job, request, number);
}

absl::StatusOr<uint64_t> Cancel(HandlerContext& context, const CommandRequest& request) {
  ASSIGN_OR_RETURN(const auto repeated,
                   context.requests.RepeatedCommand(request.request_id, request.fingerprint));
  if (repeated.has_value()) return *repeated;
  jobs::Job* job = context.jobs.Find(request.job_id);
  if (job == nullptr) return NoSuchJob(request.job_id);
  const uint64_t target = request.command.target;
  const std::string name = absl::StrCat(job->id, "/", target);
  const commands::Command* command = job->commands.Find(target);
  if (command == nullptr) {
    return Refuse(absl::StatusCode::kNotFound, "OPERATION_NOT_FOUND",
                  absl::StrCat("there is no operation '", name, "'"), {{"operation", name}});
  }
  const auto too_late = [&](const char* reason, const std::string& why) {
    return Refuse(absl::StatusCode::kFailedPrecondition, reason,
                  absl::StrCat("operation '", name, "' ", why), {{"operation", name}});
  };
  if (command->outcome.has_value()) {
    return too_late("OPERATION_DONE", "is done already, and cannot be cancelled");
  }
  const v1::CommandRule& rule = commands::RuleOf(command->kind);
  if (command->applied_step.has_value() &&
      rule.cancellable() != v1::CommandRule::UNTIL_IT_IS_DONE) {
    return too_late("OPERATION_APPLIED",
                    absl::StrCat("took effect after step ", *command->applied_step,
                                 ", and cannot be cancelled any more"));
  }
  if (rule.cancellable() == v1::CommandRule::NEVER ||
      (command->kind == v1::Operation::STOP && !command->at_step.has_value())) {
    return too_late("OPERATION_APPLIED", "cannot be cancelled");
  }
  if (job->commands.IsBeingCancelled(target)) {
    // An earlier cancel of the same target has not taken effect yet: nothing is added.
  } else if (job->live() || MayHaveBeenCarriedOut(*job, *command)) {
    Append(context, job, request.command);
  } else {
    job->commands.Finished(
        target,
        {.time = context.now,
         .code = absl::StatusCode::kCancelled,
         .reason = "OPERATION_CANCELLED",
         .message = command->applied_step.has_value() && commands::WritesForOthers(command->kind)
                        ? "cancelled; it is not known whether its file was complete"
                        : "cancelled before it took effect"});
    context.jobs.ListsChanged(*job);
    // No stored command names the requester.
    context.Log(
        absl::StrCat("operation '", name, "' was cancelled by ", request.command.requester));
  }
  RememberAnswer(context, request, target);
  ApplyJobChange(context, job, {});
  return target;
}

absl::StatusOr<std::string> Delete(HandlerContext& context, const DeleteRequest& request) {
  const auto& [job_id, request_id, fingerprint, answer, requested_by] = request;
  ASSIGN_OR_RETURN(const store::RequestRow* const repeat,
                   context.requests.Repeat(request_id, fingerprint));
  if (repeat != nullptr) return repeat->answer;
  const jobs::Job* job = context.jobs.Find(job_id);
  if (job == nullptr) return NoSuchJob(job_id);
  if (!job->terminal()) {
    return Refuse(absl::StatusCode::kFailedPrecondition, "JOB_NOT_ENDED",
                  absl::StrCat("job '", job_id, "' is ", jobs::Name(job->state()),
                               "; only a job that has ended can be deleted: stop it first "
                               "(`muster stop ",
                               job_id, " --wait`)"));
  }
  for (store::RequestRow& row : context.requests.JobDeleted(job_id, context.now)) {
    context.batch.requests.push_back(std::move(row));
  }
  context.Remember({.request_id = request_id,
                    .fingerprint = fingerprint,
                    .job_id = job_id,
                    .deleted_time = context.now,
                    .answer = answer});
  // Rows of the job that are already in this batch must not be written after its removal.
  const auto of_job = [&](const auto& row) { return row.job_id == request.job_id; };
  std::erase_if(context.batch.steps, of_job);
  std::erase_if(context.batch.validations, of_job);
  std::erase_if(context.batch.tests, of_job);
  std::erase_if(context.batch.logs, of_job);
  context.batch.removed_jobs.push_back(job_id);
  context.batch.last_number = context.jobs.last_number();
  context.outbox.Forget(job_id);
  context.restored.JobDeleted(job_id);
  context.jobs.Remove(job_id);
  context.effects.push_back(JobDeleted{job_id});
  context.Log(absl::StrCat("job '", job_id, "' was deleted", requested_by.empty() ? "" : " by ",
                           requested_by));
  return answer;
}

}  // namespace muster::cluster
