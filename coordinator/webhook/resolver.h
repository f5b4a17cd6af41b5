// The lookup of a host's addresses within a limited time.
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

// Starts a thread. Throws std::system_error if no further thread can be started, like std::thread.
// A test can replace it by a function that fails.
using StartThread = std::function<std::thread(std::function<void()> run)>;

inline std::thread NewThread(std::function<void()> run) { return std::thread(std::move(run)); }

// Returns a host's addresses as text, in the order in which they should be tried. May take long.
using LookUp = std::function<absl::StatusOr<std::vector<std::string>>(const std::string& host)>;

// Looks up with getaddrinfo(3). UNAVAILABLE if the host is not known.
absl::StatusOr<std::vector<std::string>> SystemLookUp(const std::string& host);

struct ResolverOptions {
  LookUp look_up = SystemLookUp;
  StartThread start_thread = NewThread;
};

// Looks up one host. The system's lookup cannot be interrupted and may take minutes, so it runs on
// its own thread. When the caller stops waiting, the thread continues alone; each Resolver has at
// most one such thread. A host that is a numeric address needs no lookup.
class Resolver {
 public:
  explicit Resolver(const std::string& host, ResolverOptions options = {});

  // Errors: those of the lookup; DEADLINE_EXCEEDED: no answer within `limit`; CANCELLED: aborted;
  // RESOURCE_EXHAUSTED: no further thread can be started. One call at a time.
  absl::StatusOr<std::vector<std::string>> Resolve(absl::Duration limit);
  // Ends the current call and all later calls at once. Thread-safe.
  void Abort();

 private:
  struct State;

  const std::string host_;
  const ResolverOptions options_;
  // The state, which the thread shares.
  const std::shared_ptr<State> state_;
};

}  // namespace muster::webhook

#endif  // MUSTER_COORDINATOR_WEBHOOK_RESOLVER_H_
