// The settings that decide how a job trains, which its checkpoints keep. A job that continues from
// a checkpoint (`start: {what: everything}`) takes the settings that are absent in its own file.
// docs/concepts/stages.md lists the settings for users. Pure functions, thread-safe.
#ifndef MUSTER_COMMON_JOBSPEC_TRAINING_SETTINGS_H_
#define MUSTER_COMMON_JOBSPEC_TRAINING_SETTINGS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/muster/v1/job_spec.pb.h"

namespace muster::jobspec {

// Removes the end of a schedule if it is the end of the job's own stages: with other stages the
// default is different.
void UnsetOwnEnd(v1::JobSpec* spec);

// The part of a job (with its defaults) that decides how the job trains. Without the end of a
// schedule that is the end of the job's own stages: another job has another end.
v1::JobSpec TrainingSettings(const v1::JobSpec& whole);

// Converts the settings to JSON with the names of the job file, and back. Fields of a newer program
// are ignored. INVALID_ARGUMENT: the text is not JSON of settings.
std::string TrainingSettingsJson(const v1::JobSpec& spec);
absl::StatusOr<v1::JobSpec> TrainingSettingsFromJson(const std::string& json);

// Sets the learning rate of the optimizer in the settings. Does nothing without an optimizer.
void SetLearningRate(double rate, v1::JobSpec* settings);

struct TakenSettings {
  // The file with the settings that it takes, still without defaults.
  v1::JobSpec spec;
  // Settings that differ from the default, because the checkpoint gives their value: "seed 7".
  std::vector<std::string> taken;
  // Settings with different values in the file and in the checkpoint:
  // "optimizer.adamw.lr: 0.002 in the job file, 0.5 in the checkpoint".
  std::vector<std::string> differing;
};
// `file`: a job without its defaults. `settings`: those of a checkpoint, with defaults. An empty
// list, and a number without presence that is 0, count as absent. The rules of `trainable` are
// compared and not taken: the ranks take the rules in force.
TakenSettings TakeLeftOut(const v1::JobSpec& file, const v1::JobSpec& settings);

}  // namespace muster::jobspec

#endif  // MUSTER_COMMON_JOBSPEC_TRAINING_SETTINGS_H_
