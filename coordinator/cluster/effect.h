// Effects: what the caller must do for the cluster after its changes are durable.
#ifndef MUSTER_COORDINATOR_CLUSTER_EFFECT_H_
#define MUSTER_COORDINATOR_CLUSTER_EFFECT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "coordinator/commands/command_log.h"
#include "coordinator/jobs/job.h"
#include "coordinator/membership/membership.h"
#include "coordinator/membership/timing.h"
#include "coordinator/membership/worker_id.h"
#include "coordinator/store/store.h"

namespace muster::cluster {

using membership::PeerStreamId;
using membership::WorkerId;

// ---- To an agent.
struct WelcomeAgent {
  membership::Timing timing;
};
struct StartWorker {
  WorkerId worker;
  uint32_t slot = 0;
  bool continue_when_cut_off = false;
  uint32_t threads = 1;
};
struct StopWorker {
  WorkerId worker;
  absl::Duration grace;
};
struct AckExit {
  WorkerId worker;
};
struct AckSpool {
  WorkerId worker;
  uint64_t sequence = 0;
};
// Tells the agent that its node should be drained, or that the drain has ended.
struct DrainAgent {
  bool drain = false;
  std::string reason;
  // The time that processes may take to end. If absent, the agent uses its own setting.
  std::optional<absl::Duration> deadline;
};
// Asks the agent to send the file that this command of the job wrote. A client waits for the file.
struct SendDownload {
  std::string transfer;
  std::string job;
  uint64_t command = 0;
  uint64_t bytes = 0;
  // The offset from which to send. The client already has the bytes before it.
  uint64_t offset = 0;
};
// Tells the agent that the client has the whole file.
struct RemoveDownload {
  std::string job;
  uint64_t command = 0;
};
using AgentOrder = std::variant<WelcomeAgent, StartWorker, StopWorker, AckExit, AckSpool,
                                DrainAgent, SendDownload, RemoveDownload>;

// ---- To a worker.
struct WelcomeWorker {
  std::string spec;
  absl::Time job_create_time;
  membership::Timing timing;
  membership::ProgressLimits progress_limits;
  // The usable checkpoints (jobs::Usable), newest first.
  std::vector<jobs::Checkpoint> checkpoints;
  // The known checkpoints from which a generation must not start (jobs::NotUsable).
  std::vector<jobs::Checkpoint> known_checkpoints;
  bool from_scratch = false;
  std::string start_from;
  // The number that jobs::LearningRateSince returns.
  uint64_t learning_rate_since = 0;
  // The same as in jobs::JobProgress.
  uint64_t stages_done = 0;
  uint64_t stages_done_step = 0;
  uint64_t acked_report = 0;
  std::optional<jobs::Rendezvous> rendezvous;
  std::string host;
  std::string node;
  uint64_t newest_command = 0;
};
struct AckReport {
  uint64_t sequence = 0;
};
// Confirms a checkpoint of rank 0. Without step and path, it only carries `remove`.
struct CheckpointRecorded {
  uint64_t step = 0;
  std::string path;
  // Paths of checkpoints that rank 0 should remove.
  std::vector<std::string> remove;
};
// Permits rank 0 to rename the exported weights to this path.
struct ExportGranted {
  std::string path;
};
// Asks the worker to save a checkpoint at the next step boundary, and to end there.
struct PreemptionNotice {
  std::string reason;
};
using WorkerOrder = std::variant<WelcomeWorker, jobs::Rendezvous, commands::Delivery, AckReport,
                                 CheckpointRecorded, ExportGranted, PreemptionNotice>;

// ---- Effects.
struct SendToAgent {
  PeerStreamId stream = 0;
  AgentOrder order;
};
struct SendToWorker {
  PeerStreamId stream = 0;
  WorkerOrder order;
};
struct CloseStream {
  PeerStreamId stream = 0;
  absl::Status why;
};
// Tells the streams that follow the job.
struct JobChanged {
  std::string job;
};
// Tells the streams that follow the job that the job was deleted.
struct JobDeleted {
  std::string job;
};
struct StepsChanged {
  std::string job;
};
struct LogsChanged {
  std::string job;
};
// A line for the daemon's own log.
struct LogMessage {
  std::string text;
};
// A message for the receiver of a webhook.
struct SendWebhook {
  store::DeliveryRow message;
};
// Stops the sending of this message.
struct WithdrawWebhook {
  std::string receiver;
  uint64_t number = 0;
};
using Effect = std::variant<SendToAgent, SendToWorker, CloseStream, JobChanged, JobDeleted,
                            StepsChanged, LogsChanged, LogMessage, SendWebhook, WithdrawWebhook>;

}  // namespace muster::cluster

#endif  // MUSTER_COORDINATOR_CLUSTER_EFFECT_H_
