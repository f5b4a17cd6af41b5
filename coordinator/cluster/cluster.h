// The coordinator's whole state and every decision about it: jobs, membership and commands put
// together. Pure: (state, event, now) -> (state, rows to store, effects). No thread, no clock, no
// disk, no wire.
//
// Each event is a method. After an event the caller takes the changes with TakeBatch(), commits
// them, and only after the commit has succeeded carries out TakeEffects(). Until the batch is
// committed the object is ahead of the store. During this time only AgentHeard and WorkerBeat may
// be called, because they change nothing durable that others act on. A new object that is made from
// the store's Image continues from what was committed.
#ifndef MUSTER_COORDINATOR_CLUSTER_CLUSTER_H_
#define MUSTER_COORDINATOR_CLUSTER_CLUSTER_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "coordinator/cluster/effect.h"
#include "coordinator/cluster/event.h"
#include "coordinator/cluster/jobs.h"
#include "coordinator/cluster/line.h"
#include "coordinator/cluster/nodes.h"
#include "coordinator/cluster/requests.h"
#include "coordinator/cluster/restored.h"
#include "coordinator/cluster/streams.h"
#include "coordinator/jobs/job.h"
#include "coordinator/jobs/life.h"
#include "coordinator/jobs/placement.h"
#include "coordinator/limits/limits.h"
#include "coordinator/membership/membership.h"
#include "coordinator/store/store.h"
#include "coordinator/webhook/outbox.h"

namespace muster::cluster {

// Faults that the simulation must be able to find. Programs never set them; there is no flag for
// them.
enum class PlantedFault {
  kNone,
  // Effects are carried out before the changes that caused them are durable: each transaction
  // commits the changes of the one before.
  kLatePersist,
  // A checkpoint counts whichever generation's process reports it.
  kUnfencedCommit,
  // The answered requests are not stored.
  kLostRequestId,
  // A rank is replaced at the moment at which the process that holds it only begins to end.
  kLeaseWithoutMargin,
};

struct Options {
  membership::Timing timing;
  jobs::EndTimeouts end_timeouts;
  Limits limits;
  // Makes a unique name for a process. Random in programs, counted in tests.
  std::function<std::string()> new_incarnation;
  webhook::OutboxOptions webhooks;
  // Only tests set it.
  PlantedFault planted_fault = PlantedFault::kNone;
};

class Cluster {
 public:
  // Live generations continue: their agents and workers have one whole lease to attach again.
  Cluster(const Options& options, const store::Image& image, absl::Time now);

  // ---- Clients.
  // A repeated call (same request id and fingerprint) changes nothing and returns the first answer;
  // if its job has been deleted, NOT_FOUND JOB_NOT_FOUND. A request id with another fingerprint:
  // ALREADY_EXISTS REQUEST_ID_REUSED, from all of these methods.
  //
  // All methods that change something, except a stop, Cancel and Delete, may also return:
  // RESOURCE_EXHAUSTED TOO_MANY_REQUEST_IDS.
  //
  // Returns the job's id. Errors: ALREADY_EXISTS JOB_ALREADY_EXISTS; RESOURCE_EXHAUSTED
  // TOO_MANY_JOBS, TOO_MANY_OPEN_JOBS, JOBS_TOO_LARGE; Submission::refusal.
  absl::StatusOr<std::string> Submit(const Submission& submission, absl::Time now);
  // Adds a command to the job's log and returns its number. A stop without at_step is also recorded
  // in the job itself (stop_requested). `check` returns any further reason to refuse the command;
  // it is not called for a repeat, and may be null. Errors: NOT_FOUND JOB_NOT_FOUND;
  // FAILED_PRECONDITION JOB_ALREADY_ENDED, JOB_ALREADY_PAUSED, JOB_NOT_PAUSED; INVALID_ARGUMENT
  // AT_STEP_INVALID; RESOURCE_EXHAUSTED TOO_MANY_OPEN_COMMANDS, TOO_MANY_COMMANDS; the error of
  // `check`.
  using Check = std::function<absl::Status(const jobs::Job& job)>;
  absl::StatusOr<uint64_t> Command(const CommandRequest& request, absl::Time now,
                                   const Check& check = nullptr);
  // Continues a job that has ended FAILED or CANCELLED, with the same id, as its next attempt. Adds
  // a command `resume`, which is done at once, to the job's log and returns its number. Errors:
  // NOT_FOUND JOB_NOT_FOUND; FAILED_PRECONDITION JOB_NOT_ENDED, JOB_ALREADY_ENDED (it SUCCEEDED);
  // request.refusal.
  absl::StatusOr<uint64_t> NextAttempt(const CommandRequest& request, absl::Time now);
  // Adds a kCancel command, whose target has not taken effect. If no process can hold the target,
  // the target is cancelled at once. Returns the target's number. Errors: also NOT_FOUND
  // OPERATION_NOT_FOUND; FAILED_PRECONDITION OPERATION_DONE, OPERATION_APPLIED.
  absl::StatusOr<uint64_t> Cancel(const CommandRequest& request, absl::Time now);
  // Removes a job that has ended, and everything that is stored of it. `requested_by` is for the
  // daemon's log. `answer` is kept for repeated calls. The result is the answer for the caller:
  // `answer`, or the one of the first call if this is a repeat. Errors: NOT_FOUND JOB_NOT_FOUND;
  // FAILED_PRECONDITION JOB_NOT_ENDED.
  absl::StatusOr<std::string> Delete(const std::string& job_id, const std::string& request_id,
                                     const std::string& fingerprint, const std::string& answer,
                                     absl::Time now, const std::string& requested_by = "");

  // ---- Agents. After an error the caller ends the stream with it.
  // A new process of the same agent replaces the former one at once. So does any new process if the
  // former one has no id.
  //
  // What an agent says counts only for processes that may be on its node (MayBeOn); the rest is
  // ignored, and logged once for each stream. It is acknowledged nevertheless.
  absl::Status AttachAgent(PeerStreamId session, const AgentHello& hello, absl::Time now);
  // A heartbeat. True if it renewed the lease; then the caller acknowledges it.
  bool AgentHeard(PeerStreamId session, absl::Time now);
  void WorkerStarted(PeerStreamId session, const RunningWorker& worker, absl::Time now);
  void WorkerExited(PeerStreamId session, const WorkerExit& exit, absl::Time now);
  // Reports that a worker of this node left on its disk, in order. They are applied like reports
  // that the worker sends itself. After a gap, and if the worker is not the current process of its
  // rank, only their measurements are stored. They are acknowledged even if nobody needs them any
  // more.
  void ReportsSpooled(PeerStreamId session, const WorkerId& worker,
                      const std::vector<Report>& reports, absl::Time now);
  void WorkerLogged(PeerStreamId session, const WorkerId& worker,
                    const std::vector<std::string>& lines, absl::Time now);

  // ---- Workers. After an error the caller ends the stream with it.
  absl::Status AttachWorker(PeerStreamId session, const WorkerHello& hello, absl::Time now);
  // True if it renewed the lease; then the caller acknowledges it.
  bool WorkerBeat(PeerStreamId session, const Heartbeat& heartbeat, absl::Time now);
  // A gap before its sequence shows that the database was restored: the generation ends.
  absl::Status WorkerReported(PeerStreamId session, const Report& report, absl::Time now);

  // An operator says that everything that ran on this node, which is not attached, has ended: its
  // ranks are replaced at once, and nothing is remembered of the node, also no drain or cordon.
  // Errors: NOT_FOUND NODE_NOT_FOUND; FAILED_PRECONDITION NODE_ATTACHED.
  absl::Status ForgetNode(const NodeRequest& request, absl::Time now);

  // ---- Nodes. Kept over restarts; a repeat (same request id) changes nothing.
  // Nothing is placed there any more. The jobs that run there save a checkpoint at their next step,
  // end, and continue on other nodes without using a restart. A repeated call with another deadline
  // replaces the deadline. Errors: NOT_FOUND NODE_NOT_FOUND; INVALID_ARGUMENT DEADLINE_INVALID.
  absl::Status DrainNode(const NodeRequest& request, absl::Time now);
  // Nothing is placed there any more.
  absl::Status CordonNode(const NodeRequest& request, absl::Time now);
  // Ends a drain, a cordon, and the time in which the node is left out after failures.
  absl::Status UncordonNode(const NodeRequest& request, absl::Time now);
  // The agent is being stopped: as DrainNode, until another process of it attaches.
  void AgentDraining(PeerStreamId session, const std::string& reason, absl::Time now);
  // A slot whose process cannot be ended is not used until the process has ended. No thread of such
  // a process runs any more, so its rank counts as gone.
  // Ignored if the node has no such slot.
  void SlotQuarantined(PeerStreamId session, const SlotQuarantine& quarantine, absl::Time now);
  size_t QuarantinedSlots(const std::string& node) const;
  // musterd is about to stop this agent. Like AgentDraining, but another process of the agent does
  // not end it.
  void Drain(const std::string& node, absl::Time now);
  // Tells all processes that still run there to end now.
  void Interrupt(const std::string& node, absl::Time now);
  bool HasProcesses(const std::string& node) const;
  // A number that changes while jobs on this node make progress.
  uint64_t ActivityOn(const std::string& node) const;
  // For the acknowledgement of this agent's heartbeat: ActivityOn its node while the node is being
  // emptied, else 0. The agent needs it because workers that only compute write nothing that the
  // agent could see itself.
  uint64_t DrainActivity(PeerStreamId session) const;

  // An agent's or a worker's stream broke. Unknown sessions are ignored.
  void Detached(PeerStreamId session, absl::Time now);

  // Receivers of webhooks have accepted these messages (Deliver), or they were given up.
  void Settled(const std::vector<uint64_t>& numbers);

  // Time passed. To be called several times per lease.
  void Tick(absl::Time now);
  // Whether silent agents and workers are given up. It is on at first. It must be off while the
  // coordinator does not listen, because a refused connection counts as an answer for agents and
  // workers. When it is turned on, everybody gets a new lease.
  void Judge(bool judging, absl::Time now);
  // The coordinator's process stood still for the time `gap` and received nothing: everybody gets a
  // new lease.
  void WasAway(absl::Duration gap, absl::Time now);
  // The store could not be written for the time `gap`, and no peer could attach: everybody without
  // a stream gets a new lease.
  void StoreWasAway(absl::Duration gap, absl::Time now);

  // ---- What came of it.
  store::Batch TakeBatch();
  std::vector<Effect> TakeEffects();

  // ---- Looking. Null when not known.
  const jobs::Job* Find(const std::string& job_id) const { return jobs_.Find(job_id); }
  // By number.
  const std::map<uint64_t, std::string>& submitted() const { return jobs_.submitted(); }
  const membership::Membership& membership() const { return membership_; }
  // As of the last tick.
  NodeView View(const std::string& node) const;
  // The id of the agent that has this name, or had it last; empty if the agent has no id.
  std::string AgentId(const std::string& node) const { return nodes_.MarkOf(node).agent_id; }
  // By job id: the ranks whose processes may be on this node, in order.
  std::map<std::string, std::vector<uint32_t>> RanksOn(const std::string& node) const;
  // StepDone::metrics of the last steps that this object saw of a generation that trains, oldest
  // first, at most kSpeedSteps: its throughput follows from them.
  static constexpr size_t kSpeedSteps = 20;
  const std::deque<std::string>& NewestSteps(const std::string& job_id) const;
  // As of the last tick.
  jobs::Slots OfferedSlots(jobs::Device device) const { return LineAt(last_tick_).Slots(device); }
  // A warning if a job of this size would not fit even if all offered slots were free: "needs 4
  // GPUs; 2 are offered". Otherwise empty.
  std::string TooBigFor(uint32_t world_size, jobs::Device device) const {
    return LineAt(last_tick_).TooBigFor(world_size, device);
  }

 private:
  void GrantFreshGrace(absl::Time now);
  jobs::Job* FindJob(const std::string& job_id) { return jobs_.Find(job_id); }
  // The rank of this process, if it is the rank's current process and not gone; otherwise null.
  jobs::Rank* CurrentRank(const WorkerId& id);
  // False: the process has run on another node, or on none.
  bool MayBeOn(const std::string& node, const WorkerId& worker) const;
  // Whether this agent may speak of the process. If not, this is logged once.
  bool SpeaksFor(PeerStreamId session, const WorkerId& worker);
  // A change that watchers see.
  void Changed(jobs::Job* job, absl::Time now);
  // A change of anything in its lists.
  void ListsChanged(jobs::Job* job);
  // Carries out what follows from a change of the job's state: tells processes to end, forgets
  // those that are gone, and logs what happened.
  void ApplyJobChange(jobs::Job* job, const jobs::Ended& ended, absl::Time now);
  // The watchdog's settings for this job: its own, or the defaults.
  membership::ProgressLimits ProgressLimitsOf(const jobs::Job& job) const;
  void Append(jobs::Job* job, commands::Command command, absl::Time now);
  // ---- One more (room.cc).
  absl::Status CheckOpenJobs() const;
  absl::Status CheckRoomForJob(const std::string& spec) const;
  absl::Status CheckRoomFor(const jobs::Job& job, const commands::Command& command) const;

  // OK if all attached workers of the job speak this protocol or a newer one.
  absl::Status CheckWorkersAreOf(uint32_t protocol, const jobs::Job& job) const;
  // Refusals that all commands have in common.
  absl::StatusOr<jobs::Job*> OpenJob(const std::string& job_id);
  // ---- Reports (reports.cc).
  // The next report of the process `id`.
  void TakeNext(jobs::Job* job, const WorkerId& id, const Report& report, absl::Time now);
  void Take(jobs::Job* job, uint32_t rank, const WorkerId& id, const Report& report,
            absl::Time now);
  void CommandTookEffect(jobs::Job* job, const CommandApplied& applied, absl::Time now);
  void RecordTrainability(jobs::Job* job, const TrainabilityReport& report, absl::Time now);
  void RecordStep(jobs::Job* job, const StepDone& step);
  void RecordValidation(jobs::Job* job, const Validated& validated);
  // A process knows of acknowledged reports or commands that this (restored) database does not
  // have: its generation cannot continue. That is not a failure of the job.
  void FollowsALaterState(jobs::Job* job, const std::string& what, absl::Time now);
  // The same, because this rank's reports up to `newest` were acknowledged and are missing here.
  void MissesReports(jobs::Job* job, uint32_t rank, uint64_t newest, absl::Time now);
  void StoreStep(const std::string& job_id, uint64_t generation, const StepDone& step);
  void StoreValidation(const std::string& job_id, uint64_t generation, const Validated& validated);
  // Stores the measurements that a rank 0 which was given up has left, for steps that are not
  // computed again. The next generation reports the other steps itself and replaces their rows.
  void TakeMeasured(const WorkerId& worker, const Report& report);
  // Allows rank 0 of the current generation to rename its weights to their final path. This is
  // durable before rank 0 is told.
  void GrantExport(jobs::Job* job, uint32_t rank, const std::string& path);
  // ---- Checkpoints (found.cc). Only rank 0 speaks for a job's folder.
  void RecordCheckpoint(jobs::Job* job, const CheckpointWritten& written, absl::Time now);
  void TakeFound(jobs::Job* job, const CheckpointsFound& report, absl::Time now);
  void TakeStart(jobs::Job* job, const SessionStarted& started, absl::Time now);
  // Tells rank 0 which checkpoints to remove.
  void TellToRemove(const jobs::Job& job);
  // What a person decides for a job that halted by itself.
  absl::StatusOr<uint64_t> ResumeHalted(jobs::Job* job, const CommandRequest& request,
                                        absl::Time now);
  // If processes of later generations than their job's run on this node, tells them to end; the
  // job's next generation is above them.
  void EndLaterProcesses(const AgentHello& hello, absl::Time now);
  // A process of a later generation than the job's shows that the database was restored: the
  // running generation ends, and the next one is above it. `what` says what happened to the
  // process, for the log.
  void NewerGenerationFound(jobs::Job* job, uint64_t generation, const std::string& what,
                            absl::Time now);
  // ---- Orders, slots and nodes.
  void SendToRank(const jobs::Job& job, uint32_t rank, WorkerOrder order);
  void SendToNode(const std::string& node, AgentOrder order);
  void EndRanks(const jobs::Job& job, const jobs::Ended& ended);
  void Close(PeerStreamId session, const absl::Status& why);
  Line LineAt(absl::Time now) const { return {membership_, nodes_, restored_, jobs_, now}; }
  // Starts the jobs that fit, in the order of the line, and records why the others wait.
  void Schedule(absl::Time now);
  // The jobs on one kind of device.
  void Schedule(jobs::Device device, absl::Time now);
  static StartWorker StartOf(const jobs::Job& job, uint32_t rank);
  void Start(jobs::Job* job, const std::vector<jobs::Slot>& placed, absl::Time now);
  // The node was silent for too long. Its processes end by themselves, except those of jobs with
  // `when_cut_off: continue`.
  void NodeLost(const membership::Agent& agent, absl::Time now);
  // It is back.
  void NodeFound(const std::string& node, absl::Time now);
  void EndSessionsOf(const std::string& node, const std::string& why,
                     const std::function<bool(const std::string& job)>& continues, absl::Time now);
  // With ranks there that may have processes.
  std::vector<jobs::Job*> LiveJobsOn(const std::string& node);
  // True if this request is not a repeat; then it is remembered.
  absl::StatusOr<bool> ActsOnNode(const NodeRequest& request, absl::Time now);
  // Applies `change` to each job that may have processes there, and carries out what follows from
  // it.
  void EachJobOn(const std::string& node, const std::function<jobs::Ended(jobs::Job*)>& change,
                 absl::Time now);
  void PreemptNode(const std::string& node, const std::string& reason, absl::Time now);
  jobs::Ended Preempt(jobs::Job* job, const std::string& reason, absl::Time now);
  // Records what the end of the newest generation shows about its nodes, once per generation.
  void JudgeNodes(jobs::Job* job, absl::Time now);
  // Delays the end of a stop while its ranks make progress, because its last save may take long.
  void LookAtStop(jobs::Job* job, absl::Time now);
  // The job made progress: its nodes are in order.
  void NodesWork(const jobs::Job& job);
  // Another agent process has the node's name now. `left`: the incarnations of the former agent's
  // workers for which this one still sends reports.
  void AgentProcessGone(const std::string& node, const std::string& incarnation,
                        const std::set<std::string>& left, const std::string& reason,
                        absl::Time now);
  void Remember(store::RequestRow row);

  const Options options_;
  // The parts of the state. Each header says what its part decides.
  membership::Membership membership_;
  Requests requests_;
  Nodes nodes_;
  Restored restored_;
  Streams streams_;
  absl::Time last_tick_;
  bool judging_ = true;
  Jobs jobs_;
  webhook::Outbox outbox_;
  store::Batch batch_;
  // Of PlantedFault::kLatePersist.
  store::Batch late_batch_;
  std::vector<Effect> effects_;
};

}  // namespace muster::cluster

#endif  // MUSTER_COORDINATOR_CLUSTER_CLUSTER_H_
