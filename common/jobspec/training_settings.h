// The settings that decide how a job trains: what a checkpoint keeps of its job file, and what a
// job that goes on from it (`start: {what: everything}`) takes from there where its own file leaves
// it out. docs/concepts/stages.md lists them for users. Pure functions, thread-safe.
#ifndef MUSTER_COMMON_JOBSPEC_TRAINING_SETTINGS_H_
#define MUSTER_COMMON_JOBSPEC_TRAINING_SETTINGS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/muster/v1/job_spec.pb.h"

namespace muster::jobspec {

// Leaves out the end of a schedule where it is the end of the job's own stages: with other stages
// the default is another one.
void UnsetOwnEnd(v1::JobSpec* spec);

// The part of a job with its defaults that decides how it trains. The end of a schedule that is the
// end of the job's own stages is left out, because in another job it is the end of that job's.
v1::JobSpec TrainingSettings(const v1::JobSpec& whole);

// The same as JSON with the names of the job file, and back. What a newer program has added is
// ignored. INVALID_ARGUMENT: the text is no JSON of settings.
std::string TrainingSettingsJson(const v1::JobSpec& spec);
absl::StatusOr<v1::JobSpec> TrainingSettingsFromJson(const std::string& json);

// Gives the optimizer that the settings choose another learning rate. Nothing if they choose none.
void SetLearningRate(double rate, v1::JobSpec* settings);

struct TakenSettings {
  // The file, and what it leaves out, still without defaults.
  v1::JobSpec spec;
  // Settings whose value is another one than the default, because the checkpoint gives them:
  // "seed 7".
  std::vector<std::string> taken;
  // Settings for which the file has another value than the checkpoint:
  // "optimizer.adamw.lr: 0.002 in the job file, 0.5 in the checkpoint".
  std::vector<std::string> differing;
};
// `file`: a job without its defaults. `settings`: those of a checkpoint, with defaults. A list that
// is empty, and a number without presence that is 0, count as left out. The rules of `trainable`
// are compared and not taken: the ranks take those in force.
TakenSettings TakeLeftOut(const v1::JobSpec& file, const v1::JobSpec& settings);

}  // namespace muster::jobspec

#endif  // MUSTER_COMMON_JOBSPEC_TRAINING_SETTINGS_H_
