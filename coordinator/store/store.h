// The coordinator's durable state: one transaction per batch of changes, everything loaded at
// start, steps and log lines read by range. docs/store.md is the schema.
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

// What is known of a node for longer than its agent's lease.
struct NodeMarkRow {
  std::string node;
  // Somebody said so: nothing is placed there; with `drained` what runs there ends, too.
  bool cordoned = false;
  bool drained = false;
  // Who said so, for people.
  std::string reason;
  // Of `drained`, where somebody asked for one: how long what runs there may take.
  std::optional<absl::Duration> drain_deadline;
  // Of the agent that has this name, and its processes, the newest last: all others were replaced
  // by it.
  std::string agent_id;
  std::vector<std::string> incarnations;
  // Because generations kept failing there.
  jobs::NodeHealth::LeftOut left_out;

  bool operator==(const NodeMarkRow&) const = default;
};

// A request that acted: the same id never acts again.
struct RequestRow {
  std::string request_id;
  // Of the call and its contents.
  std::string fingerprint;
  std::string job_id;
  // When its job was deleted; infinite past: it was not.
  absl::Time deleted_time = absl::InfinitePast();
  // What a repeat is answered with, where the job alone does not say it. Bytes.
  std::string answer;

  bool job_deleted() const { return deleted_time != absl::InfinitePast(); }
  bool operator==(const RequestRow&) const = default;
};

// What was measured of a step, or of a validation pass.
struct MetricsRow {
  std::string job_id;
  // From 1; of a pass: it ran after so many steps.
  uint64_t step = 0;
  uint64_t generation = 0;
  // v1::StepMetrics, serialized; a store never looks inside.
  std::string metrics;

  bool operator==(const MetricsRow&) const = default;
};

struct LogRow {
  std::string job_id;
  // Grows within the job.
  uint64_t sequence = 0;
  uint64_t generation = 0;
  uint32_t rank = 0;
  std::string text;

  bool operator==(const LogRow&) const = default;
};

// An event of a job. The newest jobs::kKeptEvents of each job stay.
struct EventRow {
  std::string job_id;
  jobs::JobEvent event;

  bool operator==(const EventRow&) const = default;
};

// A checkpoint that counts, or the path of one whose files are to go.
struct CheckpointRow {
  jobs::Checkpoint checkpoint;
  bool dropped = false;

  bool operator==(const CheckpointRow&) const = default;
};

// Of one list of a job: the rows that are new or changed, and those that are gone.
template <typename Key, typename Row>
struct RowChanges {
  std::map<Key, Row> put;
  std::set<Key> removed;

  size_t size() const { return put.size() + removed.size(); }
};

// What changed, by key; each row replaces the one it finds. Removals come before all else: a job
// that is removed and among `jobs` too is a new one.
struct Batch {
  // Of a job only what changed: what a change costs does not depend on how long its lists are, and
  // a step writes nothing of what was handed in. job_rows.h makes it.
  struct JobRow {
    std::string job_id;
    // Absent: unchanged.
    std::optional<jobs::JobIdentity> identity;
    std::optional<jobs::JobLife> life;
    std::optional<jobs::JobProgress> progress;
    RowChanges<uint32_t, jobs::Rank> ranks;
    // By path.
    RowChanges<std::string, CheckpointRow> checkpoints;
    // By position.
    RowChanges<uint64_t, jobs::FailureNote> failures;
    RowChanges<uint64_t, commands::Command> commands;
    RowChanges<uint32_t, jobs::AttemptEnd> attempts;
    // Without its history; absent: unchanged.
    std::optional<jobs::Trainability> trainability;
    // By version.
    RowChanges<uint64_t, jobs::TrainabilityChange> trainability_changes;

    // Of all tables; each is one row that is put or removed.
    size_t rows() const {
      return identity.has_value() + life.has_value() + progress.has_value() + ranks.size() +
             checkpoints.size() + failures.size() + commands.size() + attempts.size() +
             trainability.has_value() + trainability_changes.size();
    }
    bool empty() const { return rows() == 0; }
  };
  std::vector<JobRow> jobs;
  std::vector<NodeRow> nodes;
  std::vector<std::string> removed_nodes;
  std::vector<NodeMarkRow> node_marks;
  // With all rows of theirs but their requests.
  std::vector<std::string> removed_jobs;
  // The highest number given to a job so far, where jobs are removed; 0: unchanged.
  uint64_t last_number = 0;
  std::vector<RequestRow> requests;
  std::vector<std::string> removed_requests;
  // In the order in which they came; so are the passes, each after the step that it followed. A
  // later course of training takes the place of an earlier one: a step takes away the later steps,
  // and the passes after it or later, of older generations; its own has computed none of them anew,
  // and may tell a step twice. What an older generation tells late counts where no newer one has a
  // step at or before it, and takes nothing of a newer one away.
  std::vector<MetricsRow> steps;
  std::vector<MetricsRow> validations;
  std::vector<LogRow> logs;
  // In the order of their numbers.
  std::vector<EventRow> events;

  bool empty() const {
    return jobs.empty() && nodes.empty() && removed_nodes.empty() && node_marks.empty() &&
           removed_jobs.empty() && requests.empty() && removed_requests.empty() && steps.empty() &&
           validations.empty() && logs.empty() && events.empty();
  }
};

// Everything but steps, validation passes and logs.
struct Image {
  // By number.
  std::vector<jobs::Job> jobs;
  std::vector<NodeRow> nodes;
  std::vector<NodeMarkRow> node_marks;
  std::vector<RequestRow> requests;
  // The highest number that a job ever had, also one that is removed.
  uint64_t last_number = 0;
};

struct StoreOptions {
  // Steps that are kept per job, and as many validation passes; older ones are thinned
  // (coordinator/metrics).
  uint64_t kept_metrics = metrics::kDefaultKept;
};

// Log lines kept per job; older ones go.
inline constexpr uint64_t kKeptLogLines = 10000;

class Store {
 public:
  virtual ~Store() = default;

  // All of it or nothing; durable when it returns OK. After an error the same batch may be tried
  // again; nothing of it is stored before that. DATA_LOSS: what is stored is damaged, and nothing
  // will help. RESOURCE_EXHAUSTED: the disk is full.
  virtual absl::Status Commit(const Batch& batch) = 0;
  // Room that is kept for when the disk is full. Gives it up; whether there was any.
  virtual bool ReleaseReserve() { return false; }
  // Takes it back, or finds as much room elsewhere. False: there is none yet.
  virtual bool RestoreReserve() { return true; }
  // When the store was opened the disk was so full that there is none: it begins as after
  // ReleaseReserve().
  virtual bool OpenedShortOfRoom() const { return false; }
  // A consistent copy of what is committed, as a new file that the caller removes; its path.
  // Thread-safe, also beside the other calls.
  virtual absl::StatusOr<std::string> Backup() = 0;
  // DATA_LOSS: what is stored cannot be read.
  virtual absl::StatusOr<Image> Load() = 0;
  // In step order, from `from_step`, at most `limit`.
  virtual absl::StatusOr<std::vector<MetricsRow>> ReadSteps(const std::string& job_id,
                                                            uint64_t from_step, size_t limit) = 0;
  virtual absl::StatusOr<std::vector<MetricsRow>> ReadValidations(const std::string& job_id,
                                                                  uint64_t from_step,
                                                                  size_t limit) = 0;
  // In order, those after `after_sequence`, at most `limit`; of one rank where it is given.
  virtual absl::StatusOr<std::vector<LogRow>> ReadLogs(const std::string& job_id,
                                                       uint64_t after_sequence,
                                                       std::optional<uint32_t> rank,
                                                       size_t limit) = 0;
};

}  // namespace muster::store

#endif  // MUSTER_COORDINATOR_STORE_STORE_H_
