// Decides from the heartbeats of a job's ranks which rank hangs. Pure.
//
// A rank stands still while nothing in its heartbeats changes: its step, what it does, its activity
// (batches, blocks of bytes), and the numbers of collectives that it has begun and ended. A rank
// that changes any of these makes progress. How long an activity takes does not matter.
//
// One rank is behind another if it has begun fewer collectives. A rank that waits in a collective
// waits for a rank that has not begun it, so the rank that has begun the fewest waits for no other
// rank. A rank hangs if it has stood still for longer than its ProgressLimits allow and no rank
// that makes progress is behind it. Therefore:
// - While the rank that is behind all the others makes progress (a slow validation, a slow save),
//   the others wait for it and no rank hangs, however long this takes. When the wait is over, the
//   time of those that have waited starts again, because their next heartbeat may come later than
//   that of the rank for which they waited.
// - If the rank that is behind stands still, this rank hangs and no other one, even if another rank
//   stood still first. Among several that are equally far behind it is the one that has ended the
//   fewest collectives; among equal ones, the one that has stood still the longest.
// - A rank that stands still while others make progress hangs if none of those is behind it.
//
// Ranks that call different collectives wait for each other for ever, and would do so again after
// another start. Two things show it:
// - Two collectives that have not ended have the same number of the same communicator but different
//   names. All ranks must have the same operation there, so this is certain at once, however old
//   the heartbeats are.
// - Each of two ranks is in a collective of a communicator in which the other one has not come so
//   far, and both have stood still for two leases. The communicators for control and for files are
//   left out, because ranks may issue their operations before or after those of others.
#ifndef MUSTER_COORDINATOR_MEMBERSHIP_WATCHDOG_H_
#define MUSTER_COORDINATOR_MEMBERSHIP_WATCHDOG_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace muster::membership {

// How long a rank may make no progress before it counts as hung.
struct ProgressLimits {
  absl::Duration no_progress;
  // The same before its session has started, while it loads its model and data.
  absl::Duration startup;
};

// A collective that a rank has begun.
struct Collective {
  // From 1 within a generation, over all communicators.
  uint64_t number = 0;
  // "all_reduce 'bucket 2' step 120".
  std::string name;
  bool ended = false;
  // Its communicator, and its number in this communicator, from 1 and the same on all ranks. The
  // number is 0 if the worker does not tell it.
  uint32_t communicator = 0;
  uint64_t of_communicator = 0;

  bool operator==(const Collective&) const = default;
};

struct Collectives {
  uint64_t begun = 0;
  uint64_t ended = 0;
  // Oldest first.
  std::vector<Collective> newest;
};

// A rank that should make progress.
struct Watched {
  uint32_t rank = 0;
  // It is silent, so it is not known whether it makes progress. Its lease decides about it; until
  // then the ranks that wait for it do not count as hung.
  bool silent = false;
  bool session_started = false;
  ProgressLimits limits;
  // When it last made progress.
  absl::Time moved;
  // When it was last seen to wait for another one (WaitForOthers).
  absl::Time waited = absl::InfinitePast();
  uint64_t step = 0;
  // A description of what it does, for people.
  std::string progress;
  const Collectives* collectives = nullptr;
};

struct Hang {
  uint32_t rank = 0;
  // Continues a sentence that begins with the rank: "made no progress for 30s at step 5".
  std::string reason;
  // The last collectives of this rank, and of the rank that is furthest ahead of it: "rank 1:
  // number 40, all_reduce 'bucket 2' step 5, ended".
  std::vector<std::string> collectives;
  // Another start would end in the same way.
  bool permanent = false;
};

// Which ranks wait for a rank that makes progress and has begun fewer collectives. In the order of
// `ranks`.
std::vector<bool> WaitForOthers(const std::vector<Watched>& ranks, absl::Time now);

// The rank that hangs; absent while no rank of this job hangs.
std::optional<Hang> FindHang(const std::vector<Watched>& ranks, absl::Duration lease,
                             absl::Time now);

}  // namespace muster::membership

#endif  // MUSTER_COORDINATOR_MEMBERSHIP_WATCHDOG_H_
