// The rows of a job, in the tables of schema.h.
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status/status.h"
#include "coordinator/store/sqlite_store.h"
#include "coordinator/store/statement.h"

namespace muster::store {
namespace {

std::optional<int64_t> Nanoseconds(const std::optional<absl::Duration>& duration) {
  if (!duration.has_value()) return std::nullopt;
  return absl::ToInt64Nanoseconds(*duration);
}

}  // namespace

absl::Status SqliteStore::WriteJob(const Batch::JobRow& row) {
  const jobs::Job& job = row.job;
  Statement statement(db_, &statements_,
                      "REPLACE INTO jobs VALUES "
                      "(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,"
                      "?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)");
  statement.Bind(job.id)
      .Bind(job.number)
      .BindBlob(job.spec)
      .Bind(job.plan.world_size)
      .Bind(job.plan.total_steps)
      .Bind(job.plan.max_restarts)
      .Bind(job.plan.keep_checkpoints)
      .Bind(static_cast<int>(job.state))
      .Bind(job.state_reason)
      .Bind(job.version_ceiling)
      .Bind(job.create_time)
      .Bind(job.start_time)
      .Bind(job.end_time)
      .Bind(job.generation)
      .Bind(job.live)
      .Bind(job.ending)
      .Bind(job.stop_requested)
      .Bind(job.restarts);
  if (job.rendezvous.has_value()) {
    statement.Bind(job.rendezvous->host).Bind(job.rendezvous->port);
  } else {
    statement.BindNull().BindNull();
  }
  statement.Bind(job.stage)
      .Bind(job.step)
      .Bind(job.loss)
      .Bind(job.validation_loss)
      .Bind(job.validation_step)
      .Bind(job.exported_path)
      .Bind(job.log_sequence)
      .Bind(job.perplexity)
      .Bind(job.grad_norm)
      .Bind(job.validation_accuracy)
      .Bind(job.validation_perplexity)
      .Bind(job.skipped_steps)
      .Bind(job.plan.priority)
      .Bind(job.paused)
      .Bind(job.ended_early)
      .Bind(job.reason_code);
  if (const auto& failure = job.save_failure; failure.has_value()) {
    statement.Bind(failure->step).Bind(failure->message).Bind(failure->time).Bind(failure->count);
  } else {
    statement.BindNull().BindNull().BindNull().BindNull();
  }
  statement.Bind(job.export_granted)
      .Bind(Nanoseconds(job.plan.no_progress))
      .Bind(Nanoseconds(job.plan.startup))
      .Bind(job.newest_generation_seen)
      .Bind(job.halt_reason)
      .Bind(job.from_scratch)
      .Bind(job.start_from)
      .Bind(job.plan.continue_when_cut_off)
      .Bind(job.interruption)
      .Bind(job.preempted)
      .Bind(job.restarts_used)
      .Bind(job.node_faults)
      .Bind(job.failed_step)
      .Bind(job.started_step)
      .Bind(job.not_before)
      .Bind(job.attempt);
  RETURN_IF_ERROR(statement.Run());
  const bool replace = row.lists == Batch::JobRow::Lists::kReplace;
  std::set<uint32_t> ranks(row.changed_ranks.begin(), row.changed_ranks.end());
  if (replace) {
    RETURN_IF_ERROR(WriteLists(job));
    for (uint32_t rank = 0; rank < job.ranks.size(); ++rank) ranks.insert(rank);
  }
  for (uint32_t number : ranks) {
    const jobs::Rank& rank = job.ranks.at(number);
    RETURN_IF_ERROR(
        Statement(db_, &statements_, "REPLACE INTO ranks VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)")
            .Bind(job.id)
            .Bind(number)
            .Bind(rank.node)
            .Bind(rank.slot)
            .Bind(rank.host)
            .Bind(rank.agent_incarnation)
            .Bind(rank.incarnation)
            .Bind(rank.pid)
            .Bind(rank.step)
            .Bind(rank.acked_report)
            .Bind(rank.session_started)
            .Bind(rank.finished)
            .Bind(rank.exited)
            .Bind(rank.joined_since)
            .Bind(rank.attached)
            .Run());
  }
  return absl::OkStatus();
}

absl::Status SqliteStore::WriteLists(const jobs::Job& job) {
  for (const char* table :
       {"ranks", "checkpoints", "failures", "commands", "trainability", "trainability_changes",
        "attempts"}) {
    RETURN_IF_ERROR(
        Statement(db_, &statements_, absl::StrCat("DELETE FROM ", table, " WHERE job_id = ?"))
            .Bind(job.id)
            .Run());
  }
  for (const jobs::AttemptEnd& end : job.ended_attempts) {
    RETURN_IF_ERROR(Statement(db_, &statements_, "INSERT INTO attempts VALUES (?,?,?,?,?,?,?)")
                        .Bind(job.id)
                        .Bind(end.attempt)
                        .Bind(static_cast<int>(end.state))
                        .Bind(end.state_reason)
                        .Bind(end.reason_code)
                        .Bind(end.end_time)
                        .Bind(end.step)
                        .Run());
  }
  const std::string insert = "REPLACE INTO checkpoints VALUES (?,?,?,?,?,?,?,?,?)";
  std::vector<jobs::Checkpoint> checkpoints = job.checkpoints;
  checkpoints.insert(checkpoints.end(), job.found_checkpoints.begin(), job.found_checkpoints.end());
  for (const jobs::Checkpoint& checkpoint : checkpoints) {
    RETURN_IF_ERROR(Statement(db_, &statements_, insert)
                        .Bind(job.id)
                        .Bind(checkpoint.path)
                        .Bind(checkpoint.step)
                        .Bind(checkpoint.generation)
                        .Bind(checkpoint.create_time)
                        .Bind(checkpoint.bad_reason)
                        .Bind(false)
                        .Bind(static_cast<int>(checkpoint.origin))
                        .Bind(checkpoint.origin_reason)
                        .Run());
  }
  for (const std::string& path : job.dropped_checkpoints) {
    RETURN_IF_ERROR(Statement(db_, &statements_, insert)
                        .Bind(job.id)
                        .Bind(path)
                        .Bind(0)
                        .Bind(0)
                        .BindNull()
                        .Bind(std::string())
                        .Bind(true)
                        .Bind(static_cast<int>(jobs::Origin::kRecorded))
                        .Bind(std::string())
                        .Run());
  }
  for (size_t position = 0; position < job.failures.size(); ++position) {
    const jobs::FailureNote& note = job.failures[position];
    RETURN_IF_ERROR(
        Statement(db_, &statements_, "INSERT INTO failures VALUES (?,?,?,?,?,?,?,?,?,?,?,?)")
            .Bind(job.id)
            .Bind(static_cast<uint64_t>(position))
            .Bind(note.generation)
            .Bind(note.rank)
            .Bind(note.node)
            .Bind(note.step)
            .Bind(static_cast<int>(note.kind))
            .Bind(note.permanent)
            .Bind(note.reason)
            .Bind(note.log_tail)
            .Bind(note.code)
            .Bind(absl::StrJoin(note.collectives, "\n"))
            .Run());
  }
  for (const commands::Command& command : job.commands.commands()) {
    Statement row(db_, &statements_, "INSERT INTO commands VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?)");
    row.Bind(job.id)
        .Bind(command.number)
        .Bind(static_cast<int>(command.kind))
        .Bind(command.applied_step)
        .BindBlob(command.contents)
        .Bind(command.at_step)
        .Bind(command.target)
        .Bind(command.requested_by)
        .Bind(command.create_time);
    if (const auto& outcome = command.outcome; outcome.has_value()) {
      row.Bind(static_cast<int>(outcome->code))
          .Bind(outcome->time)
          .Bind(outcome->reason)
          .Bind(outcome->message)
          .BindBlob(outcome->result);
    } else {
      row.BindNull().BindNull().BindNull().BindNull().BindNull();
    }
    RETURN_IF_ERROR(row.Run());
  }
  const jobs::Trainability& trainability = job.trainability;
  if (trainability.version == 0) return absl::OkStatus();
  RETURN_IF_ERROR(Statement(db_, &statements_, "INSERT INTO trainability VALUES (?,?,?,?)")
                      .Bind(job.id)
                      .Bind(trainability.version)
                      .BindBlob(trainability.in_force)
                      .BindBlob(trainability.parameters)
                      .Run());
  for (const jobs::TrainabilityChange& change : trainability.history) {
    RETURN_IF_ERROR(
        Statement(db_, &statements_, "INSERT INTO trainability_changes VALUES (?,?,?,?,?,?)")
            .Bind(job.id)
            .Bind(change.version)
            .Bind(change.generation)
            .Bind(change.time)
            .Bind(change.command)
            .BindBlob(change.contents)
            .Run());
  }
  return absl::OkStatus();
}

}  // namespace muster::store
