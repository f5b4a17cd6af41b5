// The tables of the SQLite store and their columns, each named once (columns.h).
// docs/internals/store.md describes their contents; migration.cc makes them.
#ifndef MUSTER_COORDINATOR_STORE_TABLES_H_
#define MUSTER_COORDINATOR_STORE_TABLES_H_

#include <cstdint>
#include <string>
#include <tuple>

#include "coordinator/jobs/life_row.h"
#include "coordinator/store/columns.h"
#include "coordinator/store/store.h"

namespace muster::store {

// ---- Jobs.

struct JobsTable {
  static constexpr char kName[] = "jobs";
  using Row = std::tuple<jobs::JobIdentity>;
  static void Columns(auto& column, auto& job) {
    column("id", job.id);
    column("number", job.number);
    column("spec", Blob{job.spec});
    column("world_size", job.plan.world_size);
    column("device", job.plan.device);
    column("threads", job.plan.threads);
    column("total_steps", job.plan.total_steps);
    column("max_restarts", job.plan.max_restarts);
    column("keep_checkpoints", job.plan.keep_checkpoints);
    column("priority", job.plan.priority);
    column("continue_when_cut_off", job.plan.continue_when_cut_off);
    column("no_progress_ns", Units{job.plan.no_progress, absl::Nanoseconds(1)});
    column("startup_ns", Units{job.plan.startup, absl::Nanoseconds(1)});
    column("time_limit", Units{job.plan.time_limit, absl::Microseconds(1)});
    column("create_time", job.create_time);
    column("submitter", job.submitter);
    column("job_file", job.job_file);
  }
};

struct JobLifeTable {
  static constexpr char kName[] = "job_life";
  using Row = std::tuple<std::string, jobs::LifeRow>;
  static void Columns(auto& column, auto& job_id, auto& life) {
    column("job_id", job_id);
    column("state", life.state);
    column("state_reason", life.state_reason);
    column("reason_code", life.reason_code);
    column("version_ceiling", life.version_ceiling);
    column("start_time", life.start_time);
    column("end_time", life.end_time);
    column("generation", life.generation);
    column("newest_generation_seen", life.newest_generation_seen);
    column("live", life.live);
    column("ending", life.ending);
    column("stop_requested", life.stop_requested);
    column("time_up", life.time_up);
    column("time_used", Units{life.time_used, absl::Microseconds(1)});
    column("live_since", life.since);
    column("paused", life.paused);
    column("halt_reason", life.halt_reason);
    column("from_scratch", life.from_scratch);
    column("start_from", life.start_from);
    column("ended_early", life.ended_early);
    column("interruption", life.interruption);
    column("preempted", life.preempted);
    column("attempt", life.attempt);
    column("restarts", life.restarts);
    column("restarts_used", life.restarts_used);
    column("node_faults", life.node_faults);
    column("start_failures", life.start_failures);
    column("failed_step", life.failed_step);
    column("started_step", life.started_step);
    column("not_before", life.not_before);
    column.Optional(life.rendezvous, [](auto& part, auto& rendezvous) {
      part("rendezvous_host", rendezvous.host);
      part("rendezvous_port", rendezvous.port);
    });
    column("exported_path", life.exported_path);
    column("export_granted", life.export_granted);
    column.Optional(life.save_failure, [](auto& part, auto& failure) {
      part("save_failure_step", failure.step);
      part("save_failure_message", failure.message);
      part("save_failure_time", failure.time);
      part("save_failure_count", failure.count);
    });
  }
};

struct JobProgressTable {
  static constexpr char kName[] = "job_progress";
  using Row = std::tuple<std::string, jobs::JobProgress>;
  static void Columns(auto& column, auto& job_id, auto& progress) {
    column("job_id", job_id);
    column("stage", progress.stage);
    column("step", progress.step);
    column("newest_step", Blob{progress.newest_step});
    column("newest_validation", Blob{progress.newest_validation});
    column("newest_test", Blob{progress.newest_test});
    column("fit_steps", progress.fit_steps);
    column("stages_done", progress.stages_done);
    column("stages_done_step", progress.stages_done_step);
    column("skipped_steps", progress.skipped_steps);
    column("log_sequence", progress.log_sequence);
  }
};

// ---- Lists of a job.

struct RanksTable {
  static constexpr char kName[] = "ranks";
  using Row = std::tuple<std::string, uint32_t, jobs::Rank>;
  static void Columns(auto& column, auto& job_id, auto& number, auto& rank) {
    column("job_id", job_id);
    column("rank", number);
    column("node", rank.node);
    column("slot", rank.slot);
    column("host", rank.host);
    column("agent_incarnation", rank.agent_incarnation);
    column("incarnation", rank.incarnation);
    column("pid", rank.pid);
    column("step", rank.step);
    column("acked_report", rank.acked_report);
    column("session_started", rank.session_started);
    column("finished", rank.finished);
    column("exited", rank.exited);
    column("attached", rank.attached);
    column("joined_since", rank.joined_since);
  }
};

struct CheckpointsTable {
  static constexpr char kName[] = "checkpoints";
  using Row = std::tuple<std::string, CheckpointRow>;
  static void Columns(auto& column, auto& job_id, auto& row) {
    column("job_id", job_id);
    column("path", row.checkpoint.path);
    column("step", row.checkpoint.step);
    column("generation", row.checkpoint.generation);
    column("create_time", row.checkpoint.create_time);
    column("bad_reason", row.checkpoint.bad_reason);
    column("dropped", row.dropped);
    column("origin", row.checkpoint.origin);
    column("origin_reason", row.checkpoint.origin_reason);
    column("bytes", row.checkpoint.bytes);
    column("stall_us", Units{row.checkpoint.stall, absl::Microseconds(1)});
    column("write_us", Units{row.checkpoint.write_time, absl::Microseconds(1)});
    column("best", row.checkpoint.best);
  }
};

struct FailuresTable {
  static constexpr char kName[] = "failures";
  using Row = std::tuple<std::string, uint64_t, jobs::FailureNote>;
  static void Columns(auto& column, auto& job_id, auto& position, auto& note) {
    column("job_id", job_id);
    column("position", position);
    column("generation", note.generation);
    column("rank", note.rank);
    column("node", note.node);
    column("step", note.step);
    column("kind", note.kind);
    column("permanent", note.permanent);
    column("reason", note.reason);
    column("log_tail", note.log_tail);
    column("code", note.code);
    column("collectives", Joined{note.collectives, '\n'});
  }
};

struct AttemptsTable {
  static constexpr char kName[] = "attempts";
  using Row = std::tuple<std::string, jobs::AttemptEnd>;
  static void Columns(auto& column, auto& job_id, auto& end) {
    column("job_id", job_id);
    column("attempt", end.attempt);
    column("state", end.state);
    column("state_reason", end.state_reason);
    column("reason_code", end.reason_code);
    column("end_time", end.end_time);
    column("step", end.step);
  }
};

struct SettingChangesTable {
  static constexpr char kName[] = "setting_changes";
  using Row = std::tuple<std::string, uint64_t, jobs::SettingChange>;
  static void Columns(auto& column, auto& job_id, auto& position, auto& change) {
    column("job_id", job_id);
    column("position", position);
    column("attempt", change.attempt);
    column("generation", change.generation);
    column("time", change.time);
    column("requester", change.requester);
    column("path", change.path);
    column("old_value", change.old_value);
    column("new_value", change.new_value);
  }
};

struct CommandsTable {
  static constexpr char kName[] = "commands";
  using Row = std::tuple<std::string, commands::Command>;
  static void Columns(auto& column, auto& job_id, auto& command) {
    column("job_id", job_id);
    column("number", command.number);
    column("kind", command.kind);
    column("applied_step", command.applied_step);
    column("contents", Blob{command.contents});
    column("at_step", command.at_step);
    column("target", command.target);
    column("requested_by", command.requested_by);
    column("requester", command.requester);
    column("create_time", command.create_time);
    column.Optional(command.outcome, [](auto& part, auto& outcome) {
      part("outcome_code", outcome.code);
      part("outcome_time", outcome.time);
      part("outcome_reason", outcome.reason);
      part("outcome_message", outcome.message);
      part("outcome_result", Blob{outcome.result});
    });
  }
};

struct TrainabilityTable {
  static constexpr char kName[] = "trainability";
  using Row = std::tuple<std::string, jobs::Trainability>;
  static void Columns(auto& column, auto& job_id, auto& trainability) {
    column("job_id", job_id);
    column("version", trainability.version);
    column("in_force", Blob{trainability.in_force});
    column("parameters", Blob{trainability.parameters});
  }
};

struct TrainabilityChangesTable {
  static constexpr char kName[] = "trainability_changes";
  using Row = std::tuple<std::string, jobs::TrainabilityChange>;
  static void Columns(auto& column, auto& job_id, auto& change) {
    column("job_id", job_id);
    column("version", change.version);
    column("generation", change.generation);
    column("time", change.time);
    column("command", change.command);
    column("contents", Blob{change.contents});
  }
};

struct EventsTable {
  static constexpr char kName[] = "events";
  using Row = std::tuple<EventRow>;
  static void Columns(auto& column, auto& row) {
    column("job_id", row.job_id);
    column("number", row.event.number);
    column("time", row.event.time);
    column("generation", row.event.generation);
    column("step", row.event.step);
    column("reason", row.event.reason);
    column("message", row.event.message);
  }
};

struct DeliveriesTable {
  static constexpr char kName[] = "deliveries";
  using Row = std::tuple<DeliveryRow>;
  static void Columns(auto& column, auto& row) {
    column("number", row.number);
    column("receiver", row.receiver);
    column("id", row.id);
    column("job_id", row.job_id);
    column("create_time", row.create_time);
    column("body", Blob{row.body});
  }
};

struct LogsTable {
  static constexpr char kName[] = "logs";
  using Row = std::tuple<LogRow>;
  static void Columns(auto& column, auto& line) {
    column("job_id", line.job_id);
    column("sequence", line.sequence);
    column("generation", line.generation);
    column("rank", line.rank);
    column("text", line.text);
  }
};

struct StepsTable {
  static constexpr char kName[] = "steps";
  using Row = std::tuple<MetricsRow>;
  static void Columns(auto& column, auto& row) {
    column("job_id", row.job_id);
    column("step", row.step);
    column("generation", row.generation);
    column("metrics", Blob{row.metrics});
  }
};

struct ValidationsTable {
  static constexpr char kName[] = "validations";
  // A row with the number of the validation pass within its job.
  using Row = std::tuple<MetricsRow, uint64_t>;
  static void Columns(auto& column, auto& row, auto& pass) {
    StepsTable::Columns(column, row);
    column("pass", pass);
  }
};

struct TestsTable : ValidationsTable {
  static constexpr char kName[] = "tests";
};

// ---- The cluster.

struct NodesTable {
  static constexpr char kName[] = "nodes";
  using Row = std::tuple<NodeRow>;
  static void Columns(auto& column, auto& row) {
    column("node", row.node);
    column("incarnation", row.incarnation);
    column("host", row.host);
    column("slots", row.slots);
  }
};

struct NodeMarksTable {
  static constexpr char kName[] = "node_marks";
  using Row = std::tuple<NodeMarkRow>;
  static void Columns(auto& column, auto& row) {
    column("node", row.node);
    column("cordoned", row.cordoned);
    column("drained", row.drained);
    column("reason", row.reason);
    column("drain_deadline", Units{row.drain_deadline, absl::Microseconds(1)});
    column("agent_id", row.agent_id);
    column("incarnations", Joined{row.incarnations, ' '});
    column("left_out_until", row.left_out.until);
    column("left_out_reason", row.left_out.reason);
    column("left_out_times", row.left_out.times);
  }
};

struct RequestsTable {
  static constexpr char kName[] = "requests";
  using Row = std::tuple<RequestRow>;
  static void Columns(auto& column, auto& row) {
    column("request_id", row.request_id);
    column("fingerprint", row.fingerprint);
    column("job_id", row.job_id);
    column("deleted_time", row.deleted_time);
    column("answer", Blob{row.answer});
  }
};

}  // namespace muster::store

#endif  // MUSTER_COORDINATOR_STORE_TABLES_H_
