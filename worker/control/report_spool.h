// The worker's reports until they are durable: in memory, and on its agent's disk while the
// coordinator cannot be reached (common/spool/spool.h).
#ifndef MUSTER_WORKER_CONTROL_REPORT_SPOOL_H_
#define MUSTER_WORKER_CONTROL_REPORT_SPOOL_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "proto/muster/v1/agent_service.pb.h"
#include "proto/muster/v1/worker_service.pb.h"

namespace muster::control {

// The worker's reports that the coordinator has not made durable yet. They are numbered from 1,
// sent in order, kept until acknowledged, and sent again after a reconnect. Pure; the stream guards
// this object.
class Outbox {
 public:
  // Numbers the report and keeps it.
  void Add(v1::WorkerReport report);

  // Returns the next report to send on this connection; none if all were sent.
  std::optional<v1::WorkerReport> Next();

  // Takes in that the coordinator holds everything up to `sequence`.
  void Acknowledge(uint64_t sequence);

  // Begins a new connection, on which the coordinator said that it holds everything up to
  // `acknowledged`. The later reports are sent again.
  void Rewind(uint64_t acknowledged);

  // Returns the kept reports after `sequence`, serialized, in order.
  std::vector<std::string> After(uint64_t sequence) const;
  // Empties every second kept report of a step's metrics. The empty reports stay because of their
  // numbers. False: there is nothing to drop.
  bool Thin();
  // The approximate size of the kept reports, in bytes.
  size_t bytes() const { return bytes_; }
  // The newest number given to a report.
  uint64_t last() const { return last_; }
  // The number up to which the coordinator holds all reports.
  uint64_t acknowledged() const { return last_ - kept_.size(); }

  bool HasNext() const { return next_ <= last_; }
  bool empty() const { return kept_.empty(); }

 private:
  std::deque<v1::WorkerReport> kept_;  // (acknowledged, last_]
  size_t bytes_ = 0;
  uint64_t last_ = 0;  // newest number given
  uint64_t next_ = 1;  // next to be sent
};

// The writer's next work with the spool.
struct SpoolWork {
  enum class Kind { kNothing, kRemove, kWrite };
  Kind kind = Kind::kNothing;
  // kNothing: the time to ask again.
  absl::Time again = absl::InfiniteFuture();

  // kWrite: the reports to add, serialized; may be empty. `last`: the number of the newest one.
  std::vector<std::string> reports;
  uint64_t last = 0;
  // True: the reports replace the spool's contents.
  bool replace = false;
  // True: the spool must be synced, too.
  bool sync = false;
  // True: the write before this one succeeded, or there was none.
  bool was_well = true;
};

// The outbox, with the knowledge of which reports are on the agent's disk. It decides when reports
// are written there. Pure; the stream guards this object, and the stream's writer does the work.
class SpooledOutbox : public Outbox {
 public:
  // Takes in that a caller waits until all reports so far are settled.
  void Settle();
  // Takes in that this process is about to end: reports are synced to the disk from now on.
  void Flush() { flushing_ = true; }
  // Takes in that the stream broke at `now`.
  void BeAway(absl::Time now) { away_since_ = now; }

  // True if all reports up to `sequence` are acknowledged or in the spool.
  bool IsSettled(uint64_t sequence) const {
    return acknowledged() >= sequence || spooled_ >= sequence;
  }
  // True if the last attempt could not write the reports up to `sequence`.
  bool CannotSettle(uint64_t sequence) const { return unspooled_ >= sequence; }
  // True if all reports are acknowledged or synced to the disk.
  bool IsDurable() const { return empty() || flushed_ >= last(); }

  // Returns the next work. Reports are written if the coordinator has been away for `timeout`, if a
  // caller waits for them, or if this process is about to end. They are removed when they are
  // acknowledged. `through` and `limit`: those of the ReportSpool.
  SpoolWork NextWork(absl::Time now, bool attached, absl::Duration timeout, uint64_t through,
                     size_t limit);
  // Takes in that a write has ended at `now`.
  void Written(const SpoolWork& work, bool ok, absl::Time now);

 private:
  bool flushing_ = false;
  absl::Time away_since_ = absl::InfinitePast();
  // The time at which the last write began.
  absl::Time spooled_at_ = absl::InfinitePast();
  // The time of the next attempt after a failed write. Infinite past: the last write succeeded.
  absl::Time retry_at_ = absl::InfinitePast();
  // The number up to which a caller waits for all reports.
  uint64_t settle_ = 0;
  // The numbers up to which all reports are in the spool, are synced, and could not be written at
  // the last attempt.
  uint64_t spooled_ = 0;
  uint64_t flushed_ = 0;
  uint64_t unspooled_ = 0;
};

struct ReportSpoolOptions {
  // The path of the file; empty: there is no file, and no report is kept.
  std::string path;
  // The limit in bytes for all reports together.
  size_t limit = 64 << 20;
};

// The file of reports. Not thread-safe.
class ReportSpool {
 public:
  ReportSpool(const ReportSpoolOptions& options, const v1::WorkerIdentity& worker);

  bool enabled() const { return !options_.path.empty(); }
  size_t limit() const { return options_.limit; }
  // The number up to which the file has all reports that were not acknowledged when they were
  // added.
  uint64_t through() const { return through_; }

  // Adds serialized reports that follow through(), in order. `through`: the number of the last one.
  // After an error the existing contents stay; the next call writes the file again.
  absl::Status Add(const std::vector<std::string>& reports, uint64_t through);
  // Syncs the file, so that it also survives a crash of the machine.
  absl::Status Sync();
  // Makes the next call of Add replace the whole contents.
  void Reset();
  // Removes the file, because the coordinator has acknowledged all reports.
  void Remove();

 private:
  const ReportSpoolOptions options_;
  const std::string worker_;
  bool written_ = false;
  uint64_t through_ = 0;
};

}  // namespace muster::control

#endif  // MUSTER_WORKER_CONTROL_REPORT_SPOOL_H_
