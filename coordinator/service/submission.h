// A job file that a client submits: its problems, and the values that the core gets from it.
#ifndef MUSTER_COORDINATOR_SERVICE_SUBMISSION_H_
#define MUSTER_COORDINATOR_SERVICE_SUBMISSION_H_

#include "absl/status/status.h"
#include "coordinator/cluster/cluster.h"
#include "coordinator/cluster/event.h"
#include "coordinator/jobs/job.h"
#include "coordinator/membership/timing.h"
#include "proto/muster/v1/error.pb.h"
#include "proto/muster/v1/job_service.pb.h"
#include "proto/muster/v1/job_spec.pb.h"

namespace muster::service {

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

// For a request without ProblemsOf. What jobfile::CheckOutputs finds becomes its `refusal`.
cluster::Submission ToSubmission(const v1::SubmitJobRequest& request);

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_SUBMISSION_H_
