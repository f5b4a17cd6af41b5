// The watchdog. It decides from the heartbeats of a job's ranks which rank hangs. Pure.
//
// A rank stands still while nothing in its heartbeats changes: step, description of its work,
// activity (batches, blocks of bytes), and the numbers of begun and ended collectives. A rank that
// changes any of these makes progress, however long each activity takes.
//
// A rank is behind another rank if it has begun fewer collectives. A rank that waits in a
// collective waits for a rank that has not begun this collective. So the rank that has begun the
// fewest collectives waits for no other rank. A rank hangs on two conditions: it has stood still
// for longer than its ProgressLimits allow, and every rank behind it stands still. Therefore:
// - The rank behind all others makes progress (a slow validation, a slow save): the others wait,
//   and no rank hangs, however long this takes. When the wait is over, the time of the waiting
//   ranks starts again, because their next heartbeats may come late.
// - The rank behind all others stands still: this rank hangs, and no other rank does, even if
//   another rank stood still first. Among several ranks that are equally far behind, the rank with
//   the fewest ended collectives hangs. Among equal ones, the rank that has stood still the longest
//   hangs.
// - A rank stands still while other ranks make progress: it hangs if none of these is behind it.
//
// Ranks that call different collectives wait for each other for ever, also after another start. Two
// signs show this:
// - Two collectives that have not ended have the same number in the same communicator, but
//   different names. All ranks must call the same collective with this number, so the sign is
//   certain at once, however old the heartbeats are.
// - Two ranks have stood still for two leases, and each is in a collective that the other rank has
//   not begun. The communicators for control and for files do not count: their operations have no
//   fixed order relative to those of other communicators.
#ifndef MUSTER_COORDINATOR_MEMBERSHIP_WATCHDOG_H_
#define MUSTER_COORDINATOR_MEMBERSHIP_WATCHDOG_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace muster::membership {

// The time for which a rank may make no progress before it counts as hung.
struct ProgressLimits {
  absl::Duration no_progress;
  // The limit before the rank's session has started, while it loads its model and data.
  absl::Duration startup;
};

// A collective that a rank has begun.
struct Collective {
  // The collective's number from 1 within a generation, over all communicators.
  uint64_t number = 0;
  // The collective's description: "all_reduce 'bucket 2' step 120".
  std::string name;
  bool ended = false;
  // The communicator, and the collective's number in it, from 1 and the same on all ranks. The
  // number is 0 if the worker does not report it.
  uint32_t communicator = 0;
  uint64_t of_communicator = 0;

  bool operator==(const Collective&) const = default;
};

struct Collectives {
  uint64_t begun = 0;
  uint64_t ended = 0;
  // The newest collectives, oldest first.
  std::vector<Collective> newest;
};

// A rank that should make progress.
struct Watched {
  uint32_t rank = 0;
  // Whether the rank is silent, so that its progress is not known. Its lease decides about the
  // rank. Until then the ranks that wait for it do not count as hung.
  bool silent = false;
  bool session_started = false;
  ProgressLimits limits;
  // The time at which the rank last made progress.
  absl::Time moved;
  // The time at which the rank was last seen to wait for another rank (WaitForOthers).
  absl::Time waited = absl::InfinitePast();
  uint64_t step = 0;
  // A description of the rank's work, for people.
  std::string progress;
  const Collectives* collectives = nullptr;
};

struct Hang {
  uint32_t rank = 0;
  // The rest of a sentence that begins with the rank: "made no progress for 30s at step 5".
  std::string reason;
  // The last collectives of this rank, and of the rank that is furthest ahead: "rank 1: number 40,
  // all_reduce 'bucket 2' step 5, ended".
  std::vector<std::string> collectives;
  // Whether another start would end in the same way.
  bool permanent = false;
};

// Returns for each rank, in the order of `ranks`, whether it waits for a rank that makes progress
// and has begun fewer collectives.
std::vector<bool> WaitForOthers(const std::vector<Watched>& ranks, absl::Time now);

// Returns the rank that hangs; absent if no rank of this job hangs.
std::optional<Hang> FindHang(const std::vector<Watched>& ranks, absl::Duration lease,
                             absl::Time now);

}  // namespace muster::membership

#endif  // MUSTER_COORDINATOR_MEMBERSHIP_WATCHDOG_H_
