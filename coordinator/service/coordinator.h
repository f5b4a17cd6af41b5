// The whole coordinator in one object: engine, services and server.
#ifndef MUSTER_COORDINATOR_SERVICE_COORDINATOR_H_
#define MUSTER_COORDINATOR_SERVICE_COORDINATOR_H_

#include <grpcpp/impl/service_type.h>

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/rpc/address.h"
#include "common/rpc/rpc.h"
#include "common/steady/condition.h"
#include "coordinator/cluster/effect.h"
#include "coordinator/jobs/life.h"
#include "coordinator/membership/timing.h"
#include "coordinator/service/engine.h"
#include "coordinator/service/follow.h"
#include "coordinator/service/observation.h"
#include "coordinator/service/peer_stream.h"
#include "coordinator/service/secrets.h"
#include "coordinator/service/transfers.h"
#include "coordinator/store/store.h"
#include "coordinator/webhook/sender.h"
#include "coordinator/webhook/settings.h"

namespace muster::service {

struct CoordinatorOptions {
  // The server's options. Each service calls `authorize` itself, so that it can add details to the
  // error (IsRefusedByItsService).
  ServerOptions server;
  Secrets secrets;
  membership::Timing timing;
  jobs::EndTimeouts end_timeouts;
  webhook::Settings webhooks;
  // Handles damage of the store's data. From then on the coordinator answers only UNAVAILABLE, and
  // the process should end. Runs on a thread of the coordinator; must not block.
  std::function<void(const absl::Status&)> on_failure = [](const absl::Status&) {};
  // Whether Observe may be called. The coordinator then counts its jobs by state all the time.
  bool observed = false;
};

// The coordinator's health, for programs that watch it. Thread-safe.
class Health {
 public:
  // Sets why clients are not served; OK if they are served.
  void SetReady(const absl::Status& status) {
    absl::MutexLock lock(&mutex_);
    ready_ = status;
  }
  absl::Status ready() const {
    absl::MutexLock lock(&mutex_);
    return ready_;
  }
  // Records that the thread that changes the coordinator's state was active (SteadyNow).
  void Woke(absl::Time now) {
    absl::MutexLock lock(&mutex_);
    woke_ = now;
  }
  // The time of the last Woke(); infinite past if there was none.
  absl::Time woke() const {
    absl::MutexLock lock(&mutex_);
    return woke_;
  }

 private:
  mutable absl::Mutex mutex_;
  absl::Status ready_ ABSL_GUARDED_BY(mutex_) = absl::UnavailableError("musterd is starting");
  absl::Time woke_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
};

// A running coordinator. Thread-safe.
class Coordinator {
 public:
  // Continues from the stored state, and listens. `store` outlives the coordinator. Errors: the
  // store's and the server's.
  static absl::StatusOr<std::unique_ptr<Coordinator>> Start(const CoordinatorOptions& options,
                                                            store::Store* store);
  // Stops: stores what has arrived, then answers, and ends all streams with UNAVAILABLE.
  ~Coordinator();

  // Drains the node of musterd's own agent, which will be stopped (LeaveNode). An operator's drain
  // is DrainNode. The jobs on the node save a checkpoint at their next step boundary, end there,
  // and continue later or on other nodes. This does not count as a failure. The jobs are told even
  // while the store cannot be written. May be repeated.
  void Drain(const std::string& node);
  // Waits until no process is left on the drained node, at most `timeout`. True if none is left, or
  // if the store has failed.
  bool AwaitDrained(absl::Duration timeout);
  // Returns a number that changes while jobs on the drained node make progress.
  uint64_t DrainActivity();
  // Tells the processes that are left on the drained node to end now.
  void InterruptDrained();

  // Returns a snapshot for programs that watch musterd; needs options.observed. UNAVAILABLE if the
  // engine did not answer in time.
  absl::StatusOr<Observation> Observe(absl::Duration timeout);
  const Health& health() const { return health_; }

  // The server's addresses, in the order of ServerOptions::listen.
  const std::vector<Address>& addresses() const { return server_->addresses(); }

 private:
  // All agents and workers.
  struct Peers {
    Secrets secrets;
    PeerStreams streams;
    // The time of the last check that all streams' callers may still use them.
    absl::Time permits_seen = absl::InfinitePast();
  };
  // The streams of clients that follow jobs.
  struct Following {
    Followers jobs;
    Followers logs;
    Followers steps;

    std::array<Followers*, 3> all() { return {&jobs, &logs, &steps}; }
  };
  // Whether no process is left on the drained node. Thread-safe.
  class Drained {
   public:
    void Say();
    bool Await(absl::Duration timeout);

   private:
    absl::Mutex mutex_;
    SteadyCondition changed_;
    bool drained_ ABSL_GUARDED_BY(mutex_) = false;
  };

  Coordinator() = default;

  void CarryOut(const cluster::Effect& effect);
  // Sends the order to the peer, unless the peer's stream has ended.
  template <typename Order>
  void Send(cluster::PeerStreamId id, const Order& order);
  void Deliver(const store::DeliveryRow& message);
  // Records that these messages need not be sent any more. From any thread.
  void Settled(const std::vector<uint64_t>& numbers);
  // Tells the streams that follow the job.
  void TellChange(const std::string& job);
  void TellDeletion(const std::string& job);
  // Ends silent streams and streams whose certificate was revoked.
  void LookAfterStreams(absl::Time now);
  void CheckDrained();
  void SayHealth();
  void CountAllJobs(const cluster::Cluster& cluster);

  // ---- Used on the engine's thread only.
  Peers peers_;
  Following following_;
  std::string draining_;
  // Whether the store's data is damaged.
  bool failed_ = false;
  // The counts of jobs; absent unless options.observed.
  std::optional<JobStateIndex> job_states_;
  // Whether server_ is set and listens.
  bool listens_ = false;
  // The messages that came before webhooks_ was set; absent after that.
  std::optional<std::vector<store::DeliveryRow>> undelivered_ = std::vector<store::DeliveryRow>();

  Drained drained_;
  Health health_;
  Transfers transfers_;
  // The senders of webhooks. They report to engine_, and are stopped before it.
  std::unique_ptr<webhook::Senders> webhooks_;
  std::unique_ptr<Engine> engine_;
  std::vector<std::unique_ptr<grpc::Service>> services_;
  std::unique_ptr<Server> server_;
};

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_COORDINATOR_H_
