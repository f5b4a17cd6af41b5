// The coordinator's durable state: one transaction per batch of changes, everything loaded at
// start, steps and log lines read by range. docs/internals/store.md is the schema.
//
// Not thread-safe, unless said: the coordinator's engine makes one call at a time. Two
// implementations, one conformance suite: SQLite (sqlite_store.h) and memory (memory_store.h).
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
  // An operator cordoned it: nothing is placed there. With `drained` the jobs that run there leave
  // it, too.
  bool cordoned = false;
  bool drained = false;
  // Who asked for it, for people.
  std::string reason;
  // With `drained`: how long the jobs there may take. Absent: the operator set no deadline.
  std::optional<absl::Duration> drain_deadline;
  // The agent that has this name, and the incarnations of its processes, the newest last: the
  // newest process has replaced all others.
  std::string agent_id;
  std::vector<std::string> incarnations;
  // Set if the node is left out because generations kept failing there.
  jobs::NodeHealth::LeftOut left_out;

  bool operator==(const NodeMarkRow&) const = default;
};

// A request that was carried out: a request with the same id is not carried out again.
struct RequestRow {
  std::string request_id;
  // A hash of the call and its contents.
  std::string fingerprint;
  std::string job_id;
  // When its job was deleted; infinite past: the job was not deleted. A request about a node, which
  // has no job, has the time of the request: it is kept as long as those of a deleted job.
  absl::Time deleted_time = absl::InfinitePast();
  // The answer to a repeated request, if it cannot be made from the job. Bytes.
  std::string answer;

  bool job_deleted() const { return deleted_time != absl::InfinitePast(); }
  bool operator==(const RequestRow&) const = default;
};

// The measurements of a step, or of a pass of validation or of a test.
struct MetricsRow {
  std::string job_id;
  // From 1. For a pass: the number of steps after which it ran.
  uint64_t step = 0;
  uint64_t generation = 0;
  // v1::StepMetrics, serialized; a store never looks inside.
  std::string metrics;

  bool operator==(const MetricsRow&) const = default;
};

struct LogRow {
  std::string job_id;
  // Grows with each line of the job.
  uint64_t sequence = 0;
  uint64_t generation = 0;
  uint32_t rank = 0;
  std::string text;

  bool operator==(const LogRow&) const = default;
};

// An event of a job. The newest jobs::kKeptEvents of each job are kept.
struct EventRow {
  std::string job_id;
  jobs::JobEvent event;

  bool operator==(const EventRow&) const = default;
};

// A message about a job that a webhook's receiver has not accepted yet (docs/how-to/webhook.md).
struct DeliveryRow {
  // Grows with each delivery while any is stored.
  uint64_t number = 0;
  // The URL of the receiver.
  std::string receiver;
  // By which the receiver recognises a repeat.
  std::string id;
  std::string job_id;
  absl::Time create_time = absl::InfinitePast();
  // What is posted. Bytes.
  std::string body;

  bool operator==(const DeliveryRow&) const = default;
};

// A checkpoint that counts, or (`dropped`) the path of one whose files are to be removed.
struct CheckpointRow {
  jobs::Checkpoint checkpoint;
  bool dropped = false;

  bool operator==(const CheckpointRow&) const = default;
};

// The changes to one list of a job: the rows that are new or changed, and the keys of removed rows.
template <typename Key, typename Row>
struct RowChanges {
  std::map<Key, Row> put;
  std::set<Key> removed;

  size_t size() const { return put.size() + removed.size(); }
};

// The changes, by key; a row replaces the stored row with the same key. Removals are carried out
// first, except those of nodes and of their marks: a job that is both in `removed_jobs` and in
// `jobs` is a new job with the same id.
struct Batch {
  // Only the changed parts of a job, so the cost of a change does not depend on the length of the
  // job's lists, and a step does not write the job's specification again. job_rows.h makes it.
  struct JobRow {
    std::string job_id;
    // Absent: unchanged.
    std::optional<jobs::JobIdentity> identity;
    std::optional<jobs::LifeRow> life;
    std::optional<jobs::JobProgress> progress;
    RowChanges<uint32_t, jobs::Rank> ranks;
    // By path.
    RowChanges<std::string, CheckpointRow> checkpoints;
    // By position.
    RowChanges<uint64_t, jobs::FailureNote> failures;
    RowChanges<uint64_t, commands::Command> commands;
    RowChanges<uint32_t, jobs::AttemptEnd> attempts;
    // By position.
    RowChanges<uint64_t, jobs::SettingChange> setting_changes;
    // Without its history; absent: unchanged.
    std::optional<jobs::Trainability> trainability;
    // By version.
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
  // Removed after `nodes` was written.
  std::vector<std::string> removed_nodes;
  // Removed after `node_marks` was written.
  std::vector<std::string> removed_node_marks;
  std::vector<NodeMarkRow> node_marks;
  // All their rows are removed, except their requests and deliveries.
  std::vector<std::string> removed_jobs;
  // If jobs are removed: the highest number given to a job so far. 0: unchanged.
  uint64_t last_number = 0;
  std::vector<RequestRow> requests;
  std::vector<std::string> removed_requests;
  // Steps in the order in which they arrived; passes of validation and of tests likewise, each
  // applied after the step that it followed. Training that continues from a checkpoint replaces
  // what older generations computed beyond it: a step removes the later steps of older generations,
  // and their passes that ran after this step or later. It removes nothing of its own generation,
  // which may report a step twice. A late row of an older generation is stored only if no newer
  // generation has a step at or before it, and it removes nothing of a newer generation.
  std::vector<MetricsRow> steps;
  std::vector<MetricsRow> validations;
  std::vector<MetricsRow> tests;
  std::vector<LogRow> logs;
  // In the order of their numbers.
  std::vector<EventRow> events;
  // Written after the removals.
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
  // By number.
  std::vector<jobs::Job> jobs;
  std::vector<NodeRow> nodes;
  std::vector<NodeMarkRow> node_marks;
  std::vector<RequestRow> requests;
  // By number.
  std::vector<DeliveryRow> deliveries;
  // The highest number that any job ever had, including removed jobs.
  uint64_t last_number = 0;
};

struct StoreOptions {
  // How many steps are kept per job, how many validation passes, and how many tests; older ones are
  // thinned out (coordinator/metrics).
  uint64_t kept_metrics = metrics::kDefaultKept;
};

// Log lines kept per job; older ones are deleted.
inline constexpr uint64_t kKeptLogLines = 10000;

// What a row of metrics is of.
enum class MetricsOf { kSteps, kValidations, kTests };

class Store {
 public:
  virtual ~Store() = default;

  // Stores all of the batch or nothing; durable when it returns OK. After an error nothing of the
  // batch is stored, and the same batch may be tried again. DATA_LOSS: the stored data are damaged,
  // and another try will not help. RESOURCE_EXHAUSTED: the disk is full.
  virtual absl::Status Commit(const Batch& batch) = 0;
  // Frees the disk space that is reserved for the case of a full disk. Returns whether there was
  // any.
  virtual bool ReleaseReserve() { return false; }
  // Reserves it again, unless as much space is free within the store. False: the disk has no space
  // for it yet.
  virtual bool RestoreReserve() { return true; }
  // True if the disk was so full when the store was opened that nothing is reserved: the store
  // starts as after ReleaseReserve().
  virtual bool OpenedShortOfRoom() const { return false; }
  // Copies what is committed, consistently, into a new file that the caller removes; returns its
  // path. Thread-safe, also during other calls.
  virtual absl::StatusOr<std::string> Backup() = 0;
  // DATA_LOSS: the stored data cannot be read.
  virtual absl::StatusOr<Image> Load() = 0;
  // In step order, from `from_step`, at most `limit`.
  virtual absl::StatusOr<std::vector<MetricsRow>> ReadMetrics(MetricsOf of,
                                                              const std::string& job_id,
                                                              uint64_t from_step, size_t limit) = 0;
  // Lines after `after_sequence`, in order, at most `limit`; if `rank` is given, only its lines.
  virtual absl::StatusOr<std::vector<LogRow>> ReadLogs(const std::string& job_id,
                                                       uint64_t after_sequence,
                                                       std::optional<uint32_t> rank,
                                                       size_t limit) = 0;
};

}  // namespace muster::store

#endif  // MUSTER_COORDINATOR_STORE_STORE_H_
