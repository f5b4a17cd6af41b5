#include "coordinator/jobs/placement.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace muster::jobs {

void Slots::Offer(const std::string& node, uint32_t slots) {
  offered_ += slots;
  auto& free = free_[node];
  for (uint32_t slot = 0; slot < slots; ++slot) free.push_back(slot);
}

void Slots::Use(const Slot& slot) {
  const auto node = free_.find(slot.node);
  if (node != free_.end()) std::erase(node->second, slot.slot);
}

uint32_t Slots::free() const {
  uint32_t total = 0;
  for (const auto& [node, slots] : free_) total += static_cast<uint32_t>(slots.size());
  return total;
}

std::optional<std::vector<Slot>> Slots::Place(uint32_t world_size) {
  if (free() < world_size) return std::nullopt;
  std::vector<std::string> nodes;
  for (const auto& [node, slots] : free_) nodes.push_back(node);
  std::stable_sort(nodes.begin(), nodes.end(), [&](const std::string& a, const std::string& b) {
    return free_[a].size() > free_[b].size();
  });
  std::vector<Slot> placed;
  for (const std::string& node : nodes) {
    auto& slots = free_[node];
    while (placed.size() < world_size && !slots.empty()) {
      placed.push_back({node, slots.front()});
      slots.erase(slots.begin());
    }
  }
  return placed;
}

std::string Slots::Shortage(uint32_t world_size) const {
  if (offered_ == 0) {
    return absl::StrCat("needs ", world_size, world_size == 1 ? " slot" : " slots",
                        "; no agent is attached");
  }
  return absl::StrCat("needs ", world_size, world_size == 1 ? " slot; " : " slots; ", offered_,
                      offered_ == 1 ? " is offered by " : " are offered by ", nodes(),
                      nodes() == 1 ? " node, " : " nodes, ", free(), " of them free");
}

}  // namespace muster::jobs
