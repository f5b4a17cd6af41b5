// Which workers know all settings of a job.
#ifndef MUSTER_COORDINATOR_SERVICE_WORKER_PROTOCOL_H_
#define MUSTER_COORDINATOR_SERVICE_WORKER_PROTOCOL_H_

#include <cstdint>

#include "coordinator/cluster/event.h"
#include "proto/muster/v1/job_spec.pb.h"

namespace muster::service {

// The oldest worker protocol that knows them; 0: any.
inline uint32_t WorkerProtocolOf(const v1::JobSpec& spec) {
  const bool begins_with_state =
      spec.has_start() || !spec.optimizer().state().empty() || spec.model().has_weights_from();
  return begins_with_state ? cluster::kWorkerProtocolOfOptimizerState : 0;
}

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_WORKER_PROTOCOL_H_
