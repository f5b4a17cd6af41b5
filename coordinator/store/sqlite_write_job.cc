// The rows of a job, in the tables of schema.h.
#include <optional>
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
  const jobs::JobFields& job = row.job;
  Statement statement(db_, &statements_,
                      "REPLACE INTO jobs VALUES "
                      "(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,"
                      "?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)");
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
      .Bind(job.attempt)
      .Bind(job.plan.time_limit == absl::InfiniteDuration()
                ? std::nullopt
                : std::optional<int64_t>(absl::ToInt64Microseconds(job.plan.time_limit)))
      .Bind(absl::ToInt64Microseconds(job.time_used))
      .Bind(job.live_since)
      .Bind(job.time_up);
  RETURN_IF_ERROR(statement.Run());
  RETURN_IF_ERROR(RemoveRows(job.id, row));
  for (const auto& [number, rank] : row.ranks.put) {
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
  return WriteLists(row);
}

absl::Status SqliteStore::WriteLists(const Batch::JobRow& changes) {
  const std::string& job_id = changes.job.id;
  for (const auto& [path, row] : changes.checkpoints.put) {
    RETURN_IF_ERROR(
        Statement(db_, &statements_, "REPLACE INTO checkpoints VALUES (?,?,?,?,?,?,?,?,?)")
            .Bind(job_id)
            .Bind(path)
            .Bind(row.checkpoint.step)
            .Bind(row.checkpoint.generation)
            .Bind(row.checkpoint.create_time)
            .Bind(row.checkpoint.bad_reason)
            .Bind(row.dropped)
            .Bind(static_cast<int>(row.checkpoint.origin))
            .Bind(row.checkpoint.origin_reason)
            .Run());
  }
  for (const auto& [attempt, end] : changes.attempts.put) {
    RETURN_IF_ERROR(Statement(db_, &statements_, "REPLACE INTO attempts VALUES (?,?,?,?,?,?,?)")
                        .Bind(job_id)
                        .Bind(attempt)
                        .Bind(static_cast<int>(end.state))
                        .Bind(end.state_reason)
                        .Bind(end.reason_code)
                        .Bind(end.end_time)
                        .Bind(end.step)
                        .Run());
  }
  for (const auto& [position, note] : changes.failures.put) {
    RETURN_IF_ERROR(
        Statement(db_, &statements_, "REPLACE INTO failures VALUES (?,?,?,?,?,?,?,?,?,?,?,?)")
            .Bind(job_id)
            .Bind(position)
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
  for (const auto& [number, command] : changes.commands.put) {
    Statement row(db_, &statements_, "REPLACE INTO commands VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?)");
    row.Bind(job_id)
        .Bind(number)
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
  if (const auto& trainability = changes.trainability; trainability.has_value()) {
    RETURN_IF_ERROR(Statement(db_, &statements_, "REPLACE INTO trainability VALUES (?,?,?,?)")
                        .Bind(job_id)
                        .Bind(trainability->version)
                        .BindBlob(trainability->in_force)
                        .BindBlob(trainability->parameters)
                        .Run());
  }
  for (const auto& [version, change] : changes.trainability_changes.put) {
    RETURN_IF_ERROR(
        Statement(db_, &statements_, "REPLACE INTO trainability_changes VALUES (?,?,?,?,?,?)")
            .Bind(job_id)
            .Bind(version)
            .Bind(change.generation)
            .Bind(change.time)
            .Bind(change.command)
            .BindBlob(change.contents)
            .Run());
  }
  return absl::OkStatus();
}

absl::Status SqliteStore::RemoveRows(const std::string& job_id, const Batch::JobRow& changes) {
  const auto remove = [&](const char* table, const char* column, const auto& keys) {
    for (const auto& key : keys) {
      RETURN_IF_ERROR(
          Statement(db_, &statements_,
                    absl::StrCat("DELETE FROM ", table, " WHERE job_id = ? AND ", column, " = ?"))
              .Bind(job_id)
              .Bind(key)
              .Run());
    }
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(remove("ranks", "rank", changes.ranks.removed));
  RETURN_IF_ERROR(remove("checkpoints", "path", changes.checkpoints.removed));
  RETURN_IF_ERROR(remove("failures", "position", changes.failures.removed));
  RETURN_IF_ERROR(remove("commands", "number", changes.commands.removed));
  RETURN_IF_ERROR(remove("attempts", "attempt", changes.attempts.removed));
  return remove("trainability_changes", "version", changes.trainability_changes.removed);
}

}  // namespace muster::store
