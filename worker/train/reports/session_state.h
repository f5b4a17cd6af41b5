// The state of a session between two steps, apart from tensors: its position and its settings, and
// how a checkpoint stores them. The session owns the object and its parts read it. The sections say
// who changes each field.
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
  data::Position position;  // of the sampler after these steps
  // How they were taken from the data, and how those that follow are; empty in a session that does
  // not train.
  std::vector<manifest::SamplingRecord> sampling;
  // A validation pass must follow this step and has not run: the session that continues from here
  // runs it.
  bool validation_due = false;
  // If the best checkpoint is being written in the background, the thread that writes it may change
  // this: await that first.
  manifest::ValidationRecord validations;

  // No stage that trains is left, and what only training needs has been freed. Not in a checkpoint.
  bool training_over = false;

  // ---- Changed by commands.
  double learning_rate = 0;  // what the job's schedule scales
  // The session stops, by a command or because the job continues on other nodes.
  bool stopped = false;
  bool preempted = false;  // the job continues on other nodes
  // The newest commands that took effect, with their steps, in the order in which they took effect.
  std::deque<std::pair<int64_t, int64_t>> applied;

  // Those of them that failed.
  std::vector<manifest::FailedCommand> failed;

  // Records that the command took effect at this step. Keeps the newest 256 commands, which include
  // those of which a coordinator has not heard.
  void Applied(int64_t command);
  // Records in addition that the command failed.
  void Failed(manifest::FailedCommand command) { failed.push_back(std::move(command)); }

  // Writes this into a checkpoint of this step. `jobs_rate`: the learning rate of the job file,
  // which a checkpoint does not repeat.
  void Describe(double jobs_rate, checkpoint::SavePoint* point) const;
  // Continues from a checkpoint. Before the call, learning_rate is that of the job file.
  void ResumeFrom(const checkpoint::SavePoint& point);
};

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_REPORTS_SESSION_STATE_H_
