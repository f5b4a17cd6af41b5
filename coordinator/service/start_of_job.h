// What a job that goes on from another job's checkpoint takes from there, before it is submitted.
#ifndef MUSTER_COORDINATOR_SERVICE_START_OF_JOB_H_
#define MUSTER_COORDINATOR_SERVICE_START_OF_JOB_H_

#include "common/jobfile/continued.h"
#include "coordinator/service/engine.h"
#include "proto/muster/v1/job_spec.pb.h"

namespace muster::service {

// jobfile::Continue for a valid job without its defaults. A job that it names is replaced by the
// directory of the checkpoint. Where this host cannot read that checkpoint, the settings with which
// the coordinator stored the other job count. Any other job comes back as it is. Waits for the
// engine and reads a file, so it must not run on the engine's thread. If the engine does not
// answer, the job comes back as it is: the engine refuses what follows, too.
jobfile::Continued ContinueFromStart(Engine* engine, const v1::JobSpec& file);

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_START_OF_JOB_H_
