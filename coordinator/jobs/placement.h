// First come first served placement of jobs on slots: the first job in line that does not fit
// blocks those behind it, so no job starves. Pure.
#ifndef MUSTER_COORDINATOR_JOBS_PLACEMENT_H_
#define MUSTER_COORDINATOR_JOBS_PLACEMENT_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace muster::jobs {

struct Slot {
  std::string node;
  uint32_t slot = 0;

  bool operator==(const Slot&) const = default;
};

// The slots of attached agents.
class Slots {
 public:
  void Offer(const std::string& node, uint32_t slots);
  // A slot of a node that does not offer it (any more) is ignored.
  void Use(const Slot& slot);

  uint32_t offered() const { return offered_; }
  uint32_t free() const;
  uint32_t nodes() const { return static_cast<uint32_t>(free_.size()); }

  // One slot per rank: the nodes in the order of their free slots, the emptiest first (then by
  // name), so that a job spans few nodes. Takes them. Absent, and nothing taken, when there are too
  // few.
  std::optional<std::vector<Slot>> Place(uint32_t world_size);

  // "needs 4 slots; 2 are offered by 1 node, 0 of them free".
  std::string Shortage(uint32_t world_size) const;

 private:
  uint32_t offered_ = 0;
  std::map<std::string, std::vector<uint32_t>> free_;
};

}  // namespace muster::jobs

#endif  // MUSTER_COORDINATOR_JOBS_PLACEMENT_H_
