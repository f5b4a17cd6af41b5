// A job that continues from another job's checkpoint (`start: {what: everything}`): the settings
// from the checkpoint, and whether any steps are left.
#ifndef MUSTER_COMMON_JOBFILE_CONTINUED_H_
#define MUSTER_COMMON_JOBFILE_CONTINUED_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "proto/muster/v1/error.pb.h"
#include "proto/muster/v1/job_spec.pb.h"

namespace muster::jobfile {

// Returns whether a job continues in this way, and trains.
bool GoesOn(const v1::JobSpec& file);

// The settings in a checkpoint, for a job that continues from the checkpoint.
struct CheckpointSettings {
  uint64_t step = 0;
  // The settings of jobspec::TrainingSettings, with the changes of commands. Absent: an older
  // program wrote the checkpoint.
  std::optional<v1::JobSpec> settings;
  // The learning rate that a command had set. Also in `settings`, if `settings` is set.
  std::optional<double> learning_rate = {};
};
// Reads `directory`/MANIFEST.json. Errors: those of manifest::Read; FAILED_PRECONDITION: not a
// regular file, or far too large.
absl::StatusOr<CheckpointSettings> ReadSettings(const std::string& directory);

struct Continued {
  // The job with the settings that it takes. Set only without problems.
  v1::JobSpec spec;
  v1::SpecProblems problems;
  // Sentences for people; may be empty.
  std::string taken;      // settings that are not the defaults, because the checkpoint has others
  std::string differing;  // settings with different values in the file and in the checkpoint
};
// `file`: a valid job that GoesOn, without its defaults. `checkpoint`: the name of the checkpoint
// with the settings, for messages. Pure.
Continued Continue(const v1::JobSpec& file, const CheckpointSettings& from,
                   const std::string& checkpoint);

// Calls ReadSettings and Continue; an error of ReadSettings becomes a problem. Returns other job
// files unchanged: those that do not continue, or that name a job instead of a directory.
Continued ContinueHere(const v1::JobSpec& file);

// The problem of a reader that cannot read the checkpoint.
v1::SpecProblems CannotRead(const std::string& checkpoint, const absl::Status& why);

}  // namespace muster::jobfile

#endif  // MUSTER_COMMON_JOBFILE_CONTINUED_H_
