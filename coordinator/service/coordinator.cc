#include "coordinator/service/coordinator.h"

#include <spdlog/spdlog.h>

#include <chrono>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "common/ids/ids.h"
#include "common/overloaded/overloaded.h"
#include "common/rpc/access.h"
#include "common/rpc/caller.h"
#include "common/rpc/caller_processor.h"
#include "common/status/status.h"
#include "common/steady/now.h"
#include "coordinator/limits/limits.h"
#include "coordinator/service/services.h"

namespace muster::service {
namespace {

// The time that streams have to end before they are cancelled.
constexpr absl::Duration kShutdownGrace = absl::Seconds(2);
// The time between two checks of the permits of open streams.
constexpr absl::Duration kPermitInterval = absl::Seconds(1);

// Returns a clock that starts at the time of day and then advances steadily even if somebody sets
// the system's clock. So a change of the system's clock ends no lease.
std::function<absl::Time()> SteadyClock() {
  const absl::Time start = absl::Now();
  // SteadyNow would also count the time in which the machine sleeps. A job does not use its
  // time_limit during this time.
  const auto origin = std::chrono::steady_clock::now();
  return [=] { return start + absl::FromChrono(std::chrono::steady_clock::now() - origin); };
}

}  // namespace

absl::StatusOr<std::unique_ptr<Coordinator>> Coordinator::Start(const CoordinatorOptions& options,
                                                                store::Store* store) {
  auto self = std::unique_ptr<Coordinator>(new Coordinator());
  self->peers_.secrets = options.secrets;
  EngineOptions engine;
  engine.cluster.timing = options.timing;
  engine.cluster.end_timeouts = options.end_timeouts;
  engine.cluster.new_incarnation = NewUuid;
  engine.cluster.webhooks = {.receivers = options.webhooks.receivers, .new_id = NewUuid};
  const auto clock = SteadyClock();
  engine.clock = clock;
  engine.out = [raw = self.get()](const cluster::Effect& effect) { raw->CarryOut(effect); };
  engine.on_failure = [raw = self.get(), told = options.on_failure](const absl::Status& why) {
    raw->health_.SetReady(why);
    raw->failed_ = true;
    told(why);
  };
  engine.on_wake = [raw = self.get()](absl::Time now) {
    raw->health_.Woke(SteadyNow());
    raw->LookAfterStreams(now);
  };
  engine.on_trouble = [raw = self.get()](const std::optional<StoreTrouble>& trouble) {
    raw->SayHealth();
    if (trouble.has_value()) raw->peers_.streams.EndUnanswered(RefusalOf(*trouble));
  };
  self->health_.Woke(SteadyNow());
  ASSIGN_OR_RETURN(self->engine_, Engine::Start(std::move(engine), store));
  self->engine_->Post([](cluster::Cluster& cluster,
                         absl::Time now) { cluster.Handle(cluster::JudgeLiveness{false}, now); },
                      nullptr);
  if (options.observed) {
    self->engine_->Aside([raw = self.get()](const cluster::Cluster& cluster, absl::Time) {
      raw->CountAllJobs(cluster);
    });
  }
  ASSIGN_OR_RETURN(self->webhooks_, webhook::Senders::Start(
                                        options.webhooks, clock,
                                        [raw = self.get()](const std::vector<uint64_t>& numbers) {
                                          raw->Settled(numbers);
                                        }));
  self->engine_->Aside([raw = self.get()](cluster::Cluster&, absl::Time) {
    for (const store::DeliveryRow& message : *raw->undelivered_) raw->webhooks_->Add(message);
    raw->undelivered_.reset();
  });
  const Authorizer& authorize = options.server.authorize;
  Following& following = self->following_;
  const ServiceParts parts{.engine = self->engine_.get(),
                           .store = store,
                           .jobs = &following.jobs,
                           .logs = &following.logs,
                           .steps = &following.steps,
                           .peers = &self->peers_.streams,
                           .transfers = &self->transfers_,
                           .secrets = &self->peers_.secrets,
                           .timing = options.timing,
                           .authorize = authorize};
  std::vector<grpc::Service*> services;
  for (const auto make : {NewJobService, NewControlService, NewOperationService, NewClusterService,
                          NewAgentService, NewWorkerService}) {
    services.push_back(self->services_.emplace_back(make(parts)).get());
  }
  ServerOptions server = options.server;
  server.keepalive = KeepAlive::Within(options.timing.lease);
  server.authorize = [authorize](const Caller& caller, const std::string& method) {
    return IsRefusedByItsService(method) ? absl::OkStatus() : authorize(caller, method);
  };
  ASSIGN_OR_RETURN(self->server_, Server::Start(server, services));
  self->engine_->Post([](cluster::Cluster& cluster,
                         absl::Time now) { cluster.Handle(cluster::JudgeLiveness{true}, now); },
                      nullptr);
  self->engine_->Aside([raw = self.get()](cluster::Cluster&, absl::Time) {
    raw->listens_ = true;
    raw->SayHealth();
  });
  return self;
}

void Coordinator::LookAfterStreams(absl::Time now) {
  peers_.streams.EndSilent(now);
  if (now < peers_.permits_seen + kPermitInterval) return;
  peers_.permits_seen = now;
  peers_.streams.EndRefused();
  for (Followers* followers : following_.all()) followers->EndRefused();
}

void Coordinator::SayHealth() {
  if (!listens_) return;
  const std::optional<StoreTrouble>& trouble = engine_->trouble();
  // Only the services for clients are set: agents and workers are served even while the store is in
  // trouble.
  for (const char* service : {"muster.v1.JobService", "muster.v1.ControlService",
                              "muster.v1.OperationService", "muster.v1.ClusterService"}) {
    server_->SetServing(service, !trouble.has_value());
  }
  if (!failed_) {
    health_.SetReady(trouble.has_value() ? absl::UnavailableError(absl::StrCat(
                                               "the store cannot be written: ", trouble->message,
                                               "; running jobs continue"))
                                         : absl::OkStatus());
  }
}

void Coordinator::CountAllJobs(const cluster::Cluster& cluster) {
  job_states_.emplace(kObservedLimits.ended_jobs);
  for (const auto& [number, id] : cluster.submitted()) job_states_->Saw(*cluster.Find(id));
}

absl::StatusOr<Observation> Coordinator::Observe(absl::Duration timeout) {
  struct Answer {
    absl::Mutex mutex;
    SteadyCondition changed;
    std::optional<Observation> observation ABSL_GUARDED_BY(mutex);
    bool wanted ABSL_GUARDED_BY(mutex) = true;
  };
  const auto answer = std::make_shared<Answer>();
  // Aside works even while the store is in trouble.
  engine_->Aside([this, answer](const cluster::Cluster& cluster, absl::Time now) {
    {
      absl::MutexLock lock(&answer->mutex);
      if (!answer->wanted) return;
    }
    Observation observation;
    if (job_states_.has_value()) {
      observation = service::Observe(cluster, *job_states_, kObservedLimits, now);
    }
    observation.store_writable = !engine_->trouble().has_value();
    absl::MutexLock lock(&answer->mutex);
    answer->observation = std::move(observation);
    answer->changed.Changed();
  });
  absl::MutexLock lock(&answer->mutex);
  const bool known = answer->changed.Await(
      answer->mutex, timeout, [&answer]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(answer->mutex) {
        return answer->observation.has_value();
      });
  if (!known) {
    // The engine may skip the work.
    answer->wanted = false;
    return absl::UnavailableError(
        absl::StrCat("the coordinator has not answered for ", absl::FormatDuration(timeout)));
  }
  return *std::move(answer->observation);
}

Coordinator::~Coordinator() {
  // Messages that are not accepted yet are stored, and sent after the next start.
  if (webhooks_ != nullptr) webhooks_->Stop();
  if (server_ != nullptr) {
    engine_->Aside([](cluster::Cluster& cluster, absl::Time now) {
      cluster.Handle(cluster::JudgeLiveness{false}, now);
    });
    // Read runs after everything posted before it, or at once if the store is in trouble.
    engine_->Read([this](const absl::Status&) {
      const absl::Status why = Stopping();
      for (Followers* followers : following_.all()) followers->EndAll(why);
      peers_.streams.EndAll(why);
      transfers_.EndAll(why);
    });
    server_->Shutdown(kShutdownGrace);
  }
  if (engine_ != nullptr) engine_->Stop();
}

void Coordinator::Drain(const std::string& node) {
  // Everything except these notices waits while the store cannot be written.
  engine_->Aside([node, this](const cluster::Cluster& cluster, absl::Time) {
    peers_.streams.SendNotices(*engine_, cluster, node, cluster::kMusterdStops);
  });
  engine_->Post(
      [=, this](cluster::Cluster& cluster, absl::Time now) {
        // InterruptDrained may be applied before this change is committed.
        draining_ = node;
        cluster.Handle(cluster::LeaveNode{node}, now);
      },
      [this](const absl::Status& committed) {
        if (!committed.ok()) return drained_.Say();
        CheckDrained();
      });
}

bool Coordinator::AwaitDrained(absl::Duration timeout) { return drained_.Await(timeout); }

uint64_t Coordinator::DrainActivity() {
  uint64_t activity = 0;
  absl::Notification known;
  // Aside works even while the store is in trouble.
  engine_->Aside([&](const cluster::Cluster& cluster, absl::Time) {
    activity = cluster.overview().ActivityOn(draining_);
    known.Notify();
  });
  known.WaitForNotification();
  return activity;
}

void Coordinator::InterruptDrained() {
  engine_->Post([this](cluster::Cluster& cluster,
                       absl::Time now) { cluster.Handle(cluster::InterruptNode{draining_}, now); },
                nullptr);
}

void Coordinator::CheckDrained() {
  if (draining_.empty()) return;
  if (engine_->cluster().overview().RanksOn(draining_).empty()) drained_.Say();
}

void Coordinator::Drained::Say() {
  absl::MutexLock lock(&mutex_);
  drained_ = true;
  changed_.Changed();
}

bool Coordinator::Drained::Await(absl::Duration timeout) {
  absl::MutexLock lock(&mutex_);
  return changed_.Await(mutex_, timeout,
                        [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return drained_; });
}

void Coordinator::CarryOut(const cluster::Effect& effect) {
  std::visit(
      Overloaded{
          [this](const cluster::SendToAgent& send) { Send(send.stream, send.order); },
          [this](const cluster::SendToWorker& send) { Send(send.stream, send.order); },
          [this](const cluster::CloseStream& close) {
            if (PeerStream* stream = peers_.streams.Find(close.stream)) stream->End(close.why);
          },
          [this](const cluster::JobChanged& changed) { TellChange(changed.job); },
          [this](const cluster::JobDeleted& deleted) { TellDeletion(deleted.job); },
          [this](const cluster::StepsChanged& changed) { following_.steps.Poke(changed.job); },
          [this](const cluster::LogsChanged& changed) { following_.logs.Poke(changed.job); },
          [](const cluster::LogMessage& say) { spdlog::info("{}", say.text); },
          [this](const cluster::SendWebhook& deliver) { Deliver(deliver.message); },
          [this](const cluster::WithdrawWebhook& withdraw) {
            if (!undelivered_.has_value()) webhooks_->Withdraw(withdraw.receiver, withdraw.number);
          },
      },
      effect);
}

template <typename Order>
void Coordinator::Send(cluster::PeerStreamId id, const Order& order) {
  if (PeerStream* stream = peers_.streams.Find(id)) stream->Send(order);
}

void Coordinator::Deliver(const store::DeliveryRow& message) {
  if (undelivered_.has_value()) {
    undelivered_->push_back(message);
  } else {
    webhooks_->Add(message);
  }
}

void Coordinator::Settled(const std::vector<uint64_t>& numbers) {
  const auto settle = [numbers](cluster::Cluster& cluster, absl::Time) {
    cluster.Settled(numbers);
  };
  // Settled messages are deleted rows: the deletion is stored even while the disk is full. It waits
  // while nothing can be stored. A second settling of a message changes nothing.
  engine_->RequestRoom(settle, [this, settle](const absl::Status& stored) {
    if (!stored.ok()) engine_->Post(settle, nullptr);
  });
}

void Coordinator::TellChange(const std::string& job) {
  following_.jobs.Poke(job);
  CheckDrained();
  const jobs::Job* found = engine_->cluster().Find(job);
  if (job_states_.has_value() && found != nullptr) job_states_->Saw(*found);
  // The streams that follow the job's logs and steps end with the job.
  if (found == nullptr || !found->terminal()) return;
  following_.logs.Poke(job);
  following_.steps.Poke(job);
}

void Coordinator::TellDeletion(const std::string& job) {
  for (Followers* followers : following_.all()) followers->JobDeleted(job);
  if (job_states_.has_value()) job_states_->Deleted(job);
}

}  // namespace muster::service
