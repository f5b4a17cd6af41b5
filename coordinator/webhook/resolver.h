// Looks up the addresses of a host, within a limited time.
#ifndef MUSTER_COORDINATOR_WEBHOOK_RESOLVER_H_
#define MUSTER_COORDINATOR_WEBHOOK_RESOLVER_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace muster::webhook {

// The system's lookup (getaddrinfo) cannot be interrupted and may take minutes. So it runs on a
// thread of its own, which is left alone when the caller does not wait any more; there is at most
// one such thread for each Resolver.
class Resolver {
 public:
  explicit Resolver(const std::string& host);

  // In the order in which they should be tried, as text. Errors: UNAVAILABLE: the host is not
  // known; DEADLINE_EXCEEDED: no answer within `limit`; CANCELLED: aborted. One call at a time.
  absl::StatusOr<std::vector<std::string>> Resolve(absl::Duration limit);
  // Ends the call that is under way, and all later ones, at once. Thread-safe.
  void Abort();

 private:
  struct State;
  static absl::StatusOr<std::vector<std::string>> LookUp(const std::string& host);

  const std::string host_;
  // The thread has it, too.
  const std::shared_ptr<State> state_;
};

}  // namespace muster::webhook

#endif  // MUSTER_COORDINATOR_WEBHOOK_RESOLVER_H_
