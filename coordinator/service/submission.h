// A job file that a client submits: its problems, and the values that the core gets from it.
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

// FOLDER_NOT_ABSOLUTE.
absl::Status CheckFolder(const std::string& field, const std::string& folder);

// Reads a job file that a client without a reader of its own sends as text (JobService.ParseJob).
// The answer has what is wrong with the text. INVALID_ARGUMENT: FOLDER_NOT_ABSOLUTE;
// FIELD_TOO_LONG, because the settings would take too long (docs/reference/limits.md). Pure.
absl::StatusOr<v1::ParseJobResponse> ParseJob(const v1::ParseJobRequest& request);

// The problems of the job file, and settings that do not fit this coordinator's own settings.
v1::SpecProblems ProblemsOf(const v1::JobSpec& spec, const membership::Timing& timing);
// The same, and the problem of the job's id.
v1::SpecProblems ProblemsOf(const v1::SubmitJobRequest& request, const membership::Timing& timing);

// What the ranks compute on.
jobs::Device DeviceOf(const v1::JobSpec& spec);

// Replaces the job that start.checkpoint names, if it names one, by the directory of its
// checkpoint. A problem if there is no such checkpoint.
v1::SpecProblems ResolveStart(const cluster::Cluster& cluster, v1::JobSpec* spec);
// The same for a submission; the problem becomes its `refusal`.
void ResolveStart(const cluster::Cluster& cluster, cluster::Submission* submission);

// INVALID_ARGUMENT JOB_SPEC_INVALID with the first of the problems, as many as an error can carry.
absl::Status InvalidSpec(const v1::SpecProblems& all);

// The parts of a job file without problems, with its defaults, that the core uses.
jobs::Plan PlanOf(const v1::JobSpec& spec);

// For a request without ProblemsOf, whose job with what it takes from a checkpoint is `continued`.
// The problems there, or what jobfile::CheckOutputs finds, become its `refusal`.
cluster::Submission ToSubmission(const v1::SubmitJobRequest& request,
                                 const jobfile::Continued& continued);

// What a job that goes on from another job's checkpoint takes from there, before it is submitted:
// jobfile::Continue for a valid job without its defaults. A job that it names is replaced by the
// directory of the checkpoint. Where this host cannot read that checkpoint, the settings with which
// the coordinator stored the other job count. Any other job comes back as it is. Waits for the
// engine and reads a file, so it must not run on the engine's thread. If the engine does not
// answer, the job comes back as it is: the engine refuses what follows, too.
jobfile::Continued ContinueFromStart(Engine* engine, const v1::JobSpec& file);

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_SUBMISSION_H_
