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

uint32_t Slots::free(const std::string& node) const {
  const auto found = free_.find(node);
  return found == free_.end() ? 0 : static_cast<uint32_t>(found->second.size());
}

std::optional<std::vector<Slot>> Slots::Place(uint32_t world_size,
                                              const std::set<std::string>& avoid) {
  if (free() < world_size) return std::nullopt;
  std::vector<std::string> nodes;
  for (const auto& [node, slots] : free_) nodes.push_back(node);
  std::stable_sort(nodes.begin(), nodes.end(), [&](const std::string& a, const std::string& b) {
    if (avoid.contains(a) != avoid.contains(b)) return avoid.contains(b);
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

std::vector<Decision> PlaceInLine(std::vector<Waiting> line, Slots slots) {
  std::sort(line.begin(), line.end(), [](const Waiting& a, const Waiting& b) {
    if (a.started != b.started) return a.started;
    if (a.priority != b.priority) return a.priority > b.priority;
    return a.number < b.number;
  });
  std::vector<Decision> decisions;
  const Waiting* blocking = nullptr;
  for (const Waiting& job : line) {
    Decision decision{.id = job.id};
    if (blocking == nullptr) decision.placed = slots.Place(job.world_size, job.avoid);
    if (blocking != nullptr) {
      decision.reason = absl::StrCat("waits behind job '", blocking->id, "'");
      if (blocking->started && !job.started) {
        absl::StrAppend(&decision.reason, ", which starts again");
      } else if (blocking->priority != job.priority) {
        absl::StrAppend(&decision.reason, " of priority ", blocking->priority);
      }
    } else if (!decision.placed.has_value()) {
      decision.reason = slots.Shortage(job.world_size);
      blocking = &job;
    }
    decisions.push_back(std::move(decision));
  }
  return decisions;
}

}  // namespace muster::jobs
