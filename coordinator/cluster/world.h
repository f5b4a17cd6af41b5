// A cluster for tests, with a memory store, without threads, and with a clock that the test sets.
#ifndef MUSTER_COORDINATOR_CLUSTER_WORLD_H_
#define MUSTER_COORDINATOR_CLUSTER_WORLD_H_

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/cluster/cluster.h"
#include "coordinator/store/memory_store.h"
#include "coordinator/webhook/url.h"

namespace muster::cluster {

inline const absl::Time kStart = absl::FromUnixSeconds(1000);

// A cluster with a memory store. Each event is committed before its effects can be read.
class World {
 public:
  World() { Restart(); }

  // Acts like a coordinator that is killed and started again: only committed changes are left.
  void Restart() {
    Options options;
    options.timing.lease = absl::Seconds(10);
    options.limits = limits;
    for (const std::string& url : webhooks) {
      options.webhooks.receivers.push_back(*webhook::ParseUrl(url));
    }
    options.webhooks.new_id = [this] { return absl::StrCat("d", ++deliveries_); };
    options.new_incarnation = [this] { return absl::StrCat("i", ++incarnations_); };
    store::Image image = *store_.Load();
    if (tamper) tamper(image);
    cluster_ = std::make_unique<Cluster>(options, image, now());
  }
  void Commit() {
    ASSERT_TRUE(store_.Commit(cluster_->TakeBatch()).ok());
    for (Effect& effect : cluster_->TakeEffects()) effects.push_back(std::move(effect));
  }
  absl::Time now() const { return kStart + absl::Seconds(seconds); }
  Cluster& cluster() { return *cluster_; }
  store::MemoryStore& store() { return store_; }
  const jobs::Job& job(const std::string& id) { return *cluster_->Find(id); }

  void Submit(const std::string& id, uint32_t world_size, uint32_t max_restarts = 3,
              int32_t priority = 0) {
    Submit(id, {.world_size = world_size, .max_restarts = max_restarts, .priority = priority});
  }
  void Submit(const std::string& id, const jobs::Plan& plan) {
    ASSERT_TRUE(cluster_->Submit({.job_id = id, .name = id, .plan = plan}, now()).ok());
    Commit();
  }
  absl::Status Stop(const std::string& id, const std::string& request_id = "") {
    return Command(id, {.kind = v1::Operation::STOP}, request_id).status();
  }
  absl::StatusOr<uint64_t> Command(const std::string& id, const commands::Command& command,
                                   const std::string& request_id = "") {
    const auto number = cluster_->Command(RequestFor(id, command, request_id), now());
    Commit();
    return number;
  }
  absl::StatusOr<uint64_t> Cancel(const std::string& id, uint64_t target,
                                  const std::string& request_id = "") {
    const commands::Command command{.kind = v1::Operation::CANCEL, .target = target};
    const auto number = cluster_->Cancel(RequestFor(id, command, request_id), now());
    Commit();
    return number;
  }
  absl::StatusOr<std::string> Delete(const std::string& id, const std::string& request_id = "",
                                     const std::string& answer = "") {
    auto result = cluster_->Delete({id, request_id, "delete:" + id, answer}, now());
    Commit();
    return result;
  }
  absl::Status Attach(PeerStreamId stream, const AgentHello& hello) {
    const absl::Status status = cluster_->AttachAgent(stream, hello, now());
    Commit();
    return status;
  }
  absl::Status AttachWorker(PeerStreamId stream, const WorkerId& id) {
    const absl::Status status = cluster_->AttachWorker(stream, {.worker = id}, now());
    Commit();
    return status;
  }
  absl::Status Report(PeerStreamId stream, const cluster::Report& report) {
    const absl::Status status = cluster_->WorkerReported(stream, report, now());
    Commit();
    return status;
  }
  void Exit(PeerStreamId stream, const WorkerId& id, int signal) {
    WorkerExit exit{.worker = id};
    exit.exit = {.cause = jobs::Exit::Cause::kSignal, .number = signal};
    cluster_->Handle(stream, exit, now());
    Commit();
  }
  void FailToStart(PeerStreamId stream, const WorkerId& id) {
    WorkerExit exit{.worker = id};
    exit.exit = {.cause = jobs::Exit::Cause::kStartError, .start_error = "no such program"};
    exit.exit.why = jobs::Exit::Why::kNodeFault;
    cluster_->Handle(stream, exit, now());
    Commit();
  }
  // Starts a job of `world_size` ranks on a node 'a' with that number of slots. Session 1 is the
  // agent's, and sessions 10 + rank are the workers'. Each worker has reported once.
  void Start(const std::string& id, uint32_t world_size) {
    ASSERT_TRUE(
        Attach(1, {.node = "a", .incarnation = "a", .host = "a", .slots = world_size}).ok());
    Submit(id, world_size);
    for (uint32_t rank = 0; rank < world_size; ++rank) {
      ASSERT_TRUE(AttachWorker(10 + rank, job(id).Worker(rank)).ok());
      ASSERT_TRUE(Report(10 + rank, {.sequence = 1, .what = SessionStarted{}}).ok());
    }
  }
  // The coordinator's process stands still for this number of seconds.
  void StandStill(double duration) {
    seconds += duration;
    cluster_->Handle(CoordinatorPaused{absl::Seconds(duration)}, now());
  }
  // The store cannot be written for this number of seconds, and no peer can attach.
  void StoreFails(double duration) {
    seconds += duration;
    cluster_->Handle(StoreUnavailable{absl::Seconds(duration)}, now());
  }
  // Lets time pass while this agent sends heartbeats.
  void PassBeating(PeerStreamId agent, double duration) {
    for (const double end = seconds + duration; seconds < end;) {
      cluster_->AgentHeard(agent, now());
      Pass(1);
    }
  }
  // Lets time pass in steps of a second, with a tick of the cluster in each.
  void Pass(double duration) {
    for (const double end = seconds + duration; seconds < end;) {
      seconds += 1;
      cluster_->Handle(TimePassed{}, now());
      Commit();
    }
  }
  // The orders of one kind among `effects`, to agents or workers.
  template <typename Send, typename Order>
  std::vector<Order> Orders() {
    std::vector<Order> orders;
    for (const Effect& effect : effects) {
      const auto* send = std::get_if<Send>(&effect);
      const auto* order = send == nullptr ? nullptr : std::get_if<Order>(&send->order);
      if (order != nullptr) orders.push_back(*order);
    }
    return orders;
  }
  std::vector<StartWorker> Starts() { return Orders<SendToAgent, StartWorker>(); }
  std::vector<StopWorker> Stops() { return Orders<SendToAgent, StopWorker>(); }

  // The limits of the coordinator after the next Restart().
  Limits limits;
  // The URLs of webhooks after the next Restart().
  std::vector<std::string> webhooks;
  // Changes what a restarted coordinator loads from the store.
  std::function<void(store::Image&)> tamper;
  double seconds = 0;
  std::vector<Effect> effects;

 private:
  static CommandRequest RequestFor(const std::string& id, const commands::Command& command,
                                   const std::string& request_id) {
    return {.job_id = id,
            .request_id = request_id,
            .fingerprint = absl::StrCat(commands::Name(command.kind), ":", id, ":", command.target),
            .command = command};
  }

  store::MemoryStore store_;
  int incarnations_ = 0;
  int deliveries_ = 0;
  std::unique_ptr<Cluster> cluster_;
};

inline AgentHello Hello(const std::string& node, uint32_t slots,
                        const std::string& incarnation = "a") {
  return {.node = node, .incarnation = incarnation, .host = node, .slots = slots};
}

}  // namespace muster::cluster

#endif  // MUSTER_COORDINATOR_CLUSTER_WORLD_H_
