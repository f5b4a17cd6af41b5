// The outbox together with the knowledge of which reports are on the agent's disk; decides when
// reports are written there. Pure; the stream guards it, and its writer does the work.
#ifndef MUSTER_WORKER_CONTROL_SPOOLED_OUTBOX_H_
#define MUSTER_WORKER_CONTROL_SPOOLED_OUTBOX_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "worker/control/outbox.h"

namespace muster::control {

// What the writer does with the spool now.
struct SpoolWork {
  enum class Kind { kNothing, kRemove, kWrite };
  Kind kind = Kind::kNothing;
  // kNothing: when to ask again.
  absl::Time again = absl::InfiniteFuture();

  // kWrite: the reports to add, serialized, the newest of which is `last`; may be empty.
  std::vector<std::string> reports;
  uint64_t last = 0;
  // They take the place of the spool's contents.
  bool replace = false;
  // Sync the spool, too.
  bool sync = false;
  // The write before this one succeeded, or there was none.
  bool was_well = true;
};

class SpooledOutbox : public Outbox {
 public:
  // A caller waits until all reports so far are settled.
  void Settle();
  // This process is about to end: reports are synced to the disk from now on.
  void Flush() { flushing_ = true; }
  // The stream broke at `now`.
  void BeAway(absl::Time now) { away_since_ = now; }

  // All reports up to `sequence` are acknowledged or in the spool.
  bool IsSettled(uint64_t sequence) const {
    return acknowledged() >= sequence || spooled_ >= sequence;
  }
  // The last attempt could not write the reports up to `sequence`.
  bool CannotSettle(uint64_t sequence) const { return unspooled_ >= sequence; }
  // All reports are acknowledged or synced to the disk.
  bool IsDurable() const { return empty() || flushed_ >= last(); }

  // Reports are written if the coordinator has been away for `timeout`, a caller waits for them, or
  // this process is about to end; they are removed once they are acknowledged. `through` and
  // `limit`: those of the ReportSpool.
  SpoolWork NextWork(absl::Time now, bool attached, absl::Duration timeout, uint64_t through,
                     size_t limit);
  // A write has ended at `now`.
  void Written(const SpoolWork& work, bool ok, absl::Time now);

 private:
  bool flushing_ = false;
  absl::Time away_since_ = absl::InfinitePast();
  // When the last write began.
  absl::Time spooled_at_ = absl::InfinitePast();
  // The last write failed: the next attempt is not before this time. Infinite past: it succeeded.
  absl::Time retry_at_ = absl::InfinitePast();
  // A caller waits for all reports up to this one.
  uint64_t settle_ = 0;
  // All reports up to these are in the spool; are synced; could not be written at the last attempt.
  uint64_t spooled_ = 0;
  uint64_t flushed_ = 0;
  uint64_t unspooled_ = 0;
};

}  // namespace muster::control

#endif  // MUSTER_WORKER_CONTROL_SPOOLED_OUTBOX_H_
