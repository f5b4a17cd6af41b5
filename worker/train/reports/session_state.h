// The state of a session between two steps, apart from tensors: the position and the settings. A
// checkpoint stores this state. The session owns the object, and its parts read it. The sections
// say who changes each field.
#ifndef MUSTER_WORKER_TRAIN_REPORTS_SESSION_STATE_H_
#define MUSTER_WORKER_TRAIN_REPORTS_SESSION_STATE_H_

#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "common/manifest/manifest.h"
#include "common/manifest/sampling_record.h"
#include "common/manifest/validation_record.h"
#include "worker/checkpoint/saver.h"
#include "worker/data/sampler.h"

namespace muster::train {

struct SessionState {
  // ---- Changed by the session; `position` and `sampling` also by skip-data (skipping.h).
  const char* stage = "";
  int64_t step = 0;         // optimizer steps done
  data::Position position;  // of the sampler, after these steps
  // How these steps and the steps after them take samples from the data; empty in a session that
  // does not train.
  std::vector<manifest::SamplingRecord> sampling;
  // A validation pass must follow this step and has not run. A session that continues from here
  // runs the pass.
  bool validation_due = false;
  // Results of validation passes. A background thread that writes the best checkpoint may change
  // this field: wait for the thread first.
  manifest::ValidationRecord validations;

  // No fit stage is left, and the memory that only training needs is freed. Not in a checkpoint.
  bool training_over = false;

  // ---- Changed by commands.
  double learning_rate = 0;  // the rate that the job's schedule scales
  // The session stops because of a command, or because the job continues on other nodes.
  bool stopped = false;
  bool preempted = false;  // the job continues on other nodes
  // The newest commands that took effect, with their steps, in the order of their effects.
  std::deque<std::pair<int64_t, int64_t>> applied;

  // The failed commands of `applied`.
  std::vector<manifest::FailedCommand> failed;

  // Records that the command took effect at this step. Keeps the newest 256 commands. They include
  // all commands that a coordinator may not have heard of.
  void Applied(int64_t command);
  // Records, after Applied, that the command failed.
  void Failed(manifest::FailedCommand command) { failed.push_back(std::move(command)); }

  // Writes the state into a checkpoint of this step. `jobs_rate`: the learning rate of the job
  // file, which the checkpoint does not repeat.
  void Describe(double jobs_rate, checkpoint::SavePoint* point) const;
  // Continues from a checkpoint. Before the call, learning_rate is the rate of the job file.
  void ResumeFrom(const checkpoint::SavePoint& point);
};

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_REPORTS_SESSION_STATE_H_
