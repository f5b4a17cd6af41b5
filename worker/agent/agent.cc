#include "worker/agent/agent.h"

#include <signal.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <map>
#include <optional>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "common/flags/tls.h"
#include "common/ids/ids.h"
#include "common/lease/lease.h"
#include "common/lease/lease_file.h"
#include "common/process/process.h"
#include "common/rpc/access.h"
#include "common/rpc/error.h"
#include "common/rpc/knock.h"
#include "common/rpc/rpc.h"
#include "common/slots/gpu_slot.h"
#include "common/slots/most_slots.h"
#include "common/status/status.h"
#include "common/steady/now.h"
#include "common/version/protocol.h"
#include "common/version/version.h"
#include "worker/agent/coordinator_stream.h"
#include "worker/agent/download_sender.h"
#include "worker/agent/downloads_folder.h"
#include "worker/agent/hanging_processes.h"
#include "worker/agent/identity.h"
#include "worker/agent/mailbox.h"
#include "worker/agent/outbox.h"
#include "worker/agent/spool_folder.h"
#include "worker/agent/spool_replay.h"
#include "worker/agent/wire.h"
#include "worker/agent/worker_command.h"
#include "worker/agent/worker_process.h"

namespace muster::agent {
namespace {

// Waits use a clock that stops while the machine sleeps, but the lease continues.
constexpr absl::Duration kLongestWait = absl::Seconds(1);

// How many attempts to attach are made within a lease at least, so that a lease does not end during
// a pause between two attempts.
constexpr int kAttemptsPerLease = 10;

// The time between two looks for files that nobody has fetched.
constexpr absl::Duration kTidy = absl::Minutes(1);

// The time between two looks at how much the workers have written.
constexpr absl::Duration kLook = absl::Seconds(1);

// True if the coordinator would give the same answer to another attempt.
bool IsFinal(const absl::Status& status) {
  // A certificate that is revoked may be renewed; one for another node never becomes right.
  return absl::IsFailedPrecondition(status) || absl::IsInvalidArgument(status) ||
         absl::IsAlreadyExists(status) || absl::IsUnimplemented(status) ||
         ErrorReason(status) == kNodeNotAllowed;
}

Ending ToEnding(const process::Exit& exit) {
  if (exit.signal != 0) return ExitSignal{exit.signal};
  return ExitCode{exit.code};
}

}  // namespace

// All members whose comment does not say otherwise belong to the loop's thread.
class Agent::Loop {
 public:
  Loop(const AgentOptions& options, std::unique_ptr<Identity> identity,
       std::shared_ptr<grpc::ChannelCredentials> credentials)
      : options_(options),
        identity_(std::move(identity)),
        credentials_(std::move(credentials)),
        incarnation_(NewUuid()),
        channel_(OpenChannel(options.coordinator, {}, credentials_)),
        jitter_(std::random_device()()),
        core_(options.core, SteadyNow()),
        spools_(options.spool),
        replay_(&spools_),
        downloads_(options.node, options.downloads, options.keep_downloads),
        sender_([coordinator = options.coordinator,
                 credentials = credentials_] { return OpenChannel(coordinator, {}, credentials); },
                &downloads_),
        hanging_(options.state_directory),
        logs_(options.logs),
        outbox_(&logs_),
        retry_(options.first_retry),
        connect_at_(SteadyNow()),
        knocker_(options.coordinator,
                 [this](absl::Time begun) {
                   mailbox_.Post([this, begun] { Handle(NobodyListens{begun}); });
                 }),
        thread_([this] { Run(); }) {}

  ~Loop() { thread_.join(); }

  // RequestStop and Wait are called from any thread.
  void RequestStop() {
    mailbox_.Post([this] { Handle(ShutdownRequested{}); });
  }
  absl::Status Wait() {
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(
        +[](std::optional<absl::Status>* why) { return why->has_value(); }, &why_));
    return *why_;
  }

 private:
  void Run() {
    if (const absl::Status opened = spools_.Open(); !opened.ok()) {
      spdlog::error("there is no folder for reports that cannot be sent: {}", Message(opened));
    }
    if (const absl::Status opened = downloads_.Open(); !opened.ok()) {
      spdlog::error("there is no folder for files that clients fetch: {}", Message(opened));
    }
    if (!options_.spool.empty()) {
      const std::string path = (std::filesystem::absolute(options_.spool) / "lease").string();
      if (const absl::Status opened = lease_file_.Open(path); !opened.ok()) {
        spdlog::error("workers cannot see how long the lease lasts: {}", Message(opened));
      }
    }
    for (const WorkerId& worker : spools_.List()) Handle(SpoolFound{worker});
    for (const HangingProcess& process : hanging_.Restore(SteadyNow())) {
      Handle(HangingFound{process.slot, process.worker});
    }
    while (!quit_.has_value()) {
      if (!core_.draining()) look_at_ = absl::InfiniteFuture();
      if (core_.draining() && look_at_ == absl::InfiniteFuture()) look_at_ = SteadyNow();
      const absl::Time due = std::min({core_.NextDeadline(), connect_at_, look_at_});
      if (auto task = mailbox_.Take(std::min(due - SteadyNow(), kLongestWait))) (*task)();
      // Also if there is always another task, because workers print without pause.
      if (SteadyNow() >= core_.NextDeadline()) Handle(Ticked{});
      if (SteadyNow() >= look_at_) {
        Handle(WritesSeen{BytesWritten()});
        look_at_ = SteadyNow() + kLook;
      }
      if (SteadyNow() >= replay_.read_again_at()) ReadAgain();
      if (SteadyNow() >= hanging_.look_at()) LookAtHanging();
      if (SteadyNow() >= tidy_at_) {
        downloads_.RemoveOld(absl::Now());
        tidy_at_ = SteadyNow() + kTidy;
      }
      if (!quit_.has_value() && SteadyNow() >= connect_at_) Connect();
      Pump();
    }
    stream_.reset();
    // These processes hang in the kernel, so nothing waits for their end.
    for (auto& [id, worker] : workers_) {
      if (hanging_.Contains(id)) (void)worker.release();
    }
    workers_.clear();
    absl::MutexLock lock(&mutex_);
    why_ = quit_;
  }

  void Handle(const Event& event) {
    for (const Effect& effect : core_.Handle(event, SteadyNow())) {
      std::visit([this](const auto& e) { Do(e); }, effect);
    }
    lease_file_.Write(core_.lease_end());
  }

  // How much all workers have written to disks, plus 1, because 0 means that nothing is known
  // (Drain::bytes).
  uint64_t BytesWritten() const {
    uint64_t bytes = 1;
    for (const auto& [id, worker] : workers_) bytes += worker->BytesWritten();
    return bytes;
  }

  // Looks at processes of former agents. The end of this agent's own processes is an event.
  void LookAtHanging() {
    for (const WorkerId& worker : hanging_.FindEnded(SteadyNow())) Handle(HangingGone{worker});
  }

  // ---- Effects ----

  // The UUID of a slot's GPU; empty for a slot of the CPU.
  std::string GpuOf(uint32_t slot) const {
    for (const Gpu& gpu : options_.gpus) {
      if (slot == kFirstGpuSlot + gpu.index) return gpu.uuid;
    }
    return "";
  }

  void Do(const Launch& launch) {
    const WorkerId& worker = launch.worker;
    std::map<std::string, std::string> environment = spools_.Environment(
        worker, options_.spool_limit / (options_.core.slots + options_.gpus.size()));
    environment.merge(downloads_.Environment());
    environment.merge(ToEnvironment(options_.tls));
    environment.merge(ToEnvironment(options_.plugins));
    if (!launch.continue_when_cut_off && !lease_file_.path().empty()) {
      environment[kLeaseFileVariable] = lease_file_.path();
    }
    auto spawned = spawner_.Spawn(ToSpawnOptions({.binary = options_.worker,
                                                  .coordinator = options_.coordinator,
                                                  .worker = worker,
                                                  .threads = launch.threads,
                                                  .gpu = GpuOf(launch.slot),
                                                  .secret = launch.secret,
                                                  .environment = std::move(environment),
                                                  .pass_environment = options_.pass_environment}));
    if (!spawned.ok()) {
      spdlog::error("{} cannot be started: {}", worker.ToString(), Message(spawned.status()));
      Handle(LaunchFailed{worker, Message(spawned.status())});
      return;
    }
    WorkerProcess::Events events;
    events.on_lines = [this, worker](std::vector<std::string> lines) {
      logs_.Push(worker, std::move(lines));
      if (!lines_announced_.exchange(true)) {
        mailbox_.Post([this] { lines_announced_ = false; });
      }
    };
    events.on_exit = [this, worker](process::Exit exit, std::string log_tail) {
      mailbox_.Post([this, worker, exit, log_tail] {
        spdlog::info("{} ended: {}", worker.ToString(), exit.ToString());
        workers_.erase(worker);
        downloads_.RemoveUnfinished(worker);
        Handle(Ended{.worker = worker,
                     .ending = ToEnding(exit),
                     .log_tail = log_tail,
                     .spooled = spools_.Has(worker)});
      });
    };
    const int64_t pid = (*spawned)->pid();
    spdlog::info("{} started on slot {}: pid {}", worker.ToString(), launch.slot, pid);
    workers_.emplace(worker,
                     std::make_unique<WorkerProcess>(*std::move(spawned), std::move(events)));
    Handle(Launched{worker, pid});
  }

  void Do(const SendSignal& effect) {
    const auto worker = workers_.find(effect.worker);
    if (worker == workers_.end()) return;
    spdlog::info("{}: {}", effect.worker.ToString(),
                 effect.signal == SIGKILL ? "killed: it did not end in time" : "asked to end");
    worker->second->Signal(effect.signal);
  }

  void Do(const SendHello& effect) {
    v1::AgentMessage message = ToMessage(effect);
    v1::AgentHello& hello = *message.mutable_hello();
    hello.set_node(options_.node);
    hello.set_incarnation(incarnation_);
    hello.set_slots(options_.core.slots);
    for (const Gpu& gpu : options_.gpus) *hello.add_gpus() = ToWire(gpu);
    hello.set_host(options_.host);
    hello.set_version(Version());
    hello.set_agent_id(identity_->id());
    hello.set_protocol(kAgentProtocol);
    outbox_.Push(std::move(message));
  }

  void Do(const SendHeartbeat& effect) { outbox_.PushHeartbeat(ToMessage(effect)); }

  void Do(const SendDraining& effect) {
    spdlog::info("stopping ({}): the jobs here have {} to save and to end", effect.reason,
                 absl::FormatDuration(effect.deadline));
    outbox_.Push(ToMessage(effect));
  }

  void Do(const SendQuarantine& effect) { outbox_.Push(ToMessage(effect)); }
  void Do(const Hangs& effect) { hanging_.Add(effect.slot, effect.worker); }
  void Do(const HangsNoMore& effect) { hanging_.Remove(effect.worker); }
  void Do(const SendStarted& effect) { outbox_.Push(ToMessage(effect)); }
  void Do(const SendExit& effect) {
    outbox_.PushAfterLogs(effect.worker.worker, ToMessage(effect));
  }

  void Do(const SendSpool& effect) {
    if (replay_.Begin(effect.worker, SteadyNow())) TellMore(effect.worker);
  }

  void ReadAgain() {
    for (const WorkerId& worker : replay_.TakeUnread()) Do(SendSpool{worker});
  }

  void Do(const DropStream&) {
    spdlog::warn("the coordinator at {} does not answer; trying another connection",
                 options_.coordinator);
    ++attempt_;  // what still comes from the old stream is ignored
    channel_ = OpenChannel(options_.coordinator, KeepAlive::Within(core_.lease()), credentials_);
    OnClosed(absl::UnavailableError("it does not answer"));
  }

  void Do(const LeaseOver& effect) {
    spdlog::warn(
        "no answer from the coordinator at {} for {}: the lease is over, the workers here are "
        "killed",
        options_.coordinator, absl::FormatDuration(effect.unanswered));
  }

  void Do(const Quit& effect) { quit_ = effect.why; }

  // ---- The stream ----

  void Connect() {
    connect_at_ = absl::InfiniteFuture();
    // The Hello must come first, and it says everything that matters. Effects that the core decided
    // before it learned of the end of the old stream may have added messages since then.
    outbox_.Clear();
    const uint64_t attempt = ++attempt_;
    // What still comes from an older stream is ignored.
    const auto post = [this, attempt](Mailbox::Task task) {
      mailbox_.Post([this, attempt, task = std::move(task)] {
        if (attempt == attempt_) task();
      });
    };
    CoordinatorStream::Events events;
    events.on_directive = [this, post](v1::AgentDirective directive) {
      post([this, directive = std::move(directive)] { OnDirective(directive); });
    };
    events.on_written = [this, post] { post([this] { writing_ = false; }); };
    events.on_closed = [this, post](absl::Status status) {
      post([this, status] { OnClosed(status); });
    };
    opened_ = SteadyNow();
    stream_ = CoordinatorStream::Open(channel_, std::move(events));
    Handle(Opened{});
  }

  // Sends the next message with reports that a worker left, or tells the core that all are sent.
  void TellMore(const WorkerId& worker) {
    if (std::optional<v1::AgentMessage> message = replay_.Next(worker); message.has_value()) {
      outbox_.PushAfterLogs(worker, *std::move(message));
    } else {
      Handle(SpoolTold{worker});
    }
  }

  void OnDirective(const v1::AgentDirective& directive) {
    if (directive.has_spooled_reports_ack()) {
      const WorkerId worker = FromWire(directive.spooled_reports_ack().worker());
      if (replay_.Replays(worker)) TellMore(worker);
      return;
    }
    if (directive.has_send_download()) return sender_.Send(directive.send_download());
    if (directive.has_remove_download()) {
      downloads_.Remove(directive.remove_download().job_id(),
                        directive.remove_download().command());
      return;
    }
    const std::optional<Event> event = ToEvent(directive);
    if (!event.has_value()) return;
    if (std::holds_alternative<Welcomed>(*event)) {
      spdlog::info("attached to the coordinator at {}", options_.coordinator);
      knocker_.Stop();
      welcomed_ = true;
      away_ = false;
      retry_ = options_.first_retry;
    }
    Handle(*event);
  }

  void OnClosed(const absl::Status& status) {
    stream_.reset();
    replay_.Reset();
    writing_ = welcomed_ = false;
    if (IsFinal(status)) {
      spdlog::error("the coordinator at {} refuses this agent: {}", options_.coordinator,
                    Message(status));
      Handle(Refused{status});
      return;
    }
    if (absl::IsPermissionDenied(status) || absl::IsUnauthenticated(status)) {
      // A certificate belongs to a connection: one that was renewed counts for another one.
      channel_ = OpenChannel(options_.coordinator, KeepAlive::Within(core_.lease()), credentials_);
    }
    knocker_.Begin(core_.lease() / kAttemptsPerLease);
    if (!away_) {
      spdlog::warn("no connection to the coordinator at {} ({}); trying again",
                   options_.coordinator, status.ok() ? "it closed the stream" : Message(status));
      away_ = true;
    }
    // The pauses are random, because all agents of a cluster lose their coordinator at the same
    // moment.
    const absl::Duration pause = std::min(retry_, core_.lease() / kAttemptsPerLease);
    connect_at_ = SteadyNow() + pause * std::uniform_real_distribution<>(0.5, 1.0)(jitter_);
    retry_ = std::min(2 * retry_, options_.last_retry);
    Handle(Broken{});
    if (ErrorReason(status) == kStoreTrouble) Handle(NobodyListens{opened_});
  }

  // Writes the next message if the stream can take one.
  void Pump() {
    if (stream_ == nullptr || writing_) return;
    std::optional<v1::AgentMessage> message = outbox_.Take(welcomed_);
    if (!message.has_value()) return;
    writing_ = true;
    stream_->Write(*std::move(message));
  }

  const AgentOptions options_;
  const std::unique_ptr<Identity> identity_;
  const std::shared_ptr<grpc::ChannelCredentials> credentials_;
  const std::string incarnation_;
  std::shared_ptr<grpc::Channel> channel_;
  Mailbox mailbox_;           // thread-safe
  process::Spawner spawner_;  // outlives the workers, which are killed when its thread ends
  std::minstd_rand jitter_;
  Core core_;
  SpoolFolder spools_;
  SpoolReplay replay_;
  DownloadsFolder downloads_;  // thread-safe once open
  DownloadSender sender_;
  absl::Time tidy_at_ = absl::InfinitePast();
  HangingProcesses hanging_;
  LeaseFile lease_file_;
  LogQueue logs_;  // thread-safe
  // A task that makes the loop look at logs_ is in the mailbox. Changed by any thread.
  std::atomic<bool> lines_announced_ = false;
  std::map<WorkerId, std::unique_ptr<WorkerProcess>> workers_;

  std::unique_ptr<CoordinatorStream> stream_;
  uint64_t attempt_ = 0;
  Outbox outbox_;
  bool writing_ = false;
  bool welcomed_ = false;
  bool away_ = false;
  absl::Duration retry_;
  absl::Time connect_at_;
  absl::Time opened_;
  Knocker knocker_;  // thread-safe
  // When to look at how much the workers have written.
  absl::Time look_at_ = absl::InfiniteFuture();

  std::optional<absl::Status> quit_;

  absl::Mutex mutex_;
  std::optional<absl::Status> why_ ABSL_GUARDED_BY(mutex_);

  std::thread thread_;
};

absl::StatusOr<std::unique_ptr<Agent>> Agent::Start(const AgentOptions& given) {
  AgentOptions options = given;
  options.core.gpus.clear();
  for (const Gpu& gpu : options.gpus) options.core.gpus.push_back(gpu.index);
  if (options.coordinator.empty())
    return absl::InvalidArgumentError("no coordinator address given");
  if (options.node.empty()) return absl::InvalidArgumentError("no node name given");
  if (options.core.slots == 0 && options.gpus.empty())
    return absl::InvalidArgumentError("an agent offers at least one slot or GPU");
  if (options.core.slots > kMostSlots || options.gpus.size() > kMostSlots) {
    return absl::InvalidArgumentError(absl::StrCat("found ", options.core.slots, " slots and ",
                                                   options.gpus.size(), " GPUs; expected at most ",
                                                   kMostSlots, " of each on a node"));
  }
  RETURN_IF_ERROR(CheckWorkerBinary(options.worker));
  ASSIGN_OR_RETURN(auto credentials, CredentialsFor(options.coordinator, options.tls));
  ASSIGN_OR_RETURN(auto identity, Identity::Take(options.state_directory));
  return std::unique_ptr<Agent>(
      new Agent(std::make_unique<Loop>(options, std::move(identity), std::move(credentials))));
}

Agent::Agent(std::unique_ptr<Loop> loop) : loop_(std::move(loop)) {}

Agent::~Agent() { RequestStop(); }

void Agent::RequestStop() { loop_->RequestStop(); }

absl::Status Agent::Wait() { return loop_->Wait(); }

}  // namespace muster::agent
