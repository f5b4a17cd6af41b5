// The answered requests of clients. A repeated request changes nothing and gets the first answer.
// Pure: what must be stored is returned.
#ifndef MUSTER_COORDINATOR_CLUSTER_PARTS_REQUESTS_H_
#define MUSTER_COORDINATOR_CLUSTER_PARTS_REQUESTS_H_

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
  // `most`: how many are kept.
  Requests(size_t most, const std::vector<store::RequestRow>& stored);

  // The stored request with this id and fingerprint; null if no request had this id. ALREADY_EXISTS
  // REQUEST_ID_REUSED: a request with another fingerprint had this id.
  absl::StatusOr<const store::RequestRow*> Repeat(const std::string& request_id,
                                                  const std::string& fingerprint) const;
  // The number of the command that the repeated request has added to its job's log; absent if the
  // request is no repeat. Errors: as Repeat; NOT_FOUND JOB_NOT_FOUND: its job has been deleted.
  absl::StatusOr<std::optional<uint64_t>> RepeatedCommand(const std::string& request_id,
                                                          const std::string& fingerprint) const;
  // RESOURCE_EXHAUSTED TOO_MANY_REQUEST_IDS. Always OK for an empty id.
  absl::Status CheckRoom(const std::string& request_id) const;

  // Keeps the answer. Returns the rows to store: none for a request without an id.
  std::vector<store::RequestRow> Remember(store::RequestRow row);
  // The requests of this job are kept for a day from now. Returns the rows to store.
  std::vector<store::RequestRow> JobDeleted(const std::string& job_id, absl::Time now);
  // Forgets the requests of deleted jobs whose day is over. Returns the ids to remove.
  std::vector<std::string> ForgetOld(absl::Time now);

 private:
  const size_t most_;
  // By id.
  std::map<std::string, store::RequestRow> rows_;
  // Ids of requests of deleted jobs, by the time of the deletion.
  std::multimap<absl::Time, std::string> of_deleted_jobs_;
};

// NOT_FOUND JOB_NOT_FOUND, for a repeat of a request whose job has been deleted.
absl::Status JobOfRequestDeleted(const std::string& job_id);

}  // namespace muster::cluster

#endif  // MUSTER_COORDINATOR_CLUSTER_PARTS_REQUESTS_H_
