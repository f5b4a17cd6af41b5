// The answered requests of clients. A repeated request changes nothing and gets the first answer.
// Pure: functions return the rows to store.
#ifndef MUSTER_COORDINATOR_CLUSTER_STATE_REQUESTS_H_
#define MUSTER_COORDINATOR_CLUSTER_STATE_REQUESTS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "coordinator/store/store.h"

namespace muster::cluster {

class Requests {
 public:
  // `most`: the number of requests that are kept.
  Requests(size_t most, const std::vector<store::RequestRow>& stored);

  // Returns the stored request with this id and fingerprint; null if no request had this id.
  // ALREADY_EXISTS REQUEST_ID_REUSED if a request with another fingerprint had this id.
  absl::StatusOr<const store::RequestRow*> Repeat(const std::string& request_id,
                                                  const std::string& fingerprint) const;
  // Returns the number of the command that the repeated request added to its job's log; absent if
  // the request is no repeat. Errors: as Repeat; NOT_FOUND JOB_NOT_FOUND if the job has been
  // deleted.
  absl::StatusOr<std::optional<uint64_t>> RepeatedCommand(const std::string& request_id,
                                                          const std::string& fingerprint) const;
  // RESOURCE_EXHAUSTED TOO_MANY_REQUEST_IDS. Always OK for an empty id.
  absl::Status CheckRoom(const std::string& request_id) const;

  // Keeps the answer. Returns the rows to store: none if the request has no id.
  std::vector<store::RequestRow> Remember(store::RequestRow row);
  // Keeps the requests of this deleted job for a day. Returns the rows to store.
  std::vector<store::RequestRow> JobDeleted(const std::string& job_id, absl::Time now);
  // Forgets the requests of jobs that were deleted more than a day ago. Returns the ids to remove.
  std::vector<std::string> ForgetOld(absl::Time now);

 private:
  const size_t most_;
  // The rows by request id.
  std::map<std::string, store::RequestRow> rows_;
  // The ids of requests of deleted jobs, by the time of the deletion.
  std::multimap<absl::Time, std::string> of_deleted_jobs_;
};

// Returns NOT_FOUND JOB_NOT_FOUND for a repeated request whose job has been deleted.
absl::Status JobOfRequestDeleted(const std::string& job_id);

}  // namespace muster::cluster

#endif  // MUSTER_COORDINATOR_CLUSTER_STATE_REQUESTS_H_
