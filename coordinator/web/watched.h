// The HTTP pages by which other programs watch musterd: metrics for Prometheus, and health.
//
//   /metrics   all metrics, in Prometheus' text format; docs/how-to/monitoring.md lists them
//   /healthz   200 while the coordinator's thread works; 503 with the reason: musterd hangs
//   /readyz    200 while clients are served; 503 with the reason, also while it starts or stops
//
// Life cycle: Start before the coordinator starts, Watch after it has started, and destroy before
// the coordinator. Thread-safe.
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
  // The address: "HOST:PORT" or "unix:/PATH". Port 0 chooses a free port.
  std::string address;
  // Whether to listen also on an address that other hosts can reach. The pages are not protected.
  bool insecure = false;
  // musterd's state directory.
  std::string state_directory;
  // The time without activity of the coordinator's thread after which musterd counts as hanging. In
  // normal operation the thread wakes up several times per lease.
  absl::Duration patience = absl::Seconds(30);
  // The longest time that the coordinator's thread may take for the values of /metrics. Other pages
  // wait meanwhile.
  absl::Duration observe_timeout = absl::Seconds(2);
  // The clock: SteadyNow, or the time of a test.
  std::function<absl::Time()> clock = SteadyNow;
  // The latencies. Other objects add to them; they outlive this object.
  const Latencies* latencies = nullptr;
};

class Watched {
 public:
  // Begins to answer. INVALID_ARGUMENT if the address has neither form, or if other hosts can reach
  // it and `insecure` is not set. UNAVAILABLE if the port is in use.
  static absl::StatusOr<std::unique_ptr<Watched>> Start(const WatchedOptions& options);

  // Sets the coordinator, which outlives this object.
  void Watch(service::Coordinator* coordinator) { coordinator_ = coordinator; }
  // Makes musterd count as not ready from now on.
  void Stopping() { stopping_ = true; }

  // The address with the real port.
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

  // ---- Used on the listener's thread only.
  Site site_;
  Page metrics_;
  absl::Time metrics_made_ = absl::InfinitePast();

  std::unique_ptr<Listener> listener_;
};

}  // namespace muster::web

#endif  // MUSTER_COORDINATOR_WEB_WATCHED_H_
