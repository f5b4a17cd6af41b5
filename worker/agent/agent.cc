#include "worker/agent/agent.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/ids/ids.h"
#include "common/lease/lease_file.h"
#include "common/process/process.h"
#include "common/rpc/access.h"
#include "common/rpc/error.h"
#include "common/rpc/rpc.h"
#include "common/slots/slots.h"
#include "common/status/status.h"
#include "common/steady/now.h"
#include "common/version/protocol.h"
#include "common/version/version.h"
#include "worker/agent/coordinator_link.h"
#include "worker/agent/downloads_folder.h"
#include "worker/agent/hanging_processes.h"
#include "worker/agent/identity.h"
#include "worker/agent/mailbox.h"
#include "worker/agent/spool_folder.h"
#include "worker/agent/wire.h"
#include "worker/agent/worker_command.h"
#include "worker/agent/worker_processes.h"

namespace muster::agent {
namespace {

// The longest wait at a time. Waits use a clock that stops while the machine sleeps, but the lease
// continues.
constexpr absl::Duration kLongestWait = absl::Seconds(1);

// The time between two looks for files that nobody has fetched.
constexpr absl::Duration kTidy = absl::Minutes(1);

// The time between two looks at the bytes that the workers have written.
constexpr absl::Duration kLook = absl::Seconds(1);

// True if the coordinator would give the same answer to another attempt.
bool IsFinal(const absl::Status& status) {
  // A revoked certificate may be renewed, but a certificate for another node never becomes right.
  return absl::IsFailedPrecondition(status) || absl::IsInvalidArgument(status) ||
         absl::IsAlreadyExists(status) || absl::IsUnimplemented(status) ||
         ErrorReason(status) == kNodeNotAllowed;
}

}  // namespace

// All members belong to the loop's thread unless their comment says otherwise.
class Agent::Loop {
 public:
  Loop(const AgentOptions& options, std::unique_ptr<Identity> identity,
       std::shared_ptr<grpc::ChannelCredentials> credentials)
      : options_(options),
        identity_(std::move(identity)),
        incarnation_(NewUuid()),
        core_(options.core, SteadyNow()),
        spools_{.folder = SpoolFolder(options.spool)},
        downloads_(options,
                   [coordinator = options.coordinator, credentials] {
                     return OpenChannel(coordinator, {}, credentials);
                   }),
        processes_(&options_, &mailbox_,
                   [this](const WorkerId& worker, const process::Exit& exit,
                          const std::string& log_tail) { OnExit(worker, exit, log_tail); }),
        link_({.coordinator = options.coordinator,
               .credentials = credentials,
               .first_retry = options.first_retry,
               .last_retry = options.last_retry},
              processes_.logs(), &mailbox_,
              {.on_directive =
                   [this](const v1::AgentDirective& directive) { OnDirective(directive); },
               .on_closed = [this](const absl::Status& status) { OnClosed(status); },
               .on_nobody_listens = [this](absl::Time begun) { Handle(NobodyListens{begun}); }}),
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
  // The reports that workers left.
  struct Spools {
    SpoolFolder folder;
    SpoolReplay replay{&folder};
  };
  // The files that clients fetch.
  struct Downloads {
    Downloads(const AgentOptions& options, DownloadSender::Connect connect)
        : folder(options.node, options.downloads, options.keep_downloads),
          sender(std::move(connect), &folder) {}

    DownloadsFolder folder;  // thread-safe once open
    DownloadSender sender;
    absl::Time tidy_at = absl::InfinitePast();
  };

  void Run() {
    if (const absl::Status opened = spools_.folder.Open(); !opened.ok()) {
      spdlog::error("there is no folder for reports that cannot be sent: {}", Message(opened));
    }
    if (const absl::Status opened = downloads_.folder.Open(); !opened.ok()) {
      spdlog::error("there is no folder for files that clients fetch: {}", Message(opened));
    }
    if (!options_.spool.empty()) {
      const std::string path = (std::filesystem::absolute(options_.spool) / "lease").string();
      if (const absl::Status opened = lease_file_.Open(path); !opened.ok()) {
        spdlog::error("workers cannot see how long the lease lasts: {}", Message(opened));
      }
    }
    for (const WorkerId& worker : spools_.folder.List()) Handle(SpoolFound{worker});
    HangingProcesses& hanging = processes_.hanging();
    for (const HangingProcess& process : hanging.Restore(SteadyNow())) {
      Handle(HangingFound{process.slot, process.worker});
    }
    while (!quit_.has_value()) {
      if (!core_.draining()) look_at_ = absl::InfiniteFuture();
      if (core_.draining() && look_at_ == absl::InfiniteFuture()) look_at_ = SteadyNow();
      const absl::Time due = std::min({core_.NextDeadline(), link_.connect_at(), look_at_});
      if (auto task = mailbox_.Take(std::min(due - SteadyNow(), kLongestWait))) (*task)();
      // The deadline is checked after every task, because workers that print without pause make
      // tasks without end.
      if (SteadyNow() >= core_.NextDeadline()) Handle(Ticked{});
      if (SteadyNow() >= look_at_) {
        Handle(WritesSeen{processes_.BytesWritten()});
        look_at_ = SteadyNow() + kLook;
      }
      if (SteadyNow() >= spools_.replay.read_again_at()) {
        for (const WorkerId& worker : spools_.replay.TakeUnread()) Do(SendSpool{worker});
      }
      if (SteadyNow() >= hanging.look_at()) {
        // The processes belong to former agents. The end of this agent's own processes is an event.
        for (const WorkerId& worker : hanging.FindEnded(SteadyNow())) Handle(HangingGone{worker});
      }
      if (SteadyNow() >= downloads_.tidy_at) {
        downloads_.folder.RemoveOld(absl::Now());
        downloads_.tidy_at = SteadyNow() + kTidy;
      }
      if (!quit_.has_value() && SteadyNow() >= link_.connect_at()) {
        link_.Connect();
        Handle(Opened{});
      }
      link_.Pump();
    }
    link_.Close();
    processes_.End();
    absl::MutexLock lock(&mutex_);
    why_ = quit_;
  }

  void Handle(const Event& event) {
    for (const Effect& effect : core_.Handle(event, SteadyNow())) {
      std::visit([this](const auto& e) { Do(e); }, effect);
    }
    lease_file_.Write(core_.lease_end());
  }

  // ---- Effects ----

  void Do(const Launch& launch) {
    std::map<std::string, std::string> environment = spools_.folder.Environment(
        launch.worker, options_.spool_limit / (options_.core.slots + options_.gpus.size()));
    environment.merge(downloads_.folder.Environment());
    if (!launch.continue_when_cut_off && !lease_file_.path().empty()) {
      environment[kLeaseFileVariable] = lease_file_.path();
    }
    const auto pid = processes_.Start(launch, std::move(environment));
    if (!pid.ok()) return Handle(LaunchFailed{launch.worker, Message(pid.status())});
    Handle(Launched{launch.worker, *pid});
  }

  void Do(const SendSignal& effect) { processes_.Signal(effect.worker, effect.signal); }

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
    link_.outbox().Push(std::move(message));
  }

  void Do(const SendHeartbeat& effect) { link_.outbox().PushHeartbeat(ToMessage(effect)); }

  void Do(const SendDraining& effect) {
    spdlog::info("stopping ({}): the jobs here have {} to save and to end", effect.reason,
                 absl::FormatDuration(effect.deadline));
    link_.outbox().Push(ToMessage(effect));
  }

  void Do(const SendQuarantine& effect) { link_.outbox().Push(ToMessage(effect)); }
  void Do(const Hangs& effect) { processes_.hanging().Add(effect.slot, effect.worker); }
  void Do(const HangsNoMore& effect) { processes_.hanging().Remove(effect.worker); }
  void Do(const SendStarted& effect) { link_.outbox().Push(ToMessage(effect)); }
  void Do(const SendExit& effect) {
    link_.outbox().PushAfterLogs(effect.worker.worker, ToMessage(effect));
  }

  void Do(const SendSpool& effect) {
    if (spools_.replay.Begin(effect.worker, SteadyNow())) TellMore(effect.worker);
  }

  void Do(const DropStream&) { link_.Drop(core_.lease()); }

  void Do(const LeaseOver& effect) {
    spdlog::warn(
        "no answer from the coordinator at {} for {}: the lease is over, the workers here are "
        "killed",
        options_.coordinator, absl::FormatDuration(effect.unanswered));
  }

  void Do(const Quit& effect) { quit_ = effect.why; }

  // ---- Events ----

  // Sends the next message with reports that a worker left, or tells the core that all are sent.
  void TellMore(const WorkerId& worker) {
    if (std::optional<v1::AgentMessage> message = spools_.replay.Next(worker);
        message.has_value()) {
      link_.outbox().PushAfterLogs(worker, *std::move(message));
    } else {
      Handle(SpoolTold{worker});
    }
  }

  void OnExit(const WorkerId& worker, const process::Exit& exit, const std::string& log_tail) {
    downloads_.folder.RemoveUnfinished(worker);
    const bool killed = exit.signal != 0;
    Handle(Ended{.worker = worker,
                 .ending = killed ? Ending(ExitSignal{exit.signal}) : ExitCode{exit.code},
                 .log_tail = log_tail,
                 .spooled = spools_.folder.Has(worker)});
  }

  void OnDirective(const v1::AgentDirective& directive) {
    if (directive.has_spooled_reports_ack()) {
      const WorkerId worker = FromWire(directive.spooled_reports_ack().worker());
      if (spools_.replay.Replays(worker)) TellMore(worker);
      return;
    }
    if (directive.has_send_download()) return downloads_.sender.Send(directive.send_download());
    if (directive.has_remove_download()) {
      downloads_.folder.Remove(directive.remove_download().job_id(),
                               directive.remove_download().command());
      return;
    }
    const std::optional<Event> event = ToEvent(directive);
    if (!event.has_value()) return;
    if (std::holds_alternative<Welcomed>(*event)) link_.BeWelcome();
    Handle(*event);
  }

  void OnClosed(const absl::Status& status) {
    spools_.replay.Reset();
    if (IsFinal(status)) {
      spdlog::error("the coordinator at {} refuses this agent: {}", options_.coordinator,
                    Message(status));
      Handle(Refused{status});
      return;
    }
    link_.PlanNext(status, core_.lease());
    Handle(Broken{});
    if (ErrorReason(status) == kStoreTrouble) Handle(NobodyListens{link_.opened()});
  }

  const AgentOptions options_;
  const std::unique_ptr<Identity> identity_;
  const std::string incarnation_;
  Mailbox mailbox_;  // thread-safe
  Core core_;
  Spools spools_;
  Downloads downloads_;
  LeaseFile lease_file_;
  WorkerProcesses processes_;
  CoordinatorLink link_;
  // The time of the next look at the bytes that the workers have written.
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
