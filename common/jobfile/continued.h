// A job that goes on from another job's checkpoint (`start: {what: everything}`): the settings that
// it takes from there, and whether anything is left for it to train.
#ifndef MUSTER_COMMON_JOBFILE_CONTINUED_H_
#define MUSTER_COMMON_JOBFILE_CONTINUED_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "proto/muster/v1/error.pb.h"
#include "proto/muster/v1/job_spec.pb.h"

namespace muster::jobfile {

// Whether a job goes on so, and trains.
bool GoesOn(const v1::JobSpec& file);

// What a checkpoint says to a job that goes on from it.
struct CheckpointSettings {
  uint64_t step = 0;
  // As jobspec::TrainingSettings, with what commands had changed. Absent: an older program wrote
  // the checkpoint.
  std::optional<v1::JobSpec> settings;
  // The rate that a command had set. Also in `settings`, where those are known.
  std::optional<double> learning_rate = {};
};
// Reads `directory`/MANIFEST.json. Errors: those of manifest::Read, and FAILED_PRECONDITION if it
// is no regular file or far too large.
absl::StatusOr<CheckpointSettings> ReadSettings(const std::string& directory);

struct Continued {
  // With the settings that it takes; without problems only.
  v1::JobSpec spec;
  v1::SpecProblems problems;
  // Sentences for people; empty: there is nothing to say.
  std::string taken;      // which settings are not the defaults, because the checkpoint has others
  std::string differing;  // for which settings file and checkpoint have values that differ
};
// `file`: a valid job that GoesOn, without its defaults. `checkpoint`: where the settings come
// from, for messages. Pure.
Continued Continue(const v1::JobSpec& file, const CheckpointSettings& from,
                   const std::string& checkpoint);

// ReadSettings and Continue, with the error of the former as a problem. A job file that does not go
// on, or that names a job instead of a directory, is returned unchanged.
Continued ContinueHere(const v1::JobSpec& file);

// The problem of a reader that cannot read the checkpoint.
v1::SpecProblems CannotRead(const std::string& checkpoint, const absl::Status& why);

}  // namespace muster::jobfile

#endif  // MUSTER_COMMON_JOBFILE_CONTINUED_H_
