// Which jobs get which slots. The line is strict: the first job in it that does not fit blocks those
// behind it, also those that would fit. So a big job is never starved by small ones; the price is that
// slots may stay free while it waits. Pure.
#ifndef MUSTER_COORDINATOR_JOBS_PLACEMENT_H_
#define MUSTER_COORDINATOR_JOBS_PLACEMENT_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
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
  uint32_t free(const std::string& node) const;
  uint32_t nodes() const { return static_cast<uint32_t>(free_.size()); }

  // One slot per rank: the nodes in the order of their free slots, the emptiest first (then by
  // name), so that a job spans few nodes. Takes them. Absent, and nothing taken, when there are too
  // few.
  // avoid: nodes whose slots are taken only when there are no others.
  std::optional<std::vector<Slot>> Place(uint32_t world_size,
                                         const std::set<std::string>& avoid = {});

  // "needs 4 slots; 2 are offered by 1 node, 0 of them free".
  std::string Shortage(uint32_t world_size) const;

 private:
  uint32_t offered_ = 0;
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
};

struct Decision {
  std::string id;
  // One slot per rank; absent: it waits.
  std::optional<std::vector<Slot>> placed;
  // Why it waits: what is missing, or which job is ahead of it.
  std::string reason;
};

// What becomes of each job in line, in its order: those that have started, then the highest priority,
// then who came first.
std::vector<Decision> PlaceInLine(std::vector<Waiting> line, Slots slots);

}  // namespace muster::jobs

#endif  // MUSTER_COORDINATOR_JOBS_PLACEMENT_H_
