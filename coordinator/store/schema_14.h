// The migration to version 14 (schema.h). The measurements of a step or of a validation pass are
// stored as one serialized message, so that a new metric needs no migration. A job is stored as
// three rows, each of which is written separately.
#ifndef MUSTER_COORDINATOR_STORE_SCHEMA_14_H_
#define MUSTER_COORDINATOR_STORE_SCHEMA_14_H_

namespace muster::store {

inline constexpr char kMigration14[] = R"sql(
ALTER TABLE steps RENAME TO steps_13;
CREATE TABLE steps (
  job_id TEXT NOT NULL,
  step INTEGER NOT NULL,
  generation INTEGER NOT NULL,
  metrics BLOB NOT NULL,
  PRIMARY KEY (job_id, step)
) STRICT, WITHOUT ROWID;
INSERT INTO steps (job_id, step, generation, metrics)
  SELECT job_id, step, generation,
    step_metrics(step, generation, ifnull(loss, 'nan'), ifnull(learning_rate, 'nan'), grad_norm,
                 samples, duration_ns, perplexity, tokens, model_flops_per_second, skipped,
                 loss_scale)
  FROM steps_13;
DROP TABLE steps_13;

DROP INDEX validations_by_pass;
ALTER TABLE validations RENAME TO validations_13;
CREATE TABLE validations (
  job_id TEXT NOT NULL,
  step INTEGER NOT NULL,
  pass INTEGER NOT NULL,
  generation INTEGER NOT NULL,
  metrics BLOB NOT NULL,
  PRIMARY KEY (job_id, step)
) STRICT, WITHOUT ROWID;
CREATE INDEX validations_by_pass ON validations (job_id, pass);
INSERT INTO validations (job_id, step, pass, generation, metrics)
  SELECT job_id, step, pass, generation,
    validation_metrics(step, generation, ifnull(loss, 'nan'), accuracy, perplexity, samples)
  FROM validations_13;

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
INSERT INTO job_life (job_id, state, state_reason, reason_code, version_ceiling, start_time,
    end_time, generation, newest_generation_seen, live, ending, stop_requested, time_up, time_used,
    live_since, paused, halt_reason, from_scratch, start_from, ended_early, interruption,
    preempted, attempt, restarts, restarts_used, node_faults, failed_step, started_step,
    not_before, rendezvous_host, rendezvous_port, exported_path, export_granted,
    save_failure_step, save_failure_message, save_failure_time, save_failure_count)
  SELECT id, state, state_reason, reason_code, version_ceiling, start_time, end_time, generation,
    newest_generation_seen, live, ending, stop_requested, time_up, time_used, live_since, paused,
    halt_reason, from_scratch, start_from, ended_early, interruption, preempted, attempt, restarts,
    restarts_used, node_faults, failed_step, started_step, not_before, rendezvous_host,
    rendezvous_port, exported_path, export_granted, save_failure_step, save_failure_message,
    save_failure_time, save_failure_count
  FROM jobs;

CREATE TABLE job_progress (
  job_id TEXT PRIMARY KEY,
  stage TEXT NOT NULL,
  step INTEGER NOT NULL,
  newest_step BLOB NOT NULL,
  newest_validation BLOB NOT NULL,
  skipped_steps INTEGER NOT NULL,
  log_sequence INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO job_progress (job_id, stage, step, newest_step, newest_validation, skipped_steps,
    log_sequence)
  SELECT id, stage, step,
    CASE WHEN coalesce(loss, perplexity, grad_norm) IS NULL THEN x'' ELSE
      step_metrics(step, generation, loss, NULL, grad_norm, 0, NULL, perplexity, NULL, NULL, 0,
                   NULL)
    END,
    CASE WHEN validation_loss IS NULL THEN x'' ELSE
      validation_metrics(validation_step, generation, validation_loss, validation_accuracy,
                         validation_perplexity,
                         (SELECT samples FROM validations_13
                          WHERE job_id = jobs.id AND step = jobs.validation_step))
    END,
    skipped_steps, log_sequence
  FROM jobs;
DROP TABLE validations_13;

ALTER TABLE jobs RENAME TO jobs_13;
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
  create_time INTEGER
) STRICT, WITHOUT ROWID;
INSERT INTO jobs (id, number, spec, world_size, total_steps, max_restarts, keep_checkpoints,
    priority, continue_when_cut_off, no_progress_ns, startup_ns, time_limit, create_time)
  SELECT id, number, spec, world_size, total_steps, max_restarts, keep_checkpoints, priority,
    continue_when_cut_off, no_progress_ns, startup_ns, time_limit, create_time
  FROM jobs_13;
DROP TABLE jobs_13;
)sql";

}  // namespace muster::store

#endif  // MUSTER_COORDINATOR_STORE_SCHEMA_14_H_
