// musterd seen from outside, over HTTP: its metrics for Prometheus, and whether it is well.
//
//   /metrics   all metrics, in Prometheus' text format; docs/how-to/monitoring.md lists them
//   /healthz   200 while the coordinator's thread works; 503 with the reason: musterd hangs
//   /readyz    200 while clients are served; 503 with the reason, also while it starts or stops
//
// Life cycle: Start before the coordinator, which is added when it has started; end it before the
// coordinator. Thread-safe.
#ifndef MUSTER_COORDINATOR_WEB_WATCHED_H_
#define MUSTER_COORDINATOR_WEB_WATCHED_H_

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/rpc/address.h"
#include "common/steady/now.h"
#include "coordinator/service/coordinator.h"
#include "coordinator/web/latencies.h"
#include "coordinator/web/listener.h"
#include "coordinator/web/site.h"

namespace muster::web {

struct WatchedOptions {
  // "HOST:PORT" or "unix:/PATH"; port 0 chooses a free one.
  std::string address;
  // Listen also on an address that other hosts reach: nothing protects what is told there.
  bool insecure = false;
  // Of musterd.
  std::string state_directory;
  // How long the coordinator's thread may do nothing before musterd counts as hanging. In normal
  // operation the thread wakes up several times per lease.
  absl::Duration patience = absl::Seconds(30);
  // How long that thread may take for the values of /metrics: other pages wait meanwhile.
  absl::Duration observe_timeout = absl::Seconds(2);
  // SteadyNow, or the time of a test.
  std::function<absl::Time()> clock = SteadyNow;
  // Added to by others; lives longer.
  const Latencies* latencies = nullptr;
};

class Watched {
 public:
  // Begins to answer. INVALID_ARGUMENT: the address is of neither form, or other hosts reach it and
  // `insecure` is not set. UNAVAILABLE: the port is in use.
  static absl::StatusOr<std::unique_ptr<Watched>> Start(const WatchedOptions& options);

  // The coordinator lives longer than this object.
  void Watch(service::Coordinator* coordinator) { coordinator_ = coordinator; }
  // From now on musterd is not ready any more.
  void Stopping() { stopping_ = true; }

  // With the real port.
  const Address& address() const { return listener_->address(); }

 private:
  explicit Watched(const WatchedOptions& options);
  Page Metrics();
  std::string MakeMetrics(const service::Observation& seen) const;
  absl::Status Healthy() const;
  absl::Status Ready() const;

  const WatchedOptions options_;
  std::atomic<service::Coordinator*> coordinator_ = nullptr;
  std::atomic<bool> stopping_ = false;

  // ---- Of the listener's thread.
  Site site_;
  Page metrics_;
  absl::Time metrics_made_ = absl::InfinitePast();

  std::unique_ptr<Listener> listener_;
};

}  // namespace muster::web

#endif  // MUSTER_COORDINATOR_WEB_WATCHED_H_
