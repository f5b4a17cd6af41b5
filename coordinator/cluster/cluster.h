// The coordinator's whole state and every decision about it: jobs, membership and commands
// together. Pure: (state, event, now) -> (state, rows to store, effects). No thread, no clock, no
// disk, no wire.
//
// The Cluster object only routes each event to its handler (handlers/). The handlers decide; the
// state that they read and change is divided into parts (state/).
//
// The caller does three things after an event. It takes the changes with TakeBatch(), commits them,
// and carries out TakeEffects() after the commit has succeeded. Until the commit, the object is
// ahead of the store. During this time only AgentHeard, WorkerBeat, Handle(CoordinatorPaused) and
// Handle(JudgeLiveness) may be called, because they change nothing durable that others act on. A
// new object made from the store's Image continues from the committed state.
#ifndef MUSTER_COORDINATOR_CLUSTER_CLUSTER_H_
#define MUSTER_COORDINATOR_CLUSTER_CLUSTER_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "coordinator/cluster/effect.h"
#include "coordinator/cluster/event.h"
#include "coordinator/cluster/handlers/handler_context.h"
#include "coordinator/cluster/handlers/handlers.h"
#include "coordinator/cluster/handlers/overview.h"
#include "coordinator/cluster/state/cluster_state.h"
#include "coordinator/jobs/job.h"
#include "coordinator/membership/membership.h"
#include "coordinator/store/store.h"

namespace muster::cluster {

class Cluster {
 public:
  // Live generations continue: their agents and workers have one whole lease to attach again.
  Cluster(const Options& options, const store::Image& image, absl::Time now);

  // ---- Clients.
  // A repeated call (same request id and fingerprint) changes nothing and returns the first answer,
  // or NOT_FOUND JOB_NOT_FOUND if its job has been deleted. All of these methods return
  // ALREADY_EXISTS REQUEST_ID_REUSED for a request id with another fingerprint.
  //
  // All methods that change something may also return RESOURCE_EXHAUSTED TOO_MANY_REQUEST_IDS,
  // except a stop, Cancel and Delete.
  //
  // Adds a job and returns its id. Errors: ALREADY_EXISTS JOB_ALREADY_EXISTS; RESOURCE_EXHAUSTED
  // TOO_MANY_JOBS, TOO_MANY_OPEN_JOBS, JOBS_TOO_LARGE; or the error in Submission::refusal, unless
  // the call is a repeat.
  absl::StatusOr<std::string> Submit(const Submission& submission, absl::Time now) {
    return cluster::Submit(At(now), submission);
  }
  // Adds a command to the job's log and returns its number. A stop without at_step is also recorded
  // in the job itself (stop_requested). A RESUME of a job that has ended is handled by
  // NextAttempt(). `check` (may be null) returns any further reason to refuse the command. `check`
  // is not called for a repeat, or for a RESUME that NextAttempt() handles. Errors: NOT_FOUND
  // JOB_NOT_FOUND; FAILED_PRECONDITION JOB_ALREADY_ENDED, JOB_ALREADY_PAUSED, JOB_NOT_PAUSED,
  // WORKER_TOO_OLD; INVALID_ARGUMENT AT_STEP_INVALID, START_INVALID; RESOURCE_EXHAUSTED
  // TOO_MANY_OPEN_COMMANDS, TOO_MANY_COMMANDS, COMMANDS_TOO_LARGE; the error of `check`.
  absl::StatusOr<uint64_t> Command(const CommandRequest& request, absl::Time now,
                                   const CommandCheck& check = nullptr) {
    return cluster::Command(At(now), request, check);
  }
  // Continues a job that has ended FAILED or CANCELLED, with the same id, as its next attempt. Adds
  // a command `resume`, which is done at once, to the job's log and returns its number. Errors:
  // NOT_FOUND JOB_NOT_FOUND; FAILED_PRECONDITION JOB_NOT_ENDED, JOB_ALREADY_ENDED (it SUCCEEDED);
  // INVALID_ARGUMENT START_INVALID; RESOURCE_EXHAUSTED as of Command, and TOO_MANY_OPEN_JOBS;
  // or the error in request.refusal, unless the call is a repeat.
  absl::StatusOr<uint64_t> NextAttempt(const CommandRequest& request, absl::Time now) {
    return cluster::NextAttempt(At(now), request);
  }
  // Cancels the command request.command.target: adds a CANCEL command, unless one for this target
  // is open. The workers get the CANCEL like any other command. The rule of the target's kind says
  // until when a command can be cancelled (command_rule.proto). If the job has no processes, the
  // target is cancelled at once, unless a checkpoint may include its effect. Returns the target's
  // number. Errors: NOT_FOUND JOB_NOT_FOUND, OPERATION_NOT_FOUND; FAILED_PRECONDITION
  // OPERATION_DONE, OPERATION_APPLIED.
  absl::StatusOr<uint64_t> Cancel(const CommandRequest& request, absl::Time now) {
    return cluster::Cancel(At(now), request);
  }
  // Removes an ended job and everything stored about the job. Returns the answer for the caller:
  // the request's answer, or the first call's answer if this call is a repeat. Errors: NOT_FOUND
  // JOB_NOT_FOUND; FAILED_PRECONDITION JOB_NOT_ENDED.
  absl::StatusOr<std::string> Delete(const DeleteRequest& request, absl::Time now) {
    return cluster::Delete(At(now), request);
  }

  // ---- Nodes. Orders are kept over restarts; a repeat (same request id) changes nothing.
  // Errors: NOT_FOUND NODE_NOT_FOUND; INVALID_ARGUMENT DEADLINE_INVALID from a drain;
  // FAILED_PRECONDITION NODE_ATTACHED from ForgetNode.
  absl::Status Handle(const NodeOrder& order, absl::Time now) {
    return std::visit([&](const auto& one) { return cluster::Handle(At(now), one); }, order);
  }

  // ---- Agents. After an error the caller ends the stream with this error.
  // An agent id stays the same when the agent is started again. While an agent holds its lease on a
  // node name, a process with another agent id is refused (NODE_NAME_TAKEN). A process with the
  // same agent id replaces the former process at once. If the holder has no agent id, any new
  // process replaces the holder at once.
  //
  // Reports about processes that cannot be on the agent's node are ignored, and logged once for
  // each stream. They are acknowledged nevertheless.
  absl::Status AttachAgent(PeerStreamId stream, const AgentHello& hello, absl::Time now) {
    return cluster::AttachAgent(At(now), stream, hello);
  }
  // Handles a heartbeat. A heartbeat only renews the lease: a change of slots or processes is an
  // AgentWord. True if the lease was renewed; then the caller acknowledges the heartbeat.
  bool AgentHeard(PeerStreamId stream, absl::Time now) {
    return cluster::AgentHeard(At(now), stream);
  }
  void Handle(PeerStreamId stream, const AgentWord& word, absl::Time now) {
    std::visit([&](const auto& one) { cluster::Handle(At(now), stream, one); }, word);
  }

  // ---- Workers. After an error the caller ends the stream with this error.
  absl::Status AttachWorker(PeerStreamId stream, const WorkerHello& hello, absl::Time now) {
    return cluster::AttachWorker(At(now), stream, hello);
  }
  // True if the lease was renewed; then the caller acknowledges the heartbeat.
  bool WorkerBeat(PeerStreamId stream, const Heartbeat& heartbeat, absl::Time now) {
    return cluster::WorkerBeat(At(now), stream, heartbeat);
  }
  // Applies a report. A missing sequence number before it shows that the database was restored:
  // then the generation ends.
  absl::Status WorkerReported(PeerStreamId stream, const Report& report, absl::Time now) {
    return cluster::WorkerReported(At(now), stream, report);
  }

  // ---- Streams that end, webhooks, and musterd itself.
  // Handles the end of an agent's or a worker's stream. Unknown streams are ignored.
  void Detached(PeerStreamId stream, absl::Time now) { cluster::Detached(At(now), stream); }
  // Removes webhook messages (SendWebhook) that receivers have accepted or that were given up.
  void Settled(const std::vector<uint64_t>& numbers) {
    for (const uint64_t number : numbers) context_.outbox.Settle(number);
  }
  void Handle(const DaemonEvent& event, absl::Time now) {
    std::visit([&](const auto& one) { cluster::Handle(At(now), one); }, event);
  }

  // ---- The results of events.
  store::Batch TakeBatch();
  std::vector<Effect> TakeEffects() { return std::exchange(context_.effects, {}); }

  // ---- Looking. Null if the job is not known.
  const jobs::Job* Find(const std::string& job_id) const { return context_.jobs.Find(job_id); }
  // The ids of all jobs, by number.
  const std::map<uint64_t, std::string>& submitted() const { return context_.jobs.submitted(); }
  const membership::Membership& membership() const { return context_.membership; }
  Overview overview() const { return Overview(&context_); }

 private:
  HandlerContext& At(absl::Time now) {
    context_.now = now;
    return context_;
  }

  // The whole state, and the current event.
  HandlerContext context_;
  // The batch that PlantedFault::kLatePersist holds back.
  store::Batch late_batch_;
};

}  // namespace muster::cluster

#endif  // MUSTER_COORDINATOR_CLUSTER_CLUSTER_H_
