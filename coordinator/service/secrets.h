// The secrets that the coordinator gives to processes. They are made from one key, which is a file
// of the state directory, so that none of them must be stored and all survive a restart.
#ifndef MUSTER_COORDINATOR_SERVICE_SECRETS_H_
#define MUSTER_COORDINATOR_SERVICE_SECRETS_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/cluster/event.h"

namespace muster::service {

class Secrets {
 public:
  // With a key that nobody knows.
  Secrets();
  // With the key in the file `secret` of the directory, which is made if it is missing, and gets
  // the mode 0600 if it has another one. FAILED_PRECONDITION: it is no regular file, or belongs to
  // another user, who knows the key. DATA_LOSS: there is something else in it. Other errors: the
  // file system's.
  static absl::StatusOr<Secrets> Open(const std::string& state_directory);

  // By which a worker shows that its agent started it.
  std::string OfProcess(const cluster::WorkerId& worker) const;
  // Which only the ranks of one generation know.
  std::string OfGeneration(const cluster::WorkerId& worker) const;

  // PERMISSION_DENIED: `secret`, which a process gave, is not that of this worker. A program of
  // before StartWorker.secret gives none, which is an error if it is `needed`.
  absl::Status Check(const cluster::WorkerId& worker, const std::string& secret, bool needed) const;

 private:
  explicit Secrets(std::string key) : key_(std::move(key)) {}

  std::string key_;
};

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_SECRETS_H_
