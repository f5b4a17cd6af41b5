// muster-agent: one per host; runs the host's workers for the coordinator. See
// docs/reference/agent.md.
#include <signal.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "common/files/files.h"
#include "common/flags/flags.h"
#include "common/log/log.h"
#include "common/pluginfolders/plugin_folders.h"
#include "common/process/stop_signals.h"
#include "common/rpc/address.h"
#include "common/slots/slots.h"
#include "common/status/status.h"
#include "common/version/version.h"
#include "worker/agent/agent.h"
#include "worker/agent/gpus.h"
#include "worker/agent/identity.h"
#include "worker/agent/worker_command.h"

namespace {

constexpr int kUsageError = 2;

std::string HostName() {
  char name[256] = {};
  return gethostname(name, sizeof(name) - 1) == 0 ? name : "localhost";
}

// Returns the path of muster-worker: beside this program if installed, or one folder higher in a
// build tree.
std::string DefaultWorker() {
  std::error_code error;
  const std::filesystem::path here =
      std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  const std::filesystem::path built = here.parent_path() / "muster-worker";
  const std::filesystem::path beside = here / "muster-worker";
  return !std::filesystem::exists(beside, error) && std::filesystem::exists(built, error) ? built
                                                                                          : beside;
}

std::string GetEnvironment(const std::string& name) {
  const char* value = getenv(name.c_str());
  return value != nullptr ? value : "";
}

std::string DefaultState(const muster::agent::AgentOptions& options) {
  std::map<std::string, std::string> environment;
  for (const char* name : {"STATE_DIRECTORY", "XDG_STATE_HOME", "HOME"}) {
    if (const char* value = getenv(name); value != nullptr) environment[name] = value;
  }
  return muster::agent::DefaultStateDirectory(options.node, options.coordinator, environment,
                                              muster::agent::Identity::IsIn);
}

// Returns the GPUs to offer. Without usable GPUs the agent still offers its other slots.
std::vector<muster::agent::Gpu> GpusToOffer(const std::string& worker) {
  const auto found = muster::agent::FindGpus();
  if (!found.ok()) {
    spdlog::error("no GPU is offered: {}", muster::Message(found.status()));
    return {};
  }
  std::optional<std::string> visible;
  if (const char* value = getenv("CUDA_VISIBLE_DEVICES"); value != nullptr) visible = value;
  std::vector<muster::agent::Gpu> gpus = muster::agent::VisibleGpus(*found, visible);
  if (gpus.empty() && !found->empty()) {
    spdlog::warn("no GPU is offered: CUDA_VISIBLE_DEVICES='{}' selects none of {}", *visible,
                 found->size());
  }
  if (gpus.empty()) return {};
  if (const absl::Status takes = muster::agent::CheckTakesGpus(worker); !takes.ok()) {
    spdlog::warn("none of the {} GPUs is offered: {}", gpus.size(), muster::Message(takes));
    return {};
  }
  for (const muster::agent::Gpu& gpu : gpus) {
    spdlog::info("offers GPU {}: {} ({})", gpu.index, gpu.name, gpu.uuid);
  }
  return gpus;
}

// Returns the address of the coordinator. Waits for a coordinator that is started later and has not
// yet run with its state directory. CANCELLED: one of the signals came.
absl::StatusOr<std::string> AwaitCoordinator(const std::string& text, const sigset_t& signals) {
  constexpr timespec kPause{.tv_sec = 0, .tv_nsec = 100'000'000};
  for (bool told = false;; told = true) {
    auto found = muster::FindCoordinator(text);
    if (!absl::IsUnavailable(found.status())) return found;
    if (!told) spdlog::warn("--coordinator: {}; waiting for it", muster::Message(found.status()));
    if (sigtimedwait(&signals, nullptr, &kPause) > 0) return absl::CancelledError("stopped");
  }
}

// Warns if a coordinator is reached over the network, because it probably has nodes on other hosts.
void WarnOfLoopback(const muster::agent::AgentOptions& options) {
  const auto coordinator = muster::ParseAddress(options.coordinator);
  if (!coordinator.ok() || coordinator->local() || muster::IsLoopback(coordinator->host)) return;
  if (!muster::IsLoopback(options.host)) return;
  spdlog::warn(
      "--host is {}: workers on other hosts cannot reach those of this one, and a job with ranks "
      "on both does not start; give the address at which they reach this host",
      options.host);
}

// Runs the agent until it has ended. The signals ask the agent to stop.
absl::Status RunUntilEnd(muster::agent::Agent& agent, const sigset_t& signals) {
  using muster::process::StopOrder;
  std::atomic<bool> ended = false;
  std::thread listener([&] {
    muster::process::StopSequence sequence;
    for (int signal = 0; sigwait(&signals, &signal) == 0 && !ended;) {
      const StopOrder order = sequence.Take(signal);
      if (order != StopOrder::kNone) agent.RequestStop();
      // The second request kills the workers.
      if (order == StopOrder::kAtOnce) agent.RequestStop();
    }
  });
  const absl::Status why = agent.Wait();
  ended = true;
  pthread_kill(listener.native_handle(), SIGTERM);
  listener.join();
  return why;
}

}  // namespace

int main(int argc, char** argv) {
  const sigset_t signals = muster::process::BlockStopSignals();
  CLI::App app("Offers this host's slots to a Muster coordinator and runs its workers.",
               "muster-agent");
  app.set_version_flag("--version", std::string("muster-agent ") + muster::Version());
  muster::agent::AgentOptions options;
  options.node = HostName();
  options.worker = DefaultWorker();
  bool exit_with_lease = false;
  std::string drain_timeout = "5m";
  options.coordinator = muster::DefaultStateDirectory(GetEnvironment);
  app.add_option("--coordinator", options.coordinator,
                 "musterd: HOST:PORT, unix:/PATH, or its state directory on this machine; default: "
                 "the one that musterd has without --state")
      ->type_name("ADDRESS");
  options.tls = muster::TlsFilesOf(GetEnvironment);
  muster::AddTlsOptions(&app, &options.tls);
  options.core.slots = 0;
  app.add_option("--slots", options.core.slots,
                 "Workers on the CPU that may run here at a time; needed unless there are GPUs")
      ->check(CLI::Range(uint32_t{1}, muster::kMostSlots));
  bool no_gpus = false;
  app.add_flag("--no-gpus", no_gpus,
               "Offer no GPUs. Otherwise each GPU of this host, or each that "
               "CUDA_VISIBLE_DEVICES selects, may run one worker at a time");
  app.add_option("--node", options.node, "Name of this node, unique in the cluster")
      ->capture_default_str();
  app.add_option("--host", options.host, "Address by which other nodes reach this one")
      ->capture_default_str();
  app.add_option("--worker", options.worker, "The muster-worker program")->capture_default_str();
  app.add_option("--spool", options.spool,
                 "Directory in which workers that end while the coordinator is down leave their "
                 "reports, at most 64 MiB; default: spool in the state directory");
  app.add_option("--downloads", options.downloads,
                 "Directory in which jobs write files that clients fetch (--download), with room "
                 "for them; default: downloads in the state directory");
  std::string keep_downloads = "1h";
  app.add_option("--keep-downloads", keep_downloads,
                 "How long such a file is kept if nobody fetches it")
      ->capture_default_str();
  app.add_flag("--exit-with-lease", exit_with_lease,
               "End when the lease is over: the coordinator is cut off, or was down for longer "
               "than its --autonomy, "
               "or there is nothing here to keep for it (agents that musterd starts)");
  app.add_option(
      "--state", options.state_directory,
      "Directory on a local disk for what the agent keeps: its id, by which it gets its "
      "node name back when it is started again, the reports that its workers could not send, and "
      "which processes could not be killed; "
      "default: agent-NODE-HOST-PORT in $STATE_DIRECTORY, else in "
      "$XDG_STATE_HOME/muster, else in ~/.local/state/muster, else in /var/lib/muster");
  app.add_option("--drain-timeout", drain_timeout,
                 "After SIGTERM or `muster drain`: how long the jobs here may take to save a "
                 "checkpoint and to end, "
                 "longer while they compute or write; SIGQUIT or a second Ctrl-C ends them at once")
      ->capture_default_str();
  std::vector<std::string> plugin_folders;
  app.add_option("--plugins", plugin_folders,
                 "Folder with plug-ins (model.plugin) that jobs may load, with those below it; may "
                 "be given several times. Without any, no plug-in is loaded")
      ->allow_extra_args(false);
  bool own_plugins = false;
  app.add_flag("--own-plugins", own_plugins,
               "Also load plug-ins from anywhere that belong to the user of this agent, or to "
               "root, and that "
               "not everybody can write (agents that musterd starts)");
  app.add_option("--pass-env", options.pass_environment,
                 "Environment variable that workers get in addition to those in "
                 "docs/reference/agent.md, or NAMES*; may be given several times")
      ->allow_extra_args(false);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsageError;
  }
  if (exit_with_lease) options.core.after_lease = muster::agent::AfterLease::kQuit;

  muster::InitLog("muster-agent");
  const auto coordinator = AwaitCoordinator(options.coordinator, signals);
  if (absl::IsCancelled(coordinator.status())) return 0;
  if (!coordinator.ok()) {
    spdlog::error("--coordinator: {}", muster::Message(coordinator.status()));
    return absl::IsInvalidArgument(coordinator.status()) ? kUsageError : 1;
  }
  options.coordinator = *coordinator;
  WarnOfLoopback(options);
  if (options.state_directory.empty()) options.state_directory = DefaultState(options);
  if (options.spool.empty()) {
    options.spool = muster::files::JoinPath(options.state_directory, "spool");
  }
  if (options.downloads.empty()) {
    options.downloads = muster::files::JoinPath(options.state_directory, "downloads");
  }

  const auto drain_after = muster::ParseDurationFlag("--drain-timeout", drain_timeout,
                                                     absl::ZeroDuration(), absl::Hours(24));
  const auto keep = muster::ParseDurationFlag("--keep-downloads", keep_downloads,
                                              absl::ZeroDuration(), absl::Hours(24 * 365));
  const auto plugins = muster::ResolvePluginFolders(plugin_folders, own_plugins);
  const absl::Status names = muster::agent::CheckVariableNames(options.pass_environment);
  for (const absl::Status& wrong : {drain_after.status(), keep.status(), plugins.status(), names}) {
    if (wrong.ok()) continue;
    spdlog::error("{}", muster::Message(wrong));
    return kUsageError;
  }
  options.core.drain_timeout = *drain_after;
  options.keep_downloads = *keep;
  options.plugins = *plugins;
  if (!no_gpus) options.gpus = GpusToOffer(options.worker);
  if (options.core.slots == 0 && options.gpus.empty()) {
    spdlog::error("--slots is needed, because no GPU is offered");
    return kUsageError;
  }
  auto agent = muster::agent::Agent::Start(options);
  if (!agent.ok()) {
    spdlog::error("{}", muster::Message(agent.status()));
    return absl::IsInvalidArgument(agent.status()) ? kUsageError : 1;
  }
  spdlog::info("the state directory is {}", options.state_directory);
  const absl::Status why = RunUntilEnd(**agent, signals);
  if (!why.ok()) spdlog::error("{}", muster::Message(why));
  return why.ok() ? 0 : 1;
}
