// Which jobs get which slots. The first job in the line that does not fit the free slots has a
// reservation: jobs behind it start only if that does not delay it (backfill). So small jobs cannot
// keep a large job waiting for ever. A job that would not fit even if everything were free waits
// until more slots are offered, and does not delay other jobs. Jobs on GPUs and jobs on CPUs stand
// in lines of their own. Pure.
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
#include "coordinator/jobs/job.h"

namespace muster::jobs {

struct Slot {
  std::string node;
  uint32_t slot = 0;

  bool operator==(const Slot&) const = default;
};

// "3 slots", "1 GPU".
std::string CountOf(uint32_t slots, Device device);

// The slots of one kind of device of attached agents.
class Slots {
 public:
  explicit Slots(Device device = Device::kCpu) : device_(device) {}

  // `protocol`: that of the node's workers. Workers of two protocols cannot run collectives
  // together.
  void Offer(const std::string& node, const std::vector<uint32_t>& slots, uint32_t protocol = 0);
  // A slot that its node does not offer (any more) is ignored.
  void Use(const Slot& slot);

  uint32_t offered() const { return offered_; }
  uint32_t free() const;
  uint32_t free(const std::string& node) const;
  bool IsFree(const Slot& slot) const;

  // Takes and returns one slot per rank, all on nodes of this protocol. Nodes with the most free
  // slots come first (then by name), so that a job uses few nodes. Absent if there are too few
  // slots; then none is taken. `avoid`: nodes whose slots are taken only if there are no others.
  std::optional<std::vector<Slot>> Place(uint32_t protocol, uint32_t world_size,
                                         const std::set<std::string>& avoid = {});
  // By protocol, the newest first.
  std::map<uint32_t, uint32_t, std::greater<>> FreeByProtocol() const;

  // "needs 4 GPUs; 2 are offered by 1 node, 0 of them free".
  std::string Shortage(uint32_t world_size) const;

 private:
  const Device device_;
  uint32_t offered_ = 0;
  bool any_node_ = false;
  std::map<std::string, uint32_t> protocols_;
  std::map<std::string, std::vector<uint32_t>> free_;
};

// A job in line, for its first start (life::Queued) or for another (life::Waiting).
struct Waiting {
  std::string id;
  // Of submission.
  uint64_t number = 0;
  int32_t priority = 0;
  // It has run before. Such a job comes before every job that has not, so that a running job does
  // not lose its turn by a failure.
  bool started = false;
  uint32_t world_size = 1;
  // Nodes that it uses only if there are no others.
  std::set<std::string> avoid = {};
  // It runs no longer than this; infinite: unknown.
  absl::Duration time_limit = absl::InfiniteDuration();
};

// A job that holds slots: in any phase with processes, not only life::Running.
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

// Decides for each job in the line, in this order: those that have started before, then the highest
// priority, then the earliest submission. All jobs and slots are of one kind of device.
//
// The first job that does not fit (of those that ever could) has a reservation. If the ends of
// enough running jobs are known, it begins at the time by which these have ended. A later job may
// start now if it ends before then, if enough slots are left for the reservation at that time
// without the slots of the later job, or if it runs on nodes of another protocol. If the ends are
// not known, a later job may start only if the reservation gets its slots equally early without the
// later job's slots, in whatever order the running jobs end.
std::vector<Decision> PlaceInLine(std::vector<Waiting> line, Slots slots,
                                  std::vector<Running> running, absl::Time now);

}  // namespace muster::jobs

#endif  // MUSTER_COORDINATOR_JOBS_PLACEMENT_H_
