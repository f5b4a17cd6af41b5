// muster-agent: offers this host's slots to the coordinator, runs workers, and sends their logs and
// exits to the coordinator.
//
// A single thread owns all state: `Core` decides, and this class carries out. gRPC's threads and
// the threads that watch workers post events to this thread. docs/reference/agent.md describes the
// behaviour.
#ifndef MUSTER_WORKER_AGENT_AGENT_H_
#define MUSTER_WORKER_AGENT_AGENT_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/certs/tls_files.h"
#include "common/pluginfolders/plugin_folders.h"
#include "worker/agent/core/core.h"
#include "worker/agent/gpus.h"
#include "worker/agent/log_queue.h"

namespace muster::agent {

struct AgentOptions {
  // Address of musterd; workers get the same one.
  std::string coordinator;
  // The TLS files for connections over TCP; workers get the same ones.
  certs::TlsFiles tls;
  // The name of this node, unique in the cluster.
  std::string node;
  // The address by which other nodes reach this one.
  std::string host = "127.0.0.1";
  // Path of muster-worker.
  std::string worker;
  // The directory in which the agent keeps its id, on a local disk; used by one agent at a time.
  // Empty (for tests): the agent has no id, and a later agent with the same node name replaces it.
  std::string state_directory;
  // The directory in which workers leave reports while the coordinator is away. Empty: there is no
  // such directory, and the workers wait for the coordinator.
  std::string spool;
  // The limit in bytes for all these reports together; each worker gets an equal part.
  size_t spool_limit = 64 << 20;
  // The directory in which rank 0 of a job writes a file that a client fetches. A file that nobody
  // has fetched for `keep_downloads` is removed. Empty: nothing can be fetched.
  std::string downloads;
  absl::Duration keep_downloads = absl::Hours(1);
  // The folders of the plug-ins that workers may load.
  PluginFolders plugins;
  // Names of additional environment variables that workers get (IsForWorkers).
  std::vector<std::string> pass_environment;
  // The GPUs that are offered for jobs. Their indices replace core.gpus.
  std::vector<Gpu> gpus;
  CoreOptions core;
  LogQueueOptions logs;
  // The pause between two attempts to attach. It doubles from the first to the last, but is never
  // more than a tenth of the lease.
  absl::Duration first_retry = absl::Milliseconds(100);
  absl::Duration last_retry = absl::Seconds(2);
};

// Thread-safe.
class Agent {
 public:
  // Starts to attach; does not wait for the coordinator.
  // INVALID_ARGUMENT: no slots and no GPUs, no node or no coordinator. NOT_FOUND,
  // PERMISSION_DENIED: the worker's program cannot be run. FAILED_PRECONDITION, UNAVAILABLE: the
  // state directory is in use, or cannot be used.
  static absl::StatusOr<std::unique_ptr<Agent>> Start(const AgentOptions& options);
  // RequestStop and Wait.
  ~Agent();

  // Stops the workers, reports their exits, and ends. A second call kills the workers.
  void RequestStop();

  // Waits for the end of the agent and of its workers, and returns the reason:
  // - OK after RequestStop;
  // - UNAVAILABLE: the agent's lease ended (AfterLease::kQuit);
  // - otherwise the coordinator's refusal (FAILED_PRECONDITION: a newer agent holds this node's
  //   name).
  absl::Status Wait();

 private:
  class Loop;
  explicit Agent(std::unique_ptr<Loop> loop);

  const std::unique_ptr<Loop> loop_;
};

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_AGENT_H_
