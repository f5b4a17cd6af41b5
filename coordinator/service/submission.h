// A job file that a client submits: its problems, and the cluster's values from it.
#ifndef MUSTER_COORDINATOR_SERVICE_SUBMISSION_H_
#define MUSTER_COORDINATOR_SERVICE_SUBMISSION_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/jobfile/continued.h"
#include "coordinator/cluster/cluster.h"
#include "coordinator/cluster/event.h"
#include "coordinator/jobs/job.h"
#include "coordinator/membership/timing.h"
#include "coordinator/service/engine.h"
#include "proto/muster/v1/error.pb.h"
#include "proto/muster/v1/job_service.pb.h"
#include "proto/muster/v1/job_spec.pb.h"

namespace muster::service {

// Checks that the folder is an absolute path. FOLDER_NOT_ABSOLUTE.
absl::Status CheckFolder(const std::string& field, const std::string& folder);

// Reads a job file that a client without its own reader sends as text (JobService.ParseJob). The
// answer lists the problems of the text. INVALID_ARGUMENT FOLDER_NOT_ABSOLUTE; FIELD_TOO_LONG if
// the settings would take too long to read (docs/reference/limits.md). Pure.
absl::StatusOr<v1::ParseJobResponse> ParseJob(const v1::ParseJobRequest& request);

// Returns the problems of the job file, and settings that do not fit this coordinator's settings.
v1::SpecProblems ProblemsOf(const v1::JobSpec& spec, const membership::Timing& timing);
// Returns the same, and the problem of the job's id.
v1::SpecProblems ProblemsOf(const v1::SubmitJobRequest& request, const membership::Timing& timing);

// Returns the device that the ranks compute on.
jobs::Device DeviceOf(const v1::JobSpec& spec);

// Replaces a job that start.checkpoint names by the directory of the job's checkpoint. Returns a
// problem if there is no such checkpoint.
v1::SpecProblems ResolveStart(const cluster::Cluster& cluster, v1::JobSpec* spec);
// Does the same for a submission; a problem becomes its `refusal`.
void ResolveStart(const cluster::Cluster& cluster, cluster::Submission* submission);

// Returns INVALID_ARGUMENT JOB_SPEC_INVALID with the first problems, as many as an error can carry.
absl::Status InvalidSpec(const v1::SpecProblems& all);

// Returns the parts that the cluster uses of a job file without problems, with its defaults.
jobs::Plan PlanOf(const v1::JobSpec& spec);

// Makes the submission from a request without ProblemsOf. `continued`: the job with its settings
// from a checkpoint. Problems in `continued`, or found by jobfile::CheckOutputs, become the
// `refusal`.
cluster::Submission ToSubmission(const v1::SubmitJobRequest& request,
                                 const jobfile::Continued& continued);

// Adds the settings that a job takes from another job's checkpoint before it is submitted:
// jobfile::Continue for a valid job without its defaults. A job that start.checkpoint names is
// replaced by the checkpoint's directory. If this host cannot read the checkpoint, the settings
// that the coordinator stored for the other job count. Any other job is returned unchanged. Waits
// for the engine and reads a file, so it must not run on the engine's thread. If the engine does
// not answer, returns the job unchanged, because the engine then refuses the submission, too.
jobfile::Continued ContinueFromStart(Engine* engine, const v1::JobSpec& file);

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_SUBMISSION_H_
