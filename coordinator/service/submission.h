// A job file that is handed in: what is wrong with it, and what the core gets of it.
#ifndef MUSTER_COORDINATOR_SERVICE_SUBMISSION_H_
#define MUSTER_COORDINATOR_SERVICE_SUBMISSION_H_

#include "absl/status/status.h"
#include "coordinator/cluster/event.h"
#include "coordinator/membership/timing.h"
#include "proto/muster/v1/error.pb.h"
#include "proto/muster/v1/job_service.pb.h"
#include "proto/muster/v1/job_spec.pb.h"

namespace muster::service {

// Those of the job file, and what does not fit how this coordinator runs.
v1::SpecProblems ProblemsOf(const v1::JobSpec& spec, const membership::Timing& timing);
// Also that of the job's id.
v1::SpecProblems ProblemsOf(const v1::SubmitJobRequest& request, const membership::Timing& timing);

// Where the export would replace a file of somebody else, as this machine sees it.
v1::SpecProblems ExportProblems(const v1::JobSpec& spec);

// INVALID_ARGUMENT JOB_SPEC_INVALID with the first of the problems, as many as an error can carry.
absl::Status InvalidSpec(const v1::SpecProblems& all);

// Of a request without ProblemsOf; its ExportProblems are the submission's `refusal`.
cluster::Submission ToSubmission(const v1::SubmitJobRequest& request);

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_SUBMISSION_H_
