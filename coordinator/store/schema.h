// The tables of the SQLite store: the tables of version 0.3.0, and the changes since.
// docs/internals/store.md describes the tables, and tables.h has their columns in the newest
// schema.
#ifndef MUSTER_COORDINATOR_STORE_SCHEMA_H_
#define MUSTER_COORDINATOR_STORE_SCHEMA_H_

#include <iterator>

namespace muster::store {

// `PRAGMA user_version` of a file that kBaseline made, which is a file of version 0.3.0. Files of
// older versions are refused.
inline constexpr int kBaselineVersion = 19;
inline constexpr char kBaseline[] = R"sql(
CREATE TABLE jobs (
  id TEXT PRIMARY KEY,
  number INTEGER NOT NULL UNIQUE,
  spec BLOB NOT NULL,
  world_size INTEGER NOT NULL,
  total_steps INTEGER NOT NULL,
  max_restarts INTEGER NOT NULL,
  keep_checkpoints INTEGER NOT NULL,
  priority INTEGER NOT NULL,
  continue_when_cut_off INTEGER NOT NULL,
  no_progress_ns INTEGER,
  startup_ns INTEGER,
  time_limit INTEGER,
  create_time INTEGER,
  device INTEGER NOT NULL DEFAULT 1,
  threads INTEGER NOT NULL DEFAULT 1,
  submitter TEXT NOT NULL DEFAULT ''
) STRICT, WITHOUT ROWID;
CREATE TABLE job_life (
  job_id TEXT PRIMARY KEY,
  state INTEGER NOT NULL,
  state_reason TEXT NOT NULL,
  reason_code TEXT NOT NULL,
  version_ceiling INTEGER NOT NULL,
  start_time INTEGER,
  end_time INTEGER,
  generation INTEGER NOT NULL,
  newest_generation_seen INTEGER NOT NULL,
  live INTEGER NOT NULL,
  ending INTEGER NOT NULL,
  stop_requested INTEGER NOT NULL,
  time_up INTEGER NOT NULL,
  time_used INTEGER NOT NULL,
  live_since INTEGER,
  paused INTEGER NOT NULL,
  halt_reason TEXT NOT NULL,
  from_scratch INTEGER NOT NULL,
  start_from TEXT NOT NULL,
  ended_early TEXT NOT NULL,
  interruption TEXT NOT NULL,
  preempted INTEGER NOT NULL,
  attempt INTEGER NOT NULL,
  restarts INTEGER NOT NULL,
  restarts_used INTEGER NOT NULL,
  node_faults INTEGER NOT NULL,
  failed_step INTEGER NOT NULL,
  started_step INTEGER NOT NULL,
  not_before INTEGER,
  rendezvous_host TEXT,
  rendezvous_port INTEGER,
  exported_path TEXT NOT NULL,
  export_granted TEXT NOT NULL,
  save_failure_step INTEGER,
  save_failure_message TEXT,
  save_failure_time INTEGER,
  save_failure_count INTEGER
) STRICT, WITHOUT ROWID;
CREATE TABLE job_progress (
  job_id TEXT PRIMARY KEY,
  stage TEXT NOT NULL,
  step INTEGER NOT NULL,
  newest_step BLOB NOT NULL,
  newest_validation BLOB NOT NULL,
  skipped_steps INTEGER NOT NULL,
  log_sequence INTEGER NOT NULL,
  newest_test BLOB NOT NULL DEFAULT x'',
  fit_steps INTEGER NOT NULL DEFAULT 0,
  stages_done INTEGER NOT NULL DEFAULT 0,
  stages_done_step INTEGER NOT NULL DEFAULT 0
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
  joined_since INTEGER NOT NULL DEFAULT 0,
  attached INTEGER NOT NULL DEFAULT 0,
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
  origin INTEGER NOT NULL DEFAULT 1,
  origin_reason TEXT NOT NULL DEFAULT '',
  bytes INTEGER NOT NULL DEFAULT 0,
  stall_us INTEGER NOT NULL DEFAULT 0,
  write_us INTEGER NOT NULL DEFAULT 0,
  best INTEGER NOT NULL DEFAULT 0,
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
  code TEXT NOT NULL DEFAULT '',
  collectives TEXT NOT NULL DEFAULT '',
  PRIMARY KEY (job_id, position)
) STRICT, WITHOUT ROWID;
CREATE TABLE commands (
  job_id TEXT NOT NULL,
  number INTEGER NOT NULL,
  kind INTEGER NOT NULL,
  applied_step INTEGER,
  contents BLOB NOT NULL DEFAULT x'',
  at_step INTEGER,
  target INTEGER NOT NULL DEFAULT 0,
  requested_by TEXT NOT NULL DEFAULT '',
  create_time INTEGER,
  outcome_code INTEGER,
  outcome_time INTEGER,
  outcome_reason TEXT,
  outcome_message TEXT,
  outcome_result BLOB,
  requester TEXT NOT NULL DEFAULT '',
  PRIMARY KEY (job_id, number)
) STRICT, WITHOUT ROWID;
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
CREATE TABLE requests (
  request_id TEXT PRIMARY KEY,
  fingerprint TEXT NOT NULL,
  job_id TEXT NOT NULL,
  deleted_time INTEGER,
  answer BLOB NOT NULL DEFAULT x''
) STRICT, WITHOUT ROWID;
CREATE TABLE counters (
  name TEXT PRIMARY KEY,
  value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE nodes (
  node TEXT PRIMARY KEY,
  incarnation TEXT NOT NULL,
  host TEXT NOT NULL,
  slots INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE node_marks (
  node TEXT PRIMARY KEY,
  cordoned INTEGER NOT NULL,
  drained INTEGER NOT NULL,
  reason TEXT NOT NULL,
  agent_id TEXT NOT NULL,
  incarnations TEXT NOT NULL,
  left_out_until INTEGER,
  left_out_reason TEXT NOT NULL,
  left_out_times INTEGER NOT NULL,
  drain_deadline INTEGER
) STRICT, WITHOUT ROWID;
CREATE TABLE steps (
  job_id TEXT NOT NULL,
  step INTEGER NOT NULL,
  generation INTEGER NOT NULL,
  metrics BLOB NOT NULL,
  PRIMARY KEY (job_id, step)
) STRICT, WITHOUT ROWID;
CREATE TABLE validations (
  job_id TEXT NOT NULL,
  step INTEGER NOT NULL,
  pass INTEGER NOT NULL,
  generation INTEGER NOT NULL,
  metrics BLOB NOT NULL,
  PRIMARY KEY (job_id, step)
) STRICT, WITHOUT ROWID;
CREATE INDEX validations_by_pass ON validations (job_id, pass);
CREATE TABLE tests (
  job_id TEXT NOT NULL,
  step INTEGER NOT NULL,
  pass INTEGER NOT NULL,
  generation INTEGER NOT NULL,
  metrics BLOB NOT NULL,
  PRIMARY KEY (job_id, step)
) STRICT, WITHOUT ROWID;
CREATE INDEX tests_by_pass ON tests (job_id, pass);
CREATE TABLE logs (
  job_id TEXT NOT NULL,
  sequence INTEGER NOT NULL,
  generation INTEGER NOT NULL,
  rank INTEGER NOT NULL,
  text TEXT NOT NULL,
  PRIMARY KEY (job_id, sequence)
) STRICT, WITHOUT ROWID;
CREATE TABLE deliveries (
  number INTEGER PRIMARY KEY,
  receiver TEXT NOT NULL,
  id TEXT NOT NULL,
  job_id TEXT NOT NULL,
  create_time INTEGER,
  body BLOB NOT NULL
) STRICT;
)sql";

// The migrations after the baseline. Run in order, they bring a file to the newest schema. A
// released migration is never changed: add another migration. The next version of Muster includes
// this list in the baseline (docs/how-to/upgrade.md).
inline constexpr const char* kMigrations[] = {
    // ---- 20: the job file that was submitted.
    R"sql(
ALTER TABLE jobs ADD COLUMN job_file TEXT NOT NULL DEFAULT '';
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

// The newest schema's version. A file of a newer version is refused.
inline constexpr int kSchemaVersion = kBaselineVersion + std::size(kMigrations);

}  // namespace muster::store

#endif  // MUSTER_COORDINATOR_STORE_SCHEMA_H_
