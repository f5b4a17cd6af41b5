// The coordinator's durable state. Each batch of changes is one transaction. Everything is loaded
// at the start, except steps and log lines, which are read by range. docs/internals/store.md
// describes the schema.
//
// Not thread-safe, except functions that say so: the coordinator's engine makes one call at a time.
// There are two implementations with one conformance suite: SQLite (sqlite_store.h) and memory
// (memory_store.h).
#ifndef MUSTER_COORDINATOR_STORE_STORE_H_
#define MUSTER_COORDINATOR_STORE_STORE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "coordinator/jobs/job.h"
#include "coordinator/jobs/life_row.h"
#include "coordinator/jobs/node_health.h"
#include "coordinator/metrics/thinning.h"

namespace muster::store {

// A node that offers slots.
struct NodeRow {
  std::string node;
  std::string incarnation;
  std::string host;
  uint32_t slots = 0;

  bool operator==(const NodeRow&) const = default;
};

// Facts about a node that are kept longer than its agent's lease.
struct NodeMarkRow {
  std::string node;
  // Whether an operator cordoned the node, so that nothing is placed there. With `drained`, the
  // jobs that run there leave it, too.
  bool cordoned = false;
  bool drained = false;
  // The requester, for people.
  std::string reason;
  // The time that the jobs there may take to end with `drained`; absent if the operator set no
  // deadline.
  std::optional<absl::Duration> drain_deadline;
  // The agent that has this name, and the incarnations of its processes, the newest last. The
  // newest process has replaced all other processes.
  std::string agent_id;
  std::vector<std::string> incarnations;
  // Set if the node is left out because generations kept failing there.
  jobs::NodeHealth::LeftOut left_out;

  bool operator==(const NodeMarkRow&) const = default;
};

// A request that was carried out. A request with the same id is not carried out again.
struct RequestRow {
  std::string request_id;
  // A hash of the call and its contents.
  std::string fingerprint;
  std::string job_id;
  // The time of the deletion of the request's job; infinite past if the job was not deleted. For a
  // request about a node, the time of the request: the row is kept as long as the rows of a deleted
  // job.
  absl::Time deleted_time = absl::InfinitePast();
  // The bytes of the answer to a repeated request, if it cannot be made from the job.
  std::string answer;

  bool job_deleted() const { return deleted_time != absl::InfinitePast(); }
  bool operator==(const RequestRow&) const = default;
};

// The measurements of a step, of a validation pass, or of a test.
struct MetricsRow {
  std::string job_id;
  // The step, from 1. For a pass: the number of steps before it.
  uint64_t step = 0;
  uint64_t generation = 0;
  // v1::StepMetrics, serialized. A store does not parse it.
  std::string metrics;

  bool operator==(const MetricsRow&) const = default;
};

struct LogRow {
  std::string job_id;
  // The line's number within its job, which grows with each line.
  uint64_t sequence = 0;
  uint64_t generation = 0;
  uint32_t rank = 0;
  std::string text;

  bool operator==(const LogRow&) const = default;
};

// An event of a job. jobs::DropOldest says which events of a job are kept.
struct EventRow {
  std::string job_id;
  jobs::JobEvent event;

  bool operator==(const EventRow&) const = default;
};

// A message about a job that a webhook's receiver has not accepted yet (docs/how-to/webhook.md).
struct DeliveryRow {
  // The message's number. It grows with each message while any message is stored.
  uint64_t number = 0;
  // The URL of the receiver.
  std::string receiver;
  // The id by which the receiver recognises a repeat.
  std::string id;
  std::string job_id;
  absl::Time create_time = absl::InfinitePast();
  // The bytes of the message's body.
  std::string body;

  bool operator==(const DeliveryRow&) const = default;
};

// A checkpoint that counts, or (`dropped`) the path of a checkpoint whose files are to be removed.
struct CheckpointRow {
  jobs::Checkpoint checkpoint;
  bool dropped = false;

  bool operator==(const CheckpointRow&) const = default;
};

// The changes to one list of a job: new and changed rows, and the keys of removed rows.
template <typename Key, typename Row>
struct RowChanges {
  std::map<Key, Row> put;
  std::set<Key> removed;

  size_t size() const { return put.size() + removed.size(); }
};

// The changes of one transaction. A row replaces the stored row with the same key. Removals are
// carried out first, except removals of nodes and node marks. A job that is both in `removed_jobs`
// and in `jobs` is a new job with the same id.
struct Batch {
  // The changed parts of a job, which job_rows.h makes. The cost of a change does not depend on the
  // length of the job's lists, and a step does not write the job's specification again.
  struct JobRow {
    std::string job_id;
    // The fields; absent if they have not changed.
    std::optional<jobs::JobIdentity> identity;
    std::optional<jobs::LifeRow> life;
    std::optional<jobs::JobProgress> progress;
    RowChanges<uint32_t, jobs::Rank> ranks;
    // Checkpoints by path.
    RowChanges<std::string, CheckpointRow> checkpoints;
    // Notes by position.
    RowChanges<uint64_t, jobs::FailureNote> failures;
    RowChanges<uint64_t, commands::Command> commands;
    RowChanges<uint32_t, jobs::AttemptEnd> attempts;
    // Changes by position.
    RowChanges<uint64_t, jobs::SettingChange> setting_changes;
    // The trainability without its history; absent if it has not changed.
    std::optional<jobs::Trainability> trainability;
    // Changes by version.
    RowChanges<uint64_t, jobs::TrainabilityChange> trainability_changes;

    // The number of rows in all tables that are put or removed.
    size_t rows() const {
      return identity.has_value() + life.has_value() + progress.has_value() + ranks.size() +
             checkpoints.size() + failures.size() + commands.size() + attempts.size() +
             setting_changes.size() + trainability.has_value() + trainability_changes.size();
    }
    bool empty() const { return rows() == 0; }
  };
  std::vector<JobRow> jobs;
  std::vector<NodeRow> nodes;
  // The nodes to remove after `nodes` was written.
  std::vector<std::string> removed_nodes;
  // The node marks to remove after `node_marks` was written.
  std::vector<std::string> removed_node_marks;
  std::vector<NodeMarkRow> node_marks;
  // The jobs whose rows are all removed, except their requests and deliveries.
  std::vector<std::string> removed_jobs;
  // The highest number given to a job so far, if jobs are removed; 0 if it has not changed.
  uint64_t last_number = 0;
  std::vector<RequestRow> requests;
  std::vector<std::string> removed_requests;
  // Steps in the order in which they arrived. Validation passes and tests likewise, each applied
  // after the step that it followed. Training that continues from a checkpoint replaces results of
  // older generations after the checkpoint:
  // - A step removes the later steps of older generations, and their passes that ran after this
  //   step or later. It removes nothing of its own generation, which may report a step twice.
  // - A late row of an older generation is stored only if no newer generation has a step at or
  //   before it. It removes nothing of a newer generation.
  std::vector<MetricsRow> steps;
  std::vector<MetricsRow> validations;
  std::vector<MetricsRow> tests;
  std::vector<LogRow> logs;
  // The new events, in the order of their numbers.
  std::vector<EventRow> events;
  // The new deliveries, written after the removals.
  std::vector<DeliveryRow> deliveries;
  std::vector<uint64_t> removed_deliveries;

  bool empty() const {
    return jobs.empty() && nodes.empty() && removed_nodes.empty() && node_marks.empty() &&
           removed_node_marks.empty() && removed_jobs.empty() && requests.empty() &&
           removed_requests.empty() && steps.empty() && validations.empty() && tests.empty() &&
           logs.empty() && events.empty() && deliveries.empty() && removed_deliveries.empty();
  }
};

// Everything stored, except steps, passes and logs.
struct Image {
  // All jobs, by number.
  std::vector<jobs::Job> jobs;
  std::vector<NodeRow> nodes;
  std::vector<NodeMarkRow> node_marks;
  std::vector<RequestRow> requests;
  // All deliveries, by number.
  std::vector<DeliveryRow> deliveries;
  // The highest number that any job ever had, including removed jobs.
  uint64_t last_number = 0;
};

struct StoreOptions {
  // The number of steps, of validation passes, and of tests that are kept per job. Older rows are
  // thinned out (coordinator/metrics).
  uint64_t kept_metrics = metrics::kDefaultKept;
};

// The number of log lines kept per job. Older lines are deleted.
inline constexpr uint64_t kKeptLogLines = 10000;

// The kind of a row of metrics.
enum class MetricsOf { kSteps, kValidations, kTests };

class Store {
 public:
  virtual ~Store() = default;

  // Stores all of the batch, durably, or nothing. After an error nothing of the batch is stored,
  // and the same batch may be tried again. DATA_LOSS: the stored data are damaged, and another try
  // does not help. RESOURCE_EXHAUSTED: the disk is full.
  virtual absl::Status Commit(const Batch& batch) = 0;
  // Frees the disk space that is reserved for the case of a full disk. Returns whether any was
  // reserved.
  virtual bool ReleaseReserve() { return false; }
  // Reserves the disk space again, unless as much space is free within the store. False if the disk
  // has too little space.
  virtual bool RestoreReserve() { return true; }
  // Returns whether the disk was too full for a reserve when the store was opened. Then the store
  // starts in the same state as after ReleaseReserve().
  virtual bool OpenedShortOfRoom() const { return false; }
  // Copies the committed data, consistently, into a new file, and returns its path. The caller
  // removes the file. Thread-safe, also during other calls.
  virtual absl::StatusOr<std::string> Backup() = 0;
  // Loads everything except steps, passes and logs. DATA_LOSS: the stored data cannot be read.
  virtual absl::StatusOr<Image> Load() = 0;
  // Returns rows in the order of steps, from `from_step`, at most `limit`.
  virtual absl::StatusOr<std::vector<MetricsRow>> ReadMetrics(MetricsOf of,
                                                              const std::string& job_id,
                                                              uint64_t from_step, size_t limit) = 0;
  // Returns lines after `after_sequence`, in order, at most `limit`; with `rank`, only this rank's
  // lines.
  virtual absl::StatusOr<std::vector<LogRow>> ReadLogs(const std::string& job_id,
                                                       uint64_t after_sequence,
                                                       std::optional<uint32_t> rank,
                                                       size_t limit) = 0;
};

}  // namespace muster::store

#endif  // MUSTER_COORDINATOR_STORE_STORE_H_
