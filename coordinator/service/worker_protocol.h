// What workers of the version before this one do not know (common/version/protocol.h).
#ifndef MUSTER_COORDINATOR_SERVICE_WORKER_PROTOCOL_H_
#define MUSTER_COORDINATOR_SERVICE_WORKER_PROTOCOL_H_

#include <cstdint>

#include "common/version/protocol.h"
#include "proto/muster/v1/job_spec.pb.h"

namespace muster::service {

// The oldest worker protocol that knows all settings of a job; 0: any that is served.
inline uint32_t WorkerProtocolOf(const v1::JobSpec& spec) {
  return spec.start().what() == v1::StartSpec::EVERYTHING ? kWorkerProtocol : 0;
}

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_WORKER_PROTOCOL_H_
