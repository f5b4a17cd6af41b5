// Which jobs get which slots. The first job in line that does not fit the free slots has a
// reservation: jobs behind it start only where that does not delay it (backfill). So a big job is
// never starved by small ones. A job that would not fit if everything were free waits for more
// slots to be offered, and holds up nobody. Pure.
#ifndef MUSTER_COORDINATOR_JOBS_PLACEMENT_H_
#define MUSTER_COORDINATOR_JOBS_PLACEMENT_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace muster::jobs {

struct Slot {
  std::string node;
  uint32_t slot = 0;

  bool operator==(const Slot&) const = default;
};

// The slots of attached agents.
class Slots {
 public:
  // protocol: which its workers speak. Those of two protocols do not understand each other's
  // collectives.
  void Offer(const std::string& node, uint32_t slots, uint32_t protocol = 0);
  // A slot of a node that does not offer it (any more) is ignored.
  void Use(const Slot& slot);

  uint32_t offered() const { return offered_; }
  uint32_t free() const;
  uint32_t free(const std::string& node) const;
  uint32_t nodes() const { return static_cast<uint32_t>(free_.size()); }

  // One slot per rank, on nodes of one protocol, of the newest that has enough: the nodes in the
  // order of their free slots, the emptiest first (then by name), so that a job spans few nodes.
  // Takes them. Absent, and nothing taken, when there are too few. avoid: nodes whose slots are
  // taken only when there are no others.
  std::optional<std::vector<Slot>> Place(uint32_t world_size,
                                         const std::set<std::string>& avoid = {});
  // The same on nodes of this protocol.
  std::optional<std::vector<Slot>> PlaceOn(uint32_t protocol, uint32_t world_size,
                                           const std::set<std::string>& avoid = {});
  // By protocol, the newest first.
  std::map<uint32_t, uint32_t, std::greater<>> FreeByProtocol() const;

  // "needs 4 slots; 2 are offered by 1 node, 0 of them free".
  std::string Shortage(uint32_t world_size) const;

 private:
  uint32_t offered_ = 0;
  std::map<std::string, uint32_t> protocols_;
  std::map<std::string, std::vector<uint32_t>> free_;
};

// A job in line.
struct Waiting {
  std::string id;
  // Of submission.
  uint64_t number = 0;
  int32_t priority = 0;
  // It has run before: it stands before every job that has not, so that a failure does not make a
  // running job give way.
  bool started = false;
  uint32_t world_size = 1;
  // Nodes that it takes only when there are no others.
  std::set<std::string> avoid = {};
  // It runs no longer than this; infinite: unknown.
  absl::Duration time_limit = absl::InfiniteDuration();
};

// A job that holds slots.
struct Running {
  uint32_t slots = 0;
  // It ends by then at the latest; the infinite future: unknown.
  absl::Time end = absl::InfiniteFuture();
  // Of the nodes that it runs on.
  uint32_t protocol = 0;
};

struct Decision {
  std::string id;
  // One slot per rank; absent: it waits.
  std::optional<std::vector<Slot>> placed;
  // Why it waits: what is missing, or which job is ahead of it.
  std::string reason;
};

// What becomes of each job in line, in its order: those that have started, then the highest
// priority, then who came first.
//
// The first job that does not fit (of those that ever could) has a reservation. Where the ends of
// enough running jobs are known, it is for the time by which they have ended; a job behind may
// start now where it ends before then, or where enough slots are left for the reservation at that
// time without its own, or where it runs on nodes of another protocol. Where they are not known, a
// job behind may start only where the reservation is served as early without its slots in whatever
// order the running ones end.
std::vector<Decision> PlaceInLine(std::vector<Waiting> line, Slots slots,
                                  std::vector<Running> running, absl::Time now);

}  // namespace muster::jobs

#endif  // MUSTER_COORDINATOR_JOBS_PLACEMENT_H_
