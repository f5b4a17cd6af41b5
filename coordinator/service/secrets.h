// The secrets that the coordinator gives to processes. They are computed from one key, which is a
// file of the state directory. So no secret must be stored, and all secrets survive a restart.
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
  // Uses a random key.
  Secrets();
  // Uses the key in the file `secret` of the directory. Makes the file if it is missing, and sets
  // its mode to 0600. FAILED_PRECONDITION: the file is no regular file, or belongs to another user,
  // who knows the key. DATA_LOSS: the file's content is no key. Other errors: the file system's.
  static absl::StatusOr<Secrets> Open(const std::string& state_directory);

  // Returns the secret by which a worker shows that its agent started it.
  std::string OfProcess(const cluster::WorkerId& worker) const;
  // Returns the secret that only the ranks of one generation know.
  std::string OfGeneration(const cluster::WorkerId& worker) const;

  // Checks the secret that a process gave. PERMISSION_DENIED if `secret` is not this worker's. A
  // program older than StartWorker.secret gives none, which is an error only if a secret is
  // `needed`.
  absl::Status Check(const cluster::WorkerId& worker, const std::string& secret, bool needed) const;

 private:
  explicit Secrets(std::string key) : key_(std::move(key)) {}

  std::string key_;
};

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_SECRETS_H_
