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
#include "coordinator/service/secrets.h"
#include "coordinator/service/session.h"
#include "coordinator/service/transfers.h"
#include "coordinator/store/store.h"
#include "coordinator/webhook/sender.h"
#include "coordinator/webhook/settings.h"

namespace muster::service {

struct CoordinatorOptions {
  // The services themselves ask its `authorize` for each of their calls, so that their errors have
  // all details.
  ServerOptions server;
  Secrets secrets;
  membership::Timing timing;
  jobs::EndTimeouts end_timeouts;
  webhook::Settings webhooks;
  // The store's data is damaged, and the coordinator answers only UNAVAILABLE from now on: the
  // process should end. Runs on a thread of the coordinator; must not block.
  std::function<void(const absl::Status&)> on_failure = [](const absl::Status&) {};
  // Whether Observe may be called: then the coordinator counts its jobs by state all the time.
  bool observed = false;
};

// Whether a coordinator does its work, for programs that watch it. Thread-safe.
class Health {
 public:
  // What keeps clients from being served; OK: nothing.
  void SetReady(const absl::Status& status) {
    absl::MutexLock lock(&mutex_);
    ready_ = status;
  }
  absl::Status ready() const {
    absl::MutexLock lock(&mutex_);
    return ready_;
  }
  // The thread that changes the coordinator's state did something (SteadyNow).
  void Woke(absl::Time now) {
    absl::MutexLock lock(&mutex_);
    woke_ = now;
  }
  // When it last did; infinite past: never yet.
  absl::Time woke() const {
    absl::MutexLock lock(&mutex_);
    return woke_;
  }

 private:
  mutable absl::Mutex mutex_;
  absl::Status ready_ ABSL_GUARDED_BY(mutex_) = absl::UnavailableError("musterd is starting");
  absl::Time woke_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
};

// Thread-safe.
class Coordinator {
 public:
  // Continues from what is stored, and listens. `store` outlives the coordinator. Errors: the
  // store's and the server's.
  static absl::StatusOr<std::unique_ptr<Coordinator>> Start(const CoordinatorOptions& options,
                                                            store::Store* store);
  // Stops: ends all streams with UNAVAILABLE, answers what has arrived, and stores it.
  ~Coordinator();

  // Not an operator's drain (DrainNode): the agent of musterd's own node will be stopped
  // (LeaveNode): the jobs that run there save a checkpoint at their next step boundary, end there,
  // and continue later or on other nodes. This does not count as a failure. The jobs are told so
  // even while the store cannot be written. May be repeated.
  void Drain(const std::string& node);
  // Waits until no process is left on the drained node, but no longer than `timeout`. True if none
  // is left, or if the store has failed.
  bool AwaitDrained(absl::Duration timeout);
  // A number that changes while jobs on the drained node make progress.
  uint64_t DrainActivity();
  // Tells the processes that are left on the drained node to end now.
  void InterruptDrained();

  // For programs that watch musterd, with options.observed. UNAVAILABLE: what changes the
  // coordinator's state did not answer in time.
  absl::StatusOr<Observation> Observe(absl::Duration timeout);
  const Health& health() const { return health_; }

  // In the order of ServerOptions::listen.
  const std::vector<Address>& addresses() const { return server_->addresses(); }

 private:
  // All agents and workers.
  struct Peers {
    Secrets secrets;
    PeerStreams streams;
    // When the callers of all streams were last seen to be allowed to use them.
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
  // Sends the order to the peer, unless its stream has ended.
  template <typename Order>
  void Send(cluster::PeerStreamId id, const Order& order);
  void Deliver(const store::DeliveryRow& message);
  // These messages need not be sent any more. From any thread.
  void Settled(const std::vector<uint64_t>& numbers);
  // To the streams that follow the job.
  void TellChange(const std::string& job);
  void TellDeletion(const std::string& job);
  // Ends the streams that must not stay open.
  void LookAfterStreams(absl::Time now);
  void CheckDrained();
  void SayHealth();
  void CountAllJobs(const cluster::Cluster& cluster);

  // ---- Of the engine's thread.
  Peers peers_;
  Following following_;
  std::string draining_;
  // The store's data are damaged.
  bool failed_ = false;
  // Absent: nobody asks for it.
  std::optional<Census> census_;
  // Whether server_ is set and listens.
  bool listens_ = false;
  // The messages that came before webhooks_ was set; absent: it is set.
  std::optional<std::vector<store::DeliveryRow>> undelivered_ = std::vector<store::DeliveryRow>();

  Drained drained_;
  Health health_;
  Transfers transfers_;
  // It gives engine_ what it has done, and is stopped before it.
  std::unique_ptr<webhook::Senders> webhooks_;
  std::unique_ptr<Engine> engine_;
  std::vector<std::unique_ptr<grpc::Service>> services_;
  std::unique_ptr<Server> server_;
};

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_COORDINATOR_H_
