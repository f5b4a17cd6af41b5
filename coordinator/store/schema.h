// The migrations that make the tables of the SQLite store. docs/store.md describes the tables, and
// tables.h has their present columns.
#ifndef MUSTER_COORDINATOR_STORE_SCHEMA_H_
#define MUSTER_COORDINATOR_STORE_SCHEMA_H_

#include <iterator>

#include "coordinator/store/schema_14.h"

namespace muster::store {

// Run in order, they bring an empty file, or the file of an older musterd, to the newest schema:
// its `PRAGMA user_version` is the number of migrations that have run on it. A migration that was
// released is never changed: add another one. migration.h runs them, and lists the functions that
// they may use besides SQLite's own.
inline constexpr const char* kMigrations[] = {
    // ---- 1
    R"sql(
CREATE TABLE jobs (
  id TEXT PRIMARY KEY,
  number INTEGER NOT NULL UNIQUE,
  spec BLOB NOT NULL,
  world_size INTEGER NOT NULL,
  total_steps INTEGER NOT NULL,
  max_restarts INTEGER NOT NULL,
  keep_checkpoints INTEGER NOT NULL,
  state INTEGER NOT NULL,
  state_reason TEXT NOT NULL,
  version_ceiling INTEGER NOT NULL,
  create_time INTEGER,
  start_time INTEGER,
  end_time INTEGER,
  generation INTEGER NOT NULL,
  live INTEGER NOT NULL,
  ending INTEGER NOT NULL,
  stop_requested INTEGER NOT NULL,
  restarts INTEGER NOT NULL,
  rendezvous_host TEXT,
  rendezvous_port INTEGER,
  stage TEXT NOT NULL,
  step INTEGER NOT NULL,
  loss REAL,
  validation_loss REAL,
  validation_step INTEGER NOT NULL,
  exported_path TEXT NOT NULL,
  log_sequence INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE ranks (
  job_id TEXT NOT NULL,
  rank INTEGER NOT NULL,
  node TEXT NOT NULL,
  slot INTEGER NOT NULL,
  host TEXT NOT NULL,
  agent_incarnation TEXT NOT NULL,
  incarnation TEXT NOT NULL,
  pid INTEGER NOT NULL,
  step INTEGER NOT NULL,
  acked_report INTEGER NOT NULL,
  session_started INTEGER NOT NULL,
  finished INTEGER NOT NULL,
  exited INTEGER NOT NULL,
  PRIMARY KEY (job_id, rank)
) STRICT, WITHOUT ROWID;

CREATE TABLE checkpoints (
  job_id TEXT NOT NULL,
  path TEXT NOT NULL,
  step INTEGER NOT NULL,
  generation INTEGER NOT NULL,
  create_time INTEGER,
  bad_reason TEXT NOT NULL,
  dropped INTEGER NOT NULL,
  PRIMARY KEY (job_id, path)
) STRICT, WITHOUT ROWID;

CREATE TABLE failures (
  job_id TEXT NOT NULL,
  position INTEGER NOT NULL,
  generation INTEGER NOT NULL,
  rank INTEGER NOT NULL,
  node TEXT NOT NULL,
  step INTEGER NOT NULL,
  kind INTEGER NOT NULL,
  permanent INTEGER NOT NULL,
  reason TEXT NOT NULL,
  log_tail TEXT NOT NULL,
  PRIMARY KEY (job_id, position)
) STRICT, WITHOUT ROWID;

CREATE TABLE commands (
  job_id TEXT NOT NULL,
  number INTEGER NOT NULL,
  kind INTEGER NOT NULL,
  applied_step INTEGER,
  PRIMARY KEY (job_id, number)
) STRICT, WITHOUT ROWID;

CREATE TABLE nodes (
  node TEXT PRIMARY KEY,
  incarnation TEXT NOT NULL,
  host TEXT NOT NULL,
  slots INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE requests (
  request_id TEXT PRIMARY KEY,
  fingerprint TEXT NOT NULL,
  job_id TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE steps (
  job_id TEXT NOT NULL,
  step INTEGER NOT NULL,
  generation INTEGER NOT NULL,
  loss REAL,
  learning_rate REAL,
  grad_norm REAL,
  samples INTEGER NOT NULL,
  duration_ns INTEGER NOT NULL,
  PRIMARY KEY (job_id, step)
) STRICT, WITHOUT ROWID;

CREATE TABLE logs (
  job_id TEXT NOT NULL,
  sequence INTEGER NOT NULL,
  generation INTEGER NOT NULL,
  rank INTEGER NOT NULL,
  text TEXT NOT NULL,
  PRIMARY KEY (job_id, sequence)
) STRICT, WITHOUT ROWID;
)sql",
    // ---- 2: what is measured of each step, and validation passes.
    R"sql(
ALTER TABLE jobs ADD COLUMN perplexity REAL;
ALTER TABLE jobs ADD COLUMN grad_norm REAL;
ALTER TABLE jobs ADD COLUMN validation_accuracy REAL;
ALTER TABLE jobs ADD COLUMN validation_perplexity REAL;
ALTER TABLE jobs ADD COLUMN skipped_steps INTEGER NOT NULL DEFAULT 0;

ALTER TABLE steps ADD COLUMN perplexity REAL;
ALTER TABLE steps ADD COLUMN tokens INTEGER;
ALTER TABLE steps ADD COLUMN model_flops_per_second REAL;
ALTER TABLE steps ADD COLUMN skipped INTEGER NOT NULL DEFAULT 0;
ALTER TABLE steps ADD COLUMN loss_scale REAL;

CREATE TABLE validations (
  job_id TEXT NOT NULL,
  step INTEGER NOT NULL,
  pass INTEGER NOT NULL,
  generation INTEGER NOT NULL,
  loss REAL,
  accuracy REAL,
  perplexity REAL,
  samples INTEGER NOT NULL,
  PRIMARY KEY (job_id, step)
) STRICT, WITHOUT ROWID;
CREATE INDEX validations_by_pass ON validations (job_id, pass);
)sql",
    // ---- 3: priorities, deleted jobs.
    R"sql(
ALTER TABLE jobs ADD COLUMN priority INTEGER NOT NULL DEFAULT 0;
ALTER TABLE requests ADD COLUMN deleted_time INTEGER;
ALTER TABLE requests ADD COLUMN answer BLOB NOT NULL DEFAULT x'';
CREATE TABLE counters (
  name TEXT PRIMARY KEY,
  value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
)sql",
    // ---- 4: commands as operations; halted jobs; which parameters are trained.
    R"sql(
ALTER TABLE jobs ADD COLUMN paused INTEGER NOT NULL DEFAULT 0;
ALTER TABLE commands ADD COLUMN contents BLOB NOT NULL DEFAULT x'';
ALTER TABLE commands ADD COLUMN at_step INTEGER;
ALTER TABLE commands ADD COLUMN target INTEGER NOT NULL DEFAULT 0;
ALTER TABLE commands ADD COLUMN requested_by TEXT NOT NULL DEFAULT '';
ALTER TABLE commands ADD COLUMN create_time INTEGER;
ALTER TABLE commands ADD COLUMN outcome_code INTEGER;
ALTER TABLE commands ADD COLUMN outcome_time INTEGER;
ALTER TABLE commands ADD COLUMN outcome_reason TEXT;
ALTER TABLE commands ADD COLUMN outcome_message TEXT;
ALTER TABLE commands ADD COLUMN outcome_result BLOB;

CREATE TABLE trainability (
  job_id TEXT PRIMARY KEY,
  version INTEGER NOT NULL,
  in_force BLOB NOT NULL,
  parameters BLOB NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE trainability_changes (
  job_id TEXT NOT NULL,
  version INTEGER NOT NULL,
  generation INTEGER NOT NULL,
  time INTEGER,
  command INTEGER NOT NULL,
  contents BLOB NOT NULL,
  PRIMARY KEY (job_id, version)
) STRICT, WITHOUT ROWID;
)sql",
    // ---- 5: uneven inputs.
    R"sql(
ALTER TABLE jobs ADD COLUMN ended_early TEXT NOT NULL DEFAULT '';
ALTER TABLE ranks ADD COLUMN joined_since INTEGER NOT NULL DEFAULT 0;
)sql",
    // ---- 6: reasons for programs, events, saves that failed.
    R"sql(
ALTER TABLE jobs ADD COLUMN reason_code TEXT NOT NULL DEFAULT '';
ALTER TABLE jobs ADD COLUMN save_failure_step INTEGER;
ALTER TABLE jobs ADD COLUMN save_failure_message TEXT;
ALTER TABLE jobs ADD COLUMN save_failure_time INTEGER;
ALTER TABLE jobs ADD COLUMN save_failure_count INTEGER;
ALTER TABLE jobs ADD COLUMN export_granted TEXT NOT NULL DEFAULT '';
ALTER TABLE failures ADD COLUMN code TEXT NOT NULL DEFAULT '';

CREATE TABLE events (
  job_id TEXT NOT NULL,
  number INTEGER NOT NULL,
  time INTEGER,
  generation INTEGER NOT NULL,
  step INTEGER NOT NULL,
  reason TEXT NOT NULL,
  message TEXT NOT NULL,
  PRIMARY KEY (job_id, number)
) STRICT, WITHOUT ROWID;
)sql",
    // ---- 7: the watchdog's settings, and what a rank that hung was in.
    R"sql(
ALTER TABLE jobs ADD COLUMN no_progress_ns INTEGER;
ALTER TABLE jobs ADD COLUMN startup_ns INTEGER;
ALTER TABLE failures ADD COLUMN collectives TEXT NOT NULL DEFAULT '';
)sql",
    // ---- 8: found checkpoints, halted jobs, generations that a restored file does not know.
    R"sql(
ALTER TABLE jobs ADD COLUMN newest_generation_seen INTEGER NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN halt_reason TEXT NOT NULL DEFAULT '';
ALTER TABLE jobs ADD COLUMN from_scratch INTEGER NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN start_from TEXT NOT NULL DEFAULT '';
ALTER TABLE checkpoints ADD COLUMN origin INTEGER NOT NULL DEFAULT 1;
ALTER TABLE checkpoints ADD COLUMN origin_reason TEXT NOT NULL DEFAULT '';
)sql",
    // ---- 9: jobs that go on where they are cut off.
    R"sql(
ALTER TABLE jobs ADD COLUMN continue_when_cut_off INTEGER NOT NULL DEFAULT 0;
)sql",
    // ---- 10: planned ends, restarts that progress refills, nodes that are cordoned, drained or
    // left out. A process that trains has attached.
    R"sql(
ALTER TABLE jobs ADD COLUMN interruption TEXT NOT NULL DEFAULT '';
ALTER TABLE jobs ADD COLUMN preempted INTEGER NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN restarts_used INTEGER NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN node_faults INTEGER NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN failed_step INTEGER NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN started_step INTEGER NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN not_before INTEGER;
ALTER TABLE ranks ADD COLUMN attached INTEGER NOT NULL DEFAULT 0;
UPDATE jobs SET restarts_used = restarts;
UPDATE ranks SET attached = acked_report > 0;

CREATE TABLE node_marks (
  node TEXT PRIMARY KEY,
  cordoned INTEGER NOT NULL,
  drained INTEGER NOT NULL,
  reason TEXT NOT NULL,
  agent_id TEXT NOT NULL,
  incarnations TEXT NOT NULL,
  left_out_until INTEGER,
  left_out_reason TEXT NOT NULL,
  left_out_times INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
)sql",
    // ---- 11: attempts.
    R"sql(
ALTER TABLE jobs ADD COLUMN attempt INTEGER NOT NULL DEFAULT 1;
CREATE TABLE attempts (
  job_id TEXT NOT NULL,
  attempt INTEGER NOT NULL,
  state INTEGER NOT NULL,
  state_reason TEXT NOT NULL,
  reason_code TEXT NOT NULL,
  end_time INTEGER,
  step INTEGER NOT NULL,
  PRIMARY KEY (job_id, attempt)
) STRICT, WITHOUT ROWID;
)sql",
    // ---- 12: time limits.
    R"sql(
ALTER TABLE jobs ADD COLUMN time_limit INTEGER;
ALTER TABLE jobs ADD COLUMN time_used INTEGER NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN live_since INTEGER;
ALTER TABLE jobs ADD COLUMN time_up INTEGER NOT NULL DEFAULT 0;
)sql",
    // ---- 13: deadlines of drains, in microseconds.
    R"sql(
ALTER TABLE node_marks ADD COLUMN drain_deadline INTEGER;
)sql",
    // ---- 14: what is measured as its message; jobs in three parts.
    kMigration14,
    // ---- 15: what jobs compute on, with how many threads.
    R"sql(
ALTER TABLE jobs ADD COLUMN device INTEGER NOT NULL DEFAULT 1;
ALTER TABLE jobs ADD COLUMN threads INTEGER NOT NULL DEFAULT 1;
)sql",
    // ---- 16: how large checkpoints are, how long training waited for them, and how long it took
    // to write them, in microseconds.
    R"sql(
ALTER TABLE checkpoints ADD COLUMN bytes INTEGER NOT NULL DEFAULT 0;
ALTER TABLE checkpoints ADD COLUMN stall_us INTEGER NOT NULL DEFAULT 0;
ALTER TABLE checkpoints ADD COLUMN write_us INTEGER NOT NULL DEFAULT 0;
)sql",
    // ---- 17: tests; which stages are over, and how many steps those that count in epochs have;
    // which checkpoints are the best ones.
    R"sql(
CREATE TABLE tests (
  job_id TEXT NOT NULL,
  step INTEGER NOT NULL,
  pass INTEGER NOT NULL,
  generation INTEGER NOT NULL,
  metrics BLOB NOT NULL,
  PRIMARY KEY (job_id, step)
) STRICT, WITHOUT ROWID;
CREATE INDEX tests_by_pass ON tests (job_id, pass);
ALTER TABLE job_progress ADD COLUMN newest_test BLOB NOT NULL DEFAULT x'';
ALTER TABLE job_progress ADD COLUMN fit_steps INTEGER NOT NULL DEFAULT 0;
ALTER TABLE job_progress ADD COLUMN stages_done INTEGER NOT NULL DEFAULT 0;
ALTER TABLE job_progress ADD COLUMN stages_done_step INTEGER NOT NULL DEFAULT 0;
ALTER TABLE checkpoints ADD COLUMN best INTEGER NOT NULL DEFAULT 0;
)sql",
    // ---- 18: who asked, as the connection proved it.
    R"sql(
ALTER TABLE commands ADD COLUMN requester TEXT NOT NULL DEFAULT '';
ALTER TABLE jobs ADD COLUMN submitter TEXT NOT NULL DEFAULT '';
)sql",
    // ---- 19: messages that the receivers of webhooks have not accepted yet.
    R"sql(
CREATE TABLE deliveries (
  number INTEGER PRIMARY KEY,
  receiver TEXT NOT NULL,
  id TEXT NOT NULL,
  job_id TEXT NOT NULL,
  create_time INTEGER,
  body BLOB NOT NULL
) STRICT;
)sql",
    // ---- 21: retries with other settings; workers that do not start.
    R"sql(
CREATE TABLE setting_changes (
  job_id TEXT NOT NULL,
  position INTEGER NOT NULL,
  attempt INTEGER NOT NULL,
  generation INTEGER NOT NULL,
  time INTEGER,
  requester TEXT NOT NULL,
  path TEXT NOT NULL,
  old_value TEXT NOT NULL,
  new_value TEXT NOT NULL,
  PRIMARY KEY (job_id, position)
) STRICT, WITHOUT ROWID;
ALTER TABLE job_life ADD COLUMN start_failures INTEGER NOT NULL DEFAULT 0;
)sql",
};

// A file of a newer version is refused.
inline constexpr int kSchemaVersion = std::size(kMigrations);

}  // namespace muster::store

#endif  // MUSTER_COORDINATOR_STORE_SCHEMA_H_
