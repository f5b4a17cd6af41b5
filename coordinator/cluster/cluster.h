// The coordinator's whole state and every decision about it: jobs, membership and commands put
// together. Pure: (state, event, now) -> (state, rows to store, effects). No thread, no clock, no
// disk, no wire.
//
// Each event is a method. Its caller then takes what changed with TakeBatch(), commits that, and
// only after success lets out TakeEffects(). Until that batch is committed the object is ahead of
// what is stored: only AgentHeard and WorkerBeat may be called, which change nothing durable that
// others act on. A new object made from the store's Image carries on from what was committed.
#ifndef MUSTER_COORDINATOR_CLUSTER_CLUSTER_H_
#define MUSTER_COORDINATOR_CLUSTER_CLUSTER_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "coordinator/cluster/effect.h"
#include "coordinator/cluster/event.h"
#include "coordinator/jobs/job.h"
#include "coordinator/jobs/life.h"
#include "coordinator/jobs/node_health.h"
#include "coordinator/jobs/placement.h"
#include "coordinator/limits/limits.h"
#include "coordinator/membership/membership.h"
#include "coordinator/store/job_rows.h"
#include "coordinator/store/store.h"

namespace muster::cluster {

// Mistakes that a simulation worth its name finds. No program makes them: there is no flag for it.
enum class PlantedFault {
  kNone,
  // Effects leave before what they follow from is durable: each transaction commits what belonged
  // to the one before.
  kLatePersist,
  // A checkpoint counts whichever generation's process reports it.
  kUnfencedCommit,
  // Which requests were answered is not stored.
  kLostRequestId,
  // What was held is given away at the moment at which who holds it begins to end.
  kLeaseWithoutMargin,
};

struct Options {
  membership::Timing timing;
  jobs::Patience patience;
  Limits limits;
  // A new unique name for a process. Random in life, counted in tests.
  std::function<std::string()> new_incarnation;
  // Only tests set it.
  PlantedFault planted_fault = PlantedFault::kNone;
};

class Cluster {
 public:
  // Live generations go on: their agents and workers have one fresh lease to come back.
  Cluster(const Options& options, const store::Image& image, absl::Time now);

  // ---- Clients.
  // A repeat (same request id and fingerprint) changes nothing and gives the first answer; where
  // its job was deleted since: NOT_FOUND JOB_NOT_FOUND. All of them: ALREADY_EXISTS
  // REQUEST_ID_REUSED.
  //
  // Errors of all that change something: INVALID_ARGUMENT REQUEST_ID_TOO_LONG; RESOURCE_EXHAUSTED
  // TOO_MANY_REQUEST_IDS.
  //
  // The job's id. Errors: ALREADY_EXISTS JOB_ALREADY_EXISTS; RESOURCE_EXHAUSTED TOO_MANY_JOBS,
  // TOO_MANY_OPEN_JOBS; Submission::refusal.
  absl::StatusOr<std::string> Submit(const Submission& submission, absl::Time now);
  // Adds a command to the job's log; its number. A stop without at_step is a wish that the job
  // itself keeps. Errors: NOT_FOUND JOB_NOT_FOUND; FAILED_PRECONDITION JOB_ALREADY_ENDED,
  // JOB_ALREADY_PAUSED, JOB_NOT_PAUSED. INVALID_ARGUMENT AT_STEP_INVALID; RESOURCE_EXHAUSTED
  // TOO_MANY_OPEN_COMMANDS, TOO_MANY_COMMANDS. check: what else there may be against it (asked
  // unless it is a repeat); may be null.
  using Check = std::function<absl::Status(const jobs::Job& job)>;
  absl::StatusOr<uint64_t> Command(const CommandRequest& request, absl::Time now,
                                   const Check& check = nullptr);
  // A job that has ended FAILED or CANCELLED goes on under its id, as its next attempt; a command
  // `resume`, which is done at once, is added to its log: its number. Errors: NOT_FOUND
  // JOB_NOT_FOUND; FAILED_PRECONDITION JOB_NOT_ENDED, JOB_ALREADY_ENDED (it SUCCEEDED).
  absl::StatusOr<uint64_t> NextAttempt(const CommandRequest& request, absl::Time now);
  // The same of kCancel, whose target has not taken effect; where no process can hold the target,
  // it is taken back at once. The target's number. Errors: also NOT_FOUND OPERATION_NOT_FOUND;
  // FAILED_PRECONDITION OPERATION_DONE, OPERATION_APPLIED.
  absl::StatusOr<uint64_t> Cancel(const CommandRequest& request, absl::Time now);
  // Forgets a job that has ended, and all that is stored of it. `answer` is kept for repeats; the
  // result is the answer to give: this one, or the first one's. Errors: NOT_FOUND JOB_NOT_FOUND;
  // FAILED_PRECONDITION JOB_NOT_ENDED.
  absl::StatusOr<std::string> Delete(const std::string& job_id, const std::string& request_id,
                                     const std::string& fingerprint, const std::string& answer,
                                     absl::Time now);

  // ---- Agents. After an error the caller ends the stream with it.
  // A process of the same agent takes the place of the former one at once; so does any where one of
  // them has no id.
  absl::Status AttachAgent(SessionId session, const AgentHello& hello, absl::Time now);
  // A heartbeat. Whether it renewed the lease: then it is to be acknowledged.
  bool AgentHeard(SessionId session, absl::Time now);
  void WorkerStarted(SessionId session, const RunningWorker& worker, absl::Time now);
  void WorkerExited(SessionId session, const WorkerExit& exit, absl::Time now);
  // Reports that a worker of this node left on its disk, in order: taken like those that it tells
  // itself, but that a gap before them (the store is older than they are) does not matter.
  // Acknowledged also where nobody needs them any more.
  void ReportsSpooled(SessionId session, const WorkerId& worker, const std::vector<Report>& reports,
                      absl::Time now);
  void WorkerLogged(SessionId session, const WorkerId& worker,
                    const std::vector<std::string>& lines, absl::Time now);

  // ---- Workers. After an error the caller ends the stream with it.
  absl::Status AttachWorker(SessionId session, const WorkerHello& hello, absl::Time now);
  // Whether it renewed the lease: then it is to be acknowledged.
  bool WorkerBeat(SessionId session, const Heartbeat& heartbeat, absl::Time now);
  // INVALID_ARGUMENT: a gap before its sequence.
  absl::Status WorkerReported(SessionId session, const Report& report, absl::Time now);

  // Whatever ran on a node that is not attached is gone, somebody says: it is replaced now. Errors:
  // NOT_FOUND NODE_NOT_FOUND; FAILED_PRECONDITION NODE_ATTACHED.
  absl::Status ForgetNode(const NodeRequest& request, absl::Time now);

  // ---- Nodes. Kept over restarts; a repeat (same request id) changes nothing.
  // Nothing is placed there any more, and what runs there saves a checkpoint at its next step,
  // ends, and goes on elsewhere without using a restart. Asked again with another deadline, that
  // one counts. Errors: NOT_FOUND NODE_NOT_FOUND; INVALID_ARGUMENT DEADLINE_INVALID.
  absl::Status DrainNode(const NodeRequest& request, absl::Time now);
  // Nothing is placed there any more.
  absl::Status CordonNode(const NodeRequest& request, absl::Time now);
  // Takes back both, and that the node is left out after failures.
  absl::Status UncordonNode(const NodeRequest& request, absl::Time now);
  // The agent is being stopped: as DrainNode, until another process of it attaches.
  void AgentDraining(SessionId session, const std::string& reason, absl::Time now);
  // A slot whose process cannot be ended is not used until it has. The process has no thread that
  // runs: its rank is taken for gone.
  void SlotQuarantined(SessionId session, const SlotQuarantine& quarantine, absl::Time now);
  size_t QuarantinedSlots(const std::string& node) const;
  // The same as AgentDraining for as long as this object lives: musterd is about to stop this
  // agent.
  void Drain(const std::string& node, absl::Time now);
  // What still runs there is told to end now.
  void Interrupt(const std::string& node, absl::Time now);
  bool HasProcesses(const std::string& node) const;
  // Changes while something moves there.
  uint64_t ActivityOn(const std::string& node) const;
  // For the acknowledgement of this agent's heartbeat: ActivityOn its node while that is to be
  // emptied, else 0. The workers of an agent that only computes write nothing that it could see
  // itself.
  uint64_t DrainActivity(SessionId session) const;

  // An agent's or a worker's stream broke. Unknown sessions are ignored.
  void Detached(SessionId session, absl::Time now);

  // Time passed. To be called several times per lease.
  void Tick(absl::Time now);
  // Whether silence counts; it does from the start. Not while the coordinator does not listen:
  // those whose connection is refused take that for an answer. From `true` on everybody has a new
  // lease.
  void Judge(bool judging, absl::Time now);
  // The process stood still for so long, and heard nobody: everybody gets a new lease.
  void WasAway(absl::Duration gap, absl::Time now);
  // The store could not be written for so long, and nobody was taken in: who has no stream gets a
  // new lease.
  void StoreWasAway(absl::Duration gap, absl::Time now);

  // ---- What came of it.
  store::Batch TakeBatch();
  std::vector<Effect> TakeEffects();

  // ---- Looking. Null when not known.
  const jobs::Job* Find(const std::string& job_id) const;
  // By number.
  const std::map<uint64_t, std::string>& submitted() const { return submitted_; }
  const membership::Membership& membership() const { return membership_; }
  // Why nothing is placed on a node; as of the last tick.
  struct NodeView {
    enum What { kOpen, kDraining, kCordoned, kLeftOut } what = kOpen;
    // Of kOpen: why it is doubted all the same; empty: it is not.
    std::string reason;
    // Of kLeftOut.
    absl::Time until = absl::InfinitePast();
  };
  NodeView View(const std::string& node) const;
  // Of the agent that has, or had last, this name; empty: it has none.
  std::string AgentId(const std::string& node) const { return MarkOf(node).agent_id; }
  // By job id: the ranks whose processes may be on this node, in order.
  std::map<std::string, std::vector<uint32_t>> RanksOn(const std::string& node) const;
  // StepDone::metrics of the last steps that this object saw of a generation that trains, oldest
  // first, at most kSpeedSteps: its throughput follows from them.
  static constexpr size_t kSpeedSteps = 20;
  const std::deque<std::string>& NewestSteps(const std::string& job_id) const;
  // As of the last tick.
  jobs::Slots OfferedSlots() const { return SlotsAt(last_tick_); }
  // What to warn of where a job would not fit if everything that is offered were free: "needs 4
  // slots; 2 are offered". Else empty.
  std::string TooBigFor(uint32_t world_size) const;

 private:
  // What changed of a job since the last TakeBatch().
  struct Dirty {
    bool lists = false;
    std::set<uint32_t> ranks;
  };

  // There are processes of this job that an older database does not know.
  void MayRunElsewhere(const jobs::Job& job);
  void GrantFreshGrace(absl::Time now);
  void AwaitAnew(absl::Time now);
  jobs::Job* FindJob(const std::string& job_id);
  // The rank that this process is, where it is the current one and not gone.
  jobs::Rank* CurrentRank(const WorkerId& id);
  // A change that watchers see.
  void Changed(jobs::Job* job);
  void RaiseCeiling(jobs::Job* job);
  // A change of anything in its lists.
  void ListsChanged(jobs::Job* job);
  // Acts on a change of state: tells processes to end, forgets those that are gone, says what
  // happened.
  void Follow(jobs::Job* job, const jobs::Ended& ended, absl::Time now);
  // Its next report.
  void TakeNext(jobs::Job* job, const WorkerId& id, const Report& report, absl::Time now);
  void Take(jobs::Job* job, uint32_t rank, const WorkerId& id, const Report& report,
            absl::Time now);
  void CommandTookEffect(jobs::Job* job, const CommandApplied& applied, absl::Time now);
  void Append(jobs::Job* job, commands::Command command, absl::Time now);
  void RecordTrainability(jobs::Job* job, const TrainabilityInForce& report, absl::Time now);
  absl::Status CheckOpenJobs() const;
  absl::Status CheckRequestId(const std::string& request_id) const;
  // For one more command.
  absl::Status CheckRoomFor(const jobs::Job& job) const;
  // Refusals that all commands have in common.
  absl::StatusOr<jobs::Job*> OpenJob(const std::string& job_id);
  // What a repeat of a request for a command is answered with; absent: it is none.
  absl::StatusOr<std::optional<uint64_t>> RepeatedCommand(const CommandRequest& request) const;
  void RecordStep(jobs::Job* job, const StepDone& step);
  void RecordValidation(jobs::Job* job, const Validated& validated);
  // A process knows what was acknowledged before an older database took the place of this one: its
  // generation cannot go on, which is no failure of the job.
  void FollowsALaterState(jobs::Job* job, const std::string& what, absl::Time now);
  void StoreStep(const std::string& job_id, uint64_t generation, const StepDone& step);
  void StoreValidation(const std::string& job_id, uint64_t generation, const Validated& validated);
  // Of what a rank 0 left that is given up: what it measured, of the steps that nobody does again.
  // The next generation tells the others itself, and replaces what was there.
  void TakeMeasured(const WorkerId& worker, const Report& report);
  // ---- Checkpoints (found.cc). Only rank 0 speaks for a job's folder.
  void RecordCheckpoint(jobs::Job* job, const CheckpointWritten& written, absl::Time now);
  // What the watchdog goes by: the job's own settings, else the defaults.
  membership::Patience PatienceOf(const jobs::Job& job) const;
  void TakeFound(jobs::Job* job, const CheckpointsFound& report, absl::Time now);
  void TakeStart(jobs::Job* job, const SessionStarted& started, absl::Time now);
  // Names to rank 0 what is to be removed.
  void TellToRemove(const jobs::Job& job);
  // What a person decides for a job that halted by itself.
  absl::StatusOr<uint64_t> ResumeHalted(jobs::Job* job, const CommandRequest& request,
                                        absl::Time now);
  // Processes of later generations than their job's run on this node: they are to end, and the job
  // goes on above them.
  void EndStrangers(const AgentHello& hello, absl::Time now);
  // A process of a later generation than the job's shows that the database was restored: what runs
  // ends, and the next generation is above it. what: became of the process.
  void NewerGenerationFound(jobs::Job* job, uint64_t generation, const std::string& what,
                            absl::Time now);
  void StrangerGone(const std::string& job, const std::string& incarnation);
  // All that ran on this node: they died with their agent, or with its lease.
  void StrangersGone(const std::string& node);
  // Rank 0 of the current generation may put its weights in their place; durable before it is told.
  void GrantExport(jobs::Job* job, uint32_t rank, const std::string& path);
  void SendToRank(const jobs::Job& job, uint32_t rank, WorkerOrder order);
  void SendToNode(const std::string& node, AgentOrder order);
  void EndRanks(const jobs::Job& job, const jobs::Ended& ended);
  void Close(SessionId session, const absl::Status& why);
  // Jobs may be placed on the node.
  bool Offers(const std::string& node, absl::Time now) const;
  std::vector<jobs::Running> RunningJobs(absl::Time now) const;
  // Starts what fits, in the order of the line, and says why the others wait.
  void Schedule(absl::Time now);
  void Start(jobs::Job* job, const std::vector<jobs::Slot>& placed, absl::Time now);
  // The node was silent for too long. Its processes end by themselves, but for those of jobs that
  // continue where they are cut off.
  void NodeLost(const membership::Agent& agent, absl::Time now);
  // It is back.
  void NodeFound(const std::string& node);
  void EndSessionsOf(const std::string& node, const std::string& why,
                     const std::function<bool(const std::string& job)>& continues, absl::Time now);
  // With ranks there that may have processes.
  std::vector<jobs::Job*> LiveJobsOn(const std::string& node);
  // Whether this is no repeat; then it is remembered.
  absl::StatusOr<bool> ActsOnNode(const NodeRequest& request, absl::Time now);
  store::NodeMarkRow MarkOf(const std::string& node) const;
  void Mark(const store::NodeMarkRow& mark);
  // Changes each job that may have processes there, and follows.
  void EachJobOn(const std::string& node, const std::function<jobs::Ended(jobs::Job*)>& change,
                 absl::Time now);
  void PreemptNode(const std::string& node, const std::string& reason, absl::Time now);
  jobs::Ended Preempt(jobs::Job* job, const std::string& reason, absl::Time now);
  // What the end of the newest generation says of its nodes, once.
  void JudgeNodes(jobs::Job* job, absl::Time now);
  // A stop takes as long as its last save does: what moves is not ended.
  void LookAtStop(jobs::Job* job, absl::Time now);
  // It got on.
  void Praise(const jobs::Job& job);
  void StoreHealth(const std::string& node);
  // Why nothing is placed on this node, which is attached; empty: it is open.
  std::string WhyClosed(const std::string& node, absl::Time now) const;
  // Of all attached nodes that are closed, for people; empty: there are none.
  std::string ClosedNodes(absl::Time now) const;
  jobs::Slots SlotsAt(absl::Time now) const;
  // Whether this agent may have its name. ALREADY_EXISTS NODE_NAME_TAKEN; FAILED_PRECONDITION
  // STALE_INCARNATION.
  absl::Status CheckName(const AgentHello& hello) const;
  // Another agent process has the node's name. `left`: incarnations of workers of the former that
  // this one still speaks for.
  void AgentProcessGone(const std::string& node, const std::string& incarnation,
                        const std::set<std::string>& left, const std::string& reason,
                        absl::Time now);
  absl::StatusOr<const store::RequestRow*> Repeat(const std::string& request_id,
                                                  const std::string& fingerprint) const;
  void Remember(store::RequestRow row);
  // The requests of deleted jobs whose time is over.
  void ForgetRequests(absl::Time now);

  const Options options_;
  membership::Membership membership_;
  std::map<std::string, jobs::Job> jobs_;
  std::map<uint64_t, std::string> submitted_;
  // The highest number that a job ever had: numbers are not used again.
  uint64_t last_number_ = 0;
  // Not terminal, by number.
  std::map<uint64_t, std::string> open_;
  std::map<std::string, store::RequestRow> requests_;
  // Requests of deleted jobs, by the time of the deletion.
  std::multimap<absl::Time, std::string> bygone_requests_;
  std::map<std::string, std::deque<std::string>> newest_steps_;
  std::map<SessionId, std::string> agent_sessions_;
  std::map<SessionId, WorkerId> worker_sessions_;
  // Processes of a later generation than their job's, by job: incarnation and node. Their job does
  // not start meanwhile.
  std::map<std::string, std::map<std::string, std::string>> strangers_;
  // Jobs of which an older database knew less than their processes: it may not know all nodes
  // either on which these are. They do not start before awaited_until_.
  std::set<std::string> restored_;
  // Of each job whose processes lived when this started: the newest command then, and which of its
  // processes have attached since.
  struct Loaded {
    uint64_t newest_command = 0;
    std::set<std::string> came;
  };
  std::map<std::string, Loaded> loaded_live_;
  struct Draining {
    std::string reason;
    // Said by the agent: over with its process.
    bool by_agent = false;
  };
  std::map<std::string, Draining> draining_;
  // By node, as its agent says; gone with it.
  std::map<std::string, std::set<uint32_t>> quarantined_;
  // Streams of workers that do not know the preemption notice.
  std::set<SessionId> older_workers_;
  jobs::NodeHealth health_;
  std::map<std::string, store::NodeMarkRow> marks_;
  // The generation whose end was judged last, by job.
  std::map<std::string, uint64_t> judged_;
  absl::Time last_tick_;
  bool judging_ = true;
  // Nodes that were known when this object was made and have not come back since, for a while; and
  // the jobs that had no processes then, as far as was known: such a job is not started before all
  // of these nodes are back, or their leases are over.
  std::set<std::string> awaited_;
  absl::Time awaited_until_;
  std::set<std::string> loaded_;
  // Of jobs that are being stopped: what their ranks have done.
  std::map<std::string, uint64_t> stop_activity_;

  std::map<std::string, Dirty> dirty_;
  // What the store has of each job.
  std::map<std::string, store::JobRows> rows_;
  // The last state said in the daemon's log.
  std::map<std::string, jobs::State> said_;
  store::Batch batch_;
  // Of PlantedFault::kLatePersist.
  store::Batch late_batch_;
  std::vector<Effect> effects_;
};

}  // namespace muster::cluster

#endif  // MUSTER_COORDINATOR_CLUSTER_CLUSTER_H_
