// What the workers of an agent can compute on.
#ifndef MUSTER_WORKER_AGENT_WORKER_DEVICES_H_
#define MUSTER_WORKER_AGENT_WORKER_DEVICES_H_

#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace muster::agent {

// OK: this muster-worker is built for GPUs. Otherwise the error says why none of its ranks can use
// one: FAILED_PRECONDITION: it is built for the CPU only; another code: it does not tell. Runs
// `PATH --devices`, which prints "cpu" or "cpu cuda", for at most `bound`.
absl::Status CheckTakesGpus(const std::string& worker, absl::Duration bound = absl::Minutes(1));

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_WORKER_DEVICES_H_
