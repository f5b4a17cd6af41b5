// muster-worker: one rank of one generation of a job. muster-agent starts the worker with its
// identity; everything else comes from the coordinator.
//
// Exit codes:
// - 0: finished, or stopped as asked;
// - 1: failed, and the failure was reported;
// - 2: bad flags;
// - 3: stale, or never welcomed;
// - 4: its lease is over, because the coordinator did not answer (kLeaseOverExitCode in
//   worker/agent/core/worker_record.h).
#include <malloc.h>
#include <poll.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <string>
#include <string_view>

#include "absl/strings/numbers.h"
#include "common/downloads/downloads.h"
#include "common/files/mapped_file.h"
#include "common/flags/flags.h"
#include "common/lease/lease_file.h"
#include "common/log/log.h"
#include "common/secret/secret.h"
#include "common/secret/worker_variable.h"
#include "common/spool/spool.h"
#include "common/status/status.h"
#include "common/version/version.h"
#include "worker/agents_signals.h"
#include "worker/control/model_communicator.h"
#include "worker/control/run_worker.h"
#include "worker/launcher/libtorch.h"
#include "worker/memory/counting_allocator.h"

namespace {

// Makes malloc keep freed memory. Each step frees and allocates gradients and activations. Memory
// that malloc gave back to the kernel would cost page faults: 4800 a step for 8 layers of 1024 x
// 1024, a tenth of the CPU time.
void KeepFreedMemory() {
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, -1);
}

// Writes a line to stderr if this does not block: the agent that reads it may be stopped.
void SayWithoutWaiting(std::string line) {
  pollfd entry = {.fd = STDERR_FILENO, .events = POLLOUT, .revents = 0};
  line.resize(std::min<size_t>(line.size(), 2000));
  line += '\n';
  if (poll(&entry, 1, 0) == 1 && (entry.revents & POLLOUT) != 0) {
    (void)!write(STDERR_FILENO, line.data(), line.size());
  }
}

}  // namespace

int main(int argc, char** argv) {
  KeepFreedMemory();
  muster::memory::InstallCountingAllocator();
  muster::files::ExplainBusErrors();
  muster::control::WorkerOptions options;
  int64_t agent_pid = 0;
  CLI::App app(
      "One rank of a Muster job; started by muster-agent. With --devices alone it prints what it "
      "is "
      "built for, \"cpu\" or \"cpu cuda\", and ends.");
  app.set_version_flag("--version", std::string("muster-worker ") + muster::Version());
  app.add_option("--coordinator", options.coordinator, "The address of musterd")->required();
  app.add_option("--job", options.identity.job, "The job's id")->required();
  app.add_option("--generation", options.identity.generation, "The job's generation")
      ->required();
  app.add_option("--rank", options.identity.rank, "The rank of this process")->required();
  app.add_option("--incarnation", options.identity.incarnation, "The random name of this process")
      ->required();
  app.add_option("--agent-pid", agent_pid,
                 "the agent: a worker that is not its child ends at once");
  if (argc == 2 && std::string_view(argv[1]) == "--devices") {
    std::cout << muster::control::Devices() << std::endl;
    return 0;
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  if (agent_pid != 0) muster::ObeySignalsOfAgentOnly(static_cast<pid_t>(agent_pid));
  // Programs that this process starts must find their own libraries.
  muster::launcher::Restore();
  muster::InitLog("muster-worker");
  // The agent's death kills its workers. But an agent that died before its worker asked for this
  // signal cannot kill the worker.
  if (agent_pid != 0 && getppid() != agent_pid) return 3;
  if (const char* agent = getenv(muster::kAgentVersionVariable);
      agent != nullptr && !muster::SameMinorVersion(agent, muster::Version())) {
    spdlog::error(
        "this is muster-worker {}; the muster-agent that has started it is of version {}. Stop the "
        "agent, install all programs of one version into its folder, and start it again "
        "(docs/how-to/upgrade.md)",
        muster::Version(), agent);
    return 3;
  }

  if (char* hex = getenv(muster::secret::kWorkerVariable); hex != nullptr) {
    options.secret = muster::secret::FromHex(hex).value_or("");
    // The secret is removed from /proc and from the environment of programs that this process
    // starts.
    explicit_bzero(hex, strlen(hex));
    unsetenv(muster::secret::kWorkerVariable);
  }
  const auto get_environment = [](const std::string& name) -> std::string {
    const char* value = getenv(name.c_str());
    return value != nullptr ? value : "";
  };
  options.tls = muster::TlsFilesOf(get_environment);
  options.spool.path = get_environment(muster::kSpoolVariable);
  options.downloads = get_environment(muster::kDownloadsVariable);
  if (const char* limit = getenv(muster::kSpoolLimitVariable); limit != nullptr) {
    (void)absl::SimpleAtoi(limit, &options.spool.limit);
  }
  if (const char* path = getenv(muster::kLeaseFileVariable); path != nullptr) {
    options.agents_lease_end = [path = std::string(path)] { return muster::LeaseFile::Read(path); };
  }
  options.on_fatal = [](const absl::Status& why) {
    spdlog::error("ending: {}", muster::Message(why));
    _exit(3);
  };
  options.on_lease_over = [](const absl::Status& why) {
    SayWithoutWaiting("ending: " + muster::Message(why));
    _exit(4);
  };
  const absl::Status status = muster::control::RunWorker(options);
  // The process ends without destructors, because they could wait for a lost peer.
  _exit(status.ok() ? 0 : 1);
}
