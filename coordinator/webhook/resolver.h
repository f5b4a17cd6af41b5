// Looks up the addresses of a host, within a limited time.
#ifndef MUSTER_COORDINATOR_WEBHOOK_RESOLVER_H_
#define MUSTER_COORDINATOR_WEBHOOK_RESOLVER_H_

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace muster::webhook {

// How a thread is started, so that a test can let it fail.
// Throws std::system_error if there cannot be one more thread, as std::thread does.
using StartThread = std::function<std::thread(std::function<void()> run)>;

inline std::thread NewThread(std::function<void()> run) { return std::thread(std::move(run)); }

// The addresses of a host, as text, in the order in which they should be tried. May take long.
using LookUp = std::function<absl::StatusOr<std::vector<std::string>>(const std::string& host)>;

// getaddrinfo(3). UNAVAILABLE: the host is not known.
absl::StatusOr<std::vector<std::string>> SystemLookUp(const std::string& host);

struct ResolverOptions {
  LookUp look_up = SystemLookUp;
  StartThread start_thread = NewThread;
};

// The system's lookup cannot be interrupted and may take minutes. So it runs on a thread of its
// own, which is left alone when the caller does not wait any more; there is at most one such thread
// for each Resolver. A host that is the number of an address needs no lookup.
class Resolver {
 public:
  explicit Resolver(const std::string& host, ResolverOptions options = {});

  // Errors: those of the lookup; DEADLINE_EXCEEDED: no answer within `limit`; CANCELLED: aborted;
  // RESOURCE_EXHAUSTED: there cannot be one more thread now. One call at a time.
  absl::StatusOr<std::vector<std::string>> Resolve(absl::Duration limit);
  // Ends the call that is under way, and all later ones, at once. Thread-safe.
  void Abort();

 private:
  struct State;

  const std::string host_;
  const ResolverOptions options_;
  // The thread has it, too.
  const std::shared_ptr<State> state_;
};

}  // namespace muster::webhook

#endif  // MUSTER_COORDINATOR_WEBHOOK_RESOLVER_H_
