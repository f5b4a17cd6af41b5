#include "coordinator/service/coordinator.h"

#include <spdlog/spdlog.h>

#include <chrono>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "common/ids/ids.h"
#include "common/status/status.h"
#include "common/steady/condition.h"
#include "coordinator/service/cluster_service.h"
#include "coordinator/service/control_service.h"
#include "coordinator/service/engine.h"
#include "coordinator/service/follow.h"
#include "coordinator/service/job_service.h"
#include "coordinator/service/operation_service.h"
#include "coordinator/service/peer_services.h"

namespace muster::service {
namespace {

// Time for streams to end before they are cut.
constexpr absl::Duration kShutdownGrace = absl::Seconds(2);

// Tells the time of day at the start, and from then on goes on steadily whatever is done to the
// system's clock: leases must not end because somebody set it.
std::function<absl::Time()> SteadyClock() {
  const absl::Time start = absl::Now();
  // Not SteadyNow: time in which the machine sleeps is none that a job used.
  const auto origin = std::chrono::steady_clock::now();
  return [=] { return start + absl::FromChrono(std::chrono::steady_clock::now() - origin); };
}

}  // namespace

absl::StatusOr<std::unique_ptr<Coordinator>> Coordinator::Start(const CoordinatorOptions& options,
                                                                store::Store* store) {
  auto self = std::unique_ptr<Coordinator>(new Coordinator());
  EngineOptions engine;
  engine.cluster.timing = options.timing;
  engine.cluster.patience = options.patience;
  engine.cluster.new_incarnation = NewUuid;
  engine.clock = SteadyClock();
  engine.out = [raw = self.get()](const cluster::Effect& effect) { raw->CarryOut(effect); };
  engine.on_failure = options.on_failure;
  engine.on_trouble = [raw = self.get()](const std::optional<StoreTrouble>& trouble) {
    raw->well_ = !trouble.has_value();
    raw->SayHealth();
    if (trouble.has_value()) raw->sessions_.EndUnanswered(RefusalOf(*trouble));
  };
  ASSIGN_OR_RETURN(self->engine_, Engine::Start(std::move(engine), store));
  self->engine_->Post([](cluster::Cluster& cluster, absl::Time now) { cluster.Judge(false, now); },
                      nullptr);
  self->job_service_ = std::make_unique<JobService>(self->engine_.get(), &self->jobs_, &self->logs_,
                                                    &self->steps_, options.timing);
  self->control_service_ = std::make_unique<ControlService>(self->engine_.get());
  self->operation_service_ = std::make_unique<OperationService>(self->engine_.get(), &self->jobs_);
  self->agent_service_ =
      std::make_unique<AgentService>(self->engine_.get(), &self->sessions_, &self->ids_);
  self->worker_service_ =
      std::make_unique<WorkerService>(self->engine_.get(), &self->sessions_, &self->ids_);
  self->cluster_service_ = std::make_unique<ClusterService>(self->engine_.get(), store);
  ServerOptions server = options.server;
  server.keepalive = KeepAlive::Within(options.timing.lease);
  ASSIGN_OR_RETURN(
      self->server_,
      Server::Start(server, {self->job_service_.get(), self->control_service_.get(),
                             self->operation_service_.get(), self->cluster_service_.get(),
                             self->agent_service_.get(), self->worker_service_.get()}));
  self->engine_->Post([](cluster::Cluster& cluster, absl::Time now) { cluster.Judge(true, now); },
                      nullptr);
  self->engine_->Aside([raw = self.get()](cluster::Cluster&, absl::Time) {
    raw->listens_ = true;
    raw->SayHealth();
  });
  return self;
}

void Coordinator::SayHealth() {
  if (!listens_) return;
  // Those of clients, which cannot change anything at present; agents and workers are served.
  for (const char* service : {"muster.v1.JobService", "muster.v1.ControlService",
                              "muster.v1.OperationService", "muster.v1.ClusterService"}) {
    server_->SetServing(service, well_);
  }
}

Coordinator::~Coordinator() {
  if (server_ != nullptr) {
    engine_->Aside([](cluster::Cluster& cluster, absl::Time now) { cluster.Judge(false, now); });
    // In its order, or at once where the store is in trouble.
    engine_->Read([this](const absl::Status&) {
      const absl::Status why = absl::UnavailableError("the coordinator is stopping");
      for (Followers* followers : {&jobs_, &logs_, &steps_}) followers->EndAll(why);
      sessions_.EndAll(why);
    });
    server_->Shutdown(kShutdownGrace);
  }
  if (engine_ != nullptr) engine_->Stop();
}

void Coordinator::Drain(const std::string& node) {
  engine_->Post([=](cluster::Cluster& cluster, absl::Time now) { cluster.Drain(node, now); },
                [=, this](const absl::Status& committed) {
                  if (!committed.ok()) return SayDrained();
                  draining_ = node;
                  CheckDrained();
                });
}

bool Coordinator::AwaitDrained(absl::Duration timeout) {
  absl::MutexLock lock(&drained_mutex_);
  return drained_changed_.Await(
      drained_mutex_, timeout,
      [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(drained_mutex_) { return drained_; });
}

uint64_t Coordinator::DrainActivity() {
  uint64_t activity = 0;
  absl::Notification known;
  // Also while the store is in trouble.
  engine_->Aside([&](const cluster::Cluster& cluster, absl::Time) {
    activity = cluster.ActivityOn(draining_);
    known.Notify();
  });
  known.WaitForNotification();
  return activity;
}

void Coordinator::InterruptDrained() {
  engine_->Post(
      [this](cluster::Cluster& cluster, absl::Time now) { cluster.Interrupt(draining_, now); },
      nullptr);
}

void Coordinator::CheckDrained() {
  if (!draining_.empty() && !engine_->cluster().HasProcesses(draining_)) SayDrained();
}

void Coordinator::SayDrained() {
  absl::MutexLock lock(&drained_mutex_);
  drained_ = true;
  drained_changed_.Changed();
}

void Coordinator::CarryOut(const cluster::Effect& effect) {
  if (const auto* agent = std::get_if<cluster::SendToAgent>(&effect)) {
    if (PeerStream* session = sessions_.Find(agent->session)) session->Send(agent->order);
  } else if (const auto* worker = std::get_if<cluster::SendToWorker>(&effect)) {
    if (PeerStream* session = sessions_.Find(worker->session)) session->Send(worker->order);
  } else if (const auto* close = std::get_if<cluster::CloseStream>(&effect)) {
    if (PeerStream* session = sessions_.Find(close->session)) session->End(close->why);
  } else if (const auto* job = std::get_if<cluster::JobChanged>(&effect)) {
    jobs_.Poke(job->job);
    CheckDrained();
    // Those who follow rows end with their job.
    const jobs::Job* found = engine_->cluster().Find(job->job);
    if (found != nullptr && found->terminal()) {
      logs_.Poke(job->job);
      steps_.Poke(job->job);
    }
  } else if (const auto* deleted = std::get_if<cluster::JobDeleted>(&effect)) {
    for (Followers* followers : {&jobs_, &logs_, &steps_}) followers->JobDeleted(deleted->job);
  } else if (const auto* logs = std::get_if<cluster::LogsChanged>(&effect)) {
    logs_.Poke(logs->job);
  } else if (const auto* steps = std::get_if<cluster::StepsChanged>(&effect)) {
    steps_.Poke(steps->job);
  } else if (const auto* say = std::get_if<cluster::Say>(&effect)) {
    spdlog::info("{}", say->text);
  }
}

}  // namespace muster::service
