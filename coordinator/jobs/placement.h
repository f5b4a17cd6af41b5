// The placement of jobs on slots. The first job in line that does not fit the free slots gets a
// reservation. Jobs behind it start only if they do not delay it (backfill). So small jobs cannot
// keep a large job waiting for ever. A job that would not fit even if all slots were free waits
// until more slots are offered, and does not delay other jobs. Jobs on GPUs and jobs on CPUs have
// separate lines. Pure.
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

// Returns "3 slots" or "1 GPU".
std::string CountOf(uint32_t slots, Device device);

// The slots for one kind of device that attached agents offer.
class Slots {
 public:
  explicit Slots(Device device = Device::kCpu) : device_(device) {}

  // Adds slots. `protocol`: the protocol of the node's workers. Workers of two protocols cannot run
  // collectives together.
  void Offer(const std::string& node, const std::vector<uint32_t>& slots, uint32_t protocol = 0);
  // Marks a slot as used. A slot that its node does not offer is ignored.
  void Use(const Slot& slot);

  uint32_t offered() const { return offered_; }
  uint32_t free() const;
  uint32_t free(const std::string& node) const;
  bool IsFree(const Slot& slot) const;

  // Takes and returns one slot per rank, all on nodes of this protocol. Nodes with the most free
  // slots come first (then by name), so that a job uses few nodes. Slots of nodes in `avoid` are
  // taken last. Absent if there are too few slots; then none is taken.
  std::optional<std::vector<Slot>> Place(uint32_t protocol, uint32_t world_size,
                                         const std::set<std::string>& avoid = {});
  // The free slots by protocol, the newest first.
  std::map<uint32_t, uint32_t, std::greater<>> FreeByProtocol() const;

  // Returns "needs 4 GPUs; 2 are offered by 1 node, 0 of them free".
  std::string Shortage(uint32_t world_size) const;

 private:
  const Device device_;
  uint32_t offered_ = 0;
  bool any_node_ = false;
  std::map<std::string, uint32_t> protocols_;
  std::map<std::string, std::vector<uint32_t>> free_;
};

// A job in line, for its first start (life::Queued) or for a later start (life::Waiting).
struct WaitingJob {
  std::string id;
  // The job's number in the order of submission.
  uint64_t number = 0;
  int32_t priority = 0;
  // Whether the job has run before. Such a job comes before every job that has not, so that a
  // running job does not lose its turn by a failure.
  bool started = false;
  uint32_t world_size = 1;
  // The nodes that the job uses only if there are no others.
  std::set<std::string> avoid = {};
  // The longest time that the job runs; infinite if unknown.
  absl::Duration time_limit = absl::InfiniteDuration();
};

// A job that holds slots: in any phase with processes, not only life::Running.
struct PlacedJob {
  uint32_t slots = 0;
  // The latest time at which the job ends; the infinite future if unknown.
  absl::Time end = absl::InfiniteFuture();
  // The protocol of the job's nodes.
  uint32_t protocol = 0;
};

struct Decision {
  std::string id;
  // One slot per rank; absent if the job waits.
  std::optional<std::vector<Slot>> placed;
  // The reason of a wait: what is missing, or which job is ahead in line.
  std::string reason;
};

// Decides for each job in the line, in this order: jobs that have started before, then the highest
// priority, then the earliest submission. All jobs and slots are of one kind of device.
//
// The first job that could fit but does not fit now has a reservation. If the ends of enough
// running jobs are known, the reservation begins when these have ended. Then a later job may start
// now in three cases:
// - It ends before the reservation begins.
// - Enough slots are left for the reservation at that time.
// - It runs on nodes of another protocol.
// If the ends are not known, a later job must not delay the reservation, in whatever order the
// running jobs end.
std::vector<Decision> PlaceJobs(std::vector<WaitingJob> line, Slots slots,
                                std::vector<PlacedJob> running, absl::Time now);

}  // namespace muster::jobs

#endif  // MUSTER_COORDINATOR_JOBS_PLACEMENT_H_
