// The file that an operation wrote for a client: which it is, and who can send it. Pure.
#ifndef MUSTER_COORDINATOR_SERVICE_DOWNLOAD_H_
#define MUSTER_COORDINATOR_SERVICE_DOWNLOAD_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "coordinator/jobs/job.h"
#include "coordinator/membership/membership.h"

namespace muster::service {

struct DownloadFile {
  // On which it lies.
  std::string node;
  uint64_t bytes = 0;
};

// NOT_FOUND OPERATION_NOT_FOUND. FAILED_PRECONDITION NO_DOWNLOAD: it is no operation that writes a
// file for a client; OPERATION_NOT_DONE, OPERATION_FAILED.
absl::StatusOr<DownloadFile> DownloadOf(const jobs::Job& job, uint64_t number);

// The stream of the node's agent. UNAVAILABLE NODE_NOT_ATTACHED; FAILED_PRECONDITION AGENT_TOO_OLD.
absl::StatusOr<membership::PeerStreamId> AgentFor(const DownloadFile& file,
                                                  const membership::Membership& membership);

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_DOWNLOAD_H_
