// musterd: the coordinator of a cluster. One process, one state directory.
#include <signal.h>
#include <spdlog/spdlog.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "common/certs/deny_list.h"
#include "common/files/private_directory.h"
#include "common/flags/flags.h"
#include "common/log/log.h"
#include "common/process/process.h"
#include "common/process/stop_signals.h"
#include "common/rpc/access.h"
#include "common/rpc/address.h"
#include "common/rpc/call_times.h"
#include "common/rpc/connections.h"
#include "common/rpc/reflection.h"
#include "common/slots/slots.h"
#include "common/status/status.h"
#include "common/steady/now.h"
#include "common/version/version.h"
#include "coordinator/launch/local_agent.h"
#include "coordinator/service/coordinator.h"
#include "coordinator/service/secrets.h"
#include "coordinator/store/sqlite_store.h"
#include "coordinator/store/store.h"
#include "coordinator/store/timed_store.h"
#include "coordinator/web/latencies.h"
#include "coordinator/web/watched.h"
#include "coordinator/webhook/settings.h"

namespace muster {
namespace {

constexpr int kUsageError = 2;
// The time for the local agent's workers to end after the last order to end.
constexpr absl::Duration kInterruptTimeout = absl::Seconds(5);
// The time by which the local node's deadline is delayed while its jobs make progress.
constexpr absl::Duration kStandstill = absl::Seconds(10);

struct Flags {
  std::string state;
  std::vector<std::string> listen;
  std::string port_file;
  // The address for monitoring programs; empty for none.
  std::string http;
  std::string http_port_file;
  bool http_insecure = false;
  // The file with the serial numbers of revoked certificates.
  std::string revoked;
  std::string agent;
  std::string lease = "10s";
  std::string autonomy = "12h";
  std::string drain_timeout = "5m";
  uint32_t local_slots = 0;
  std::vector<std::string> plugins;
  std::vector<std::string> pass_env;
  webhook::Flags webhook;
  store::StoreOptions store;
  service::CoordinatorOptions coordinator;
};

// Returns the agent's program beside this program, as installed; in a build tree it is in its own
// folder.
std::string DefaultAgent() {
  std::error_code error;
  const auto here = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  const auto beside = here / "muster-agent";
  const auto built = here.parent_path() / "worker" / "agent" / "muster-agent";
  return !std::filesystem::exists(beside, error) && std::filesystem::exists(built, error) ? built
                                                                                          : beside;
}

std::string GetEnvironment(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value != nullptr ? value : "";
}

// Returns the local agent's arguments about what its workers may load and read. The agent has this
// program's user, and may load this user's files.
std::vector<std::string> OfLocalAgent(const Flags& flags) {
  std::vector<std::string> more = {"--own-plugins"};
  for (const std::string& folder : flags.plugins) more.insert(more.end(), {"--plugins", folder});
  for (const std::string& name : flags.pass_env) more.insert(more.end(), {"--pass-env", name});
  return more;
}

// The signals to this process.
class Signals {
 public:
  explicit Signals(const sigset_t& signals) : signals_(signals) {}
  // Waits for the first signal.
  void Await() {
    int signal = 0;
    sigwait(&signals_, &signal);
    at_once_ = sequence_.Take(signal) == process::StopOrder::kAtOnce;
  }
  // Returns whether a signal has come that asks for an end at once.
  bool AtOnce() {
    const timespec no_wait = {};
    for (int signal = 0; (signal = sigtimedwait(&signals_, nullptr, &no_wait)) > 0;) {
      at_once_ |= sequence_.Take(signal) == process::StopOrder::kAtOnce;
    }
    return at_once_;
  }

 private:
  const sigset_t signals_;
  process::StopSequence sequence_;
  bool at_once_ = false;
};

// Lets the jobs of the local agent save a checkpoint and end, unless they should end at once.
void EmptyLocalNode(service::Coordinator& coordinator, launch::LocalAgent& agent,
                    absl::Duration timeout, Signals& signals) {
  // The agent may have received the signal, too.
  agent.Leave();
  coordinator.Drain(launch::kLocalNode);
  const absl::Time start = SteadyNow();
  const auto elapsed = [start] { return SteadyNow() - start; };
  std::optional<uint64_t> activity;
  absl::Duration moved = -kStandstill;
  bool agent_stops = false;
  while (elapsed() < timeout || elapsed() < moved + kStandstill) {
    if (coordinator.AwaitDrained(absl::Milliseconds(200)) || agent.HasEnded()) return;
    if (signals.AtOnce()) break;
    // The coordinator does not learn that the workers have ended while the store cannot be written.
    // The agent ends after its workers.
    if (!agent_stops && !coordinator.health().ready().ok()) {
      agent_stops = true;
      coordinator.Drain(launch::kLocalNode);
      agent.Signal(SIGTERM);
    }
    const uint64_t now = coordinator.DrainActivity();
    if (activity.value_or(now) != now) moved = elapsed();
    activity = now;
  }
  if (!coordinator.health().ready().ok()) return agent.Signal(SIGQUIT);
  coordinator.InterruptDrained();
  coordinator.AwaitDrained(kInterruptTimeout);
}

// Adds advice to the error of a damaged store.
absl::Status WithAdvice(const absl::Status& error) {
  if (!absl::IsDataLoss(error)) return error;
  return absl::DataLossError(absl::StrCat(Message(error),
                                          "; put a backup in the place of the database "
                                          "(docs/internals/store.md, Backup and restore), then "
                                          "start again"));
}

absl::StatusOr<std::unique_ptr<web::Watched>> StartWatched(const Flags& flags,
                                                           const web::Latencies* latencies) {
  web::WatchedOptions options{.address = flags.http,
                              .insecure = flags.http_insecure,
                              .state_directory = flags.state,
                              .latencies = latencies};
  options.patience = std::max(options.patience, flags.coordinator.timing.lease);
  ASSIGN_OR_RETURN(auto watched, web::Watched::Start(options));
  const std::string address = ToString(watched->address());
  spdlog::info("metrics and health over HTTP on {}", address);
  if (!flags.http_port_file.empty()) {
    RETURN_IF_ERROR(files::WritePrivately(flags.http_port_file, address + "\n"));
  }
  return watched;
}

absl::Status Run(Flags flags, Signals signals) {
  ASSIGN_OR_RETURN(flags.coordinator.timing.lease,
                   ParseDurationFlag("--lease", flags.lease, absl::Seconds(1), absl::Hours(1)));
  ASSIGN_OR_RETURN(
      flags.coordinator.timing.autonomy,
      ParseDurationFlag("--autonomy", flags.autonomy, absl::ZeroDuration(), absl::Hours(24 * 365)));
  ASSIGN_OR_RETURN(const absl::Duration drain_timeout,
                   ParseDurationFlag("--drain-timeout", flags.drain_timeout, absl::ZeroDuration(),
                                     absl::Hours(24)));
  if (flags.state.empty()) {
    return absl::InvalidArgumentError("--state is needed: neither XDG_STATE_HOME nor HOME is set");
  }
  ASSIGN_OR_RETURN(flags.coordinator.webhooks,
                   webhook::ReadSettings(flags.webhook, absl::StrCat("muster/", Version())));
  if (!flags.webhook.urls.empty() && flags.webhook.secret_file.empty()) {
    spdlog::warn(
        "webhooks are not signed, so their receivers cannot tell who has sent a message: "
        "--webhook-secret names the file with a secret");
  }
  // The address in this directory must not depend on the current folder.
  flags.state = std::filesystem::absolute(flags.state).lexically_normal().string();
  const auto store = store::SqliteStore::Open(flags.state, flags.store);
  if (!store.ok()) return WithAdvice(store.status());
  web::Latencies latencies;
  store::TimedStore timed_store(
      store->get(), [&latencies](store::TimedStore::Access access, absl::Duration duration) {
        latencies.StoreAccessed(access, duration);
      });
  // The coordinator uses these objects until its end, also if something below fails.
  absl::Status damaged;
  auto denied = certs::DenyList::None();
  // `watched` is destroyed before `coordinator`, which it watches.
  std::unique_ptr<service::Coordinator> coordinator;
  std::unique_ptr<web::Watched> watched;
  if (!flags.http.empty()) {
    ASSIGN_OR_RETURN(watched, StartWatched(flags, &latencies));
    flags.coordinator.observed = true;
    flags.coordinator.server.on_call_ended = [&latencies](const EndedCall& call) {
      latencies.CallEnded(call);
    };
  }
  flags.coordinator.on_failure = [&damaged](const absl::Status& why) {
    spdlog::error("{}; ending", Message(why));
    damaged = why;
    kill(getpid(), SIGTERM);
  };
  ASSIGN_OR_RETURN(flags.coordinator.secrets, service::Secrets::Open(flags.state));
  ASSIGN_OR_RETURN(const std::string socket, SocketPath(flags.state, GetEnvironment));
  const std::string address = ToString(Address{.path = socket});
  flags.coordinator.server.listen = {address};
  for (const std::string& more : flags.listen) flags.coordinator.server.listen.push_back(more);
  const bool tls = !flags.listen.empty() && !flags.coordinator.server.tls.certificate.empty();
  if (tls && flags.coordinator.server.insecure) {
    return absl::InvalidArgumentError(
        "--insecure and --tls-certificate: expected one of them, found both");
  }
  if (!flags.revoked.empty()) {
    ASSIGN_OR_RETURN(
        denied, certs::DenyList::Load(flags.revoked,
                                      {.now = SteadyNow, .on_trouble = [](const absl::Status& why) {
                                         spdlog::error("--tls-revoked: {}", Message(why));
                                       }}));
  } else if (tls) {
    spdlog::warn(
        "no certificate is revoked, whatever `muster certs revoke` has written: "
        "--tls-revoked names the file with the revoked serial numbers");
  }
  flags.coordinator.server.authorize = [&denied](const Caller& caller, const std::string& method) {
    return Authorize(caller, method, *denied);
  };
  flags.coordinator.server.limits = ConnectionLimits::For(process::RaiseOpenFiles());
  store::Store* used = flags.http.empty() ? store->get() : static_cast<store::Store*>(&timed_store);
  auto started = service::Coordinator::Start(flags.coordinator, used);
  if (!started.ok()) return WithAdvice(started.status());
  coordinator = *std::move(started);
  if (watched != nullptr) watched->Watch(coordinator.get());
  std::vector<std::string> addresses;
  for (const Address& one : coordinator->addresses()) addresses.push_back(ToString(one));
  spdlog::info("listening on {}, state in {}", absl::StrJoin(addresses, " and "), flags.state);
  // A full disk does not stop the coordinator.
  if (const absl::Status written = WriteAddress(flags.state, address); !written.ok()) {
    spdlog::error(
        "{}; name this coordinator by its address, because its state directory does not "
        "lead to it",
        Message(written));
  }
  if (!flags.port_file.empty()) {
    RETURN_IF_ERROR(files::WritePrivately(flags.port_file, addresses.back() + "\n"));
  }
  std::unique_ptr<launch::LocalAgent> agent;
  if (flags.local_slots > 0) {
    ASSIGN_OR_RETURN(agent, launch::LocalAgent::Start({.program = flags.agent,
                                                       .coordinator = address,
                                                       .slots = flags.local_slots,
                                                       .more = OfLocalAgent(flags),
                                                       .state_directory = flags.state}));
  }
  signals.Await();
  spdlog::info("stopping");
  if (watched != nullptr) watched->Stopping();
  if (agent != nullptr) EmptyLocalNode(*coordinator, *agent, drain_timeout, signals);
  watched.reset();
  coordinator.reset();
  agent.reset();
  if (!damaged.ok()) return WithAdvice(absl::DataLossError(Message(damaged)));
  spdlog::info("stopped");
  return absl::OkStatus();
}

}  // namespace
}  // namespace muster

int main(int argc, char** argv) {
  const sigset_t signals = muster::process::BlockStopSignals();
  CLI::App app("Coordinates training jobs: accepts them, places them on agents, tracks every rank.",
               "musterd");
  app.set_version_flag("--version", std::string("musterd ") + muster::Version());
  muster::Flags flags;
  flags.agent = muster::DefaultAgent();
  flags.state = muster::DefaultStateDirectory(muster::GetEnvironment);
  app.add_option("--listen", flags.listen,
                 "Also listen on HOST:PORT (port 0 chooses a free one), which needs "
                 "--tls-certificate or --insecure, or on unix:/PATH; may be given several times. "
                 "The socket in the state directory is "
                 "always there")
      ->type_name("ADDRESS");
  app.add_option("--state", flags.state,
                 "Directory of the store and of the socket; created if it is missing")
      ->capture_default_str();
  app.add_option("--local-slots", flags.local_slots,
                 "Also run an agent on this machine with this many slots")
      ->check(CLI::Range(uint32_t{0}, muster::kMostSlots));
  app.add_option(
         "--plugins", flags.plugins,
         "Folder from which the local agent's jobs may load plug-ins (model.plugin), beside "
         "those that belong to the user of musterd or to root; may be given several times")
      ->check(CLI::ExistingDirectory)
      ->allow_extra_args(false);
  app.add_option("--pass-env", flags.pass_env,
                 "Environment variable that the local agent's workers get in addition to those in "
                 "docs/reference/agent.md, or NAMES*; may be given several times")
      ->allow_extra_args(false);
  app.add_option("--agent", flags.agent, "The muster-agent program")->capture_default_str();
  app.add_option("--lease", flags.lease,
                 "Agents and workers end themselves when they have had no answer for this long; "
                 "at most 1 s "
                 "later they are replaced")
      ->capture_default_str();
  app.add_option(
         "--autonomy", flags.autonomy,
         "For how long training continues while musterd is down and its host refuses connections")
      ->capture_default_str();
  app.add_option("--drain-timeout", flags.drain_timeout,
                 "After SIGTERM: how long the jobs of the local agent may take to save a "
                 "checkpoint and to end, "
                 "longer while they compute or write; SIGQUIT or a second Ctrl-C ends them at once")
      ->capture_default_str();
  app.add_option("--keep-metrics", flags.store.kept_metrics,
                 "Steps whose metrics are kept for a job, and validation passes; older ones are "
                 "thinned out")
      ->check(CLI::Range(muster::metrics::kMinKept, uint64_t{1} << 30))
      ->capture_default_str();
  app.add_option("--webhook", flags.webhook.urls,
                 "Post every change of a job's state to this http or https URL, as JSON "
                 "(docs/how-to/webhook.md); may be given several times")
      ->type_name("URL")
      ->allow_extra_args(false);
  app.add_option("--webhook-secret", flags.webhook.secret_file,
                 "The file with the secret that signs these messages; only the user of musterd may "
                 "be able to read it")
      ->type_name("FILE");
  app.add_option("--webhook-ca", flags.webhook.ca_file,
                 "The certificates (PEM) that are trusted for https URLs instead of the system's")
      ->type_name("FILE");
  app.add_option("--port-file", flags.port_file,
                 "Write the last address to this file once the coordinator listens");
  app.add_option("--http", flags.http,
                 "Also answer programs that watch musterd over HTTP on HOST:PORT (port 0 chooses a "
                 "free one) or on unix:/PATH: /metrics for Prometheus, /healthz and /readyz")
      ->type_name("ADDRESS");
  app.add_option("--http-port-file", flags.http_port_file,
                 "Write the address of --http to this file once musterd answers there")
      ->type_name("FILE")
      ->needs("--http");
  app.add_flag(
         "--http-insecure", flags.http_insecure,
         "Let --http listen on an address that other hosts reach: whoever reaches it can read "
         "the names, states and measurements of all jobs and nodes")
      ->needs("--http");
  flags.coordinator.server.tls = muster::TlsFilesOf(muster::GetEnvironment);
  muster::AddTlsOptions(&app, &flags.coordinator.server.tls);
  app.add_option("--tls-revoked", flags.revoked,
                 "The file of serial numbers of certificates that count no more (`muster certs "
                 "revoke`); it is read again when it changes")
      ->type_name("FILE");
  app.add_flag("--insecure", flags.coordinator.server.insecure,
               "Take connections over TCP although they are neither encrypted nor authenticated: "
               "whoever reaches the port can run programs as this user");
  app.add_flag("--reflection", flags.coordinator.server.reflection,
               "Tell clients such as grpcurl which services and messages there are");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : muster::kUsageError;
  }
  muster::InitLog("musterd");
  if (flags.coordinator.server.reflection) muster::LinkReflection();
  const absl::Status status = muster::Run(std::move(flags), muster::Signals(signals));
  if (status.ok()) return 0;
  spdlog::error("{}", muster::Message(status));
  return absl::IsInvalidArgument(status) ? muster::kUsageError : 1;
}
