#include "coordinator/jobs/placement.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/str_cat.h"

namespace muster::jobs {

std::string CountOf(uint32_t slots, Device device) {
  return absl::StrCat(slots, device == Device::kCuda ? " GPU" : " slot", slots == 1 ? "" : "s");
}

void Slots::Offer(const std::string& node, const std::vector<uint32_t>& slots, uint32_t protocol) {
  any_node_ = true;
  if (slots.empty()) return;
  offered_ += static_cast<uint32_t>(slots.size());
  protocols_[node] = protocol;
  auto& free = free_[node];
  free.insert(free.end(), slots.begin(), slots.end());
}

void Slots::Use(const Slot& slot) {
  const auto node = free_.find(slot.node);
  if (node != free_.end()) std::erase(node->second, slot.slot);
}

bool Slots::IsFree(const Slot& slot) const {
  const auto node = free_.find(slot.node);
  return node != free_.end() &&
         std::find(node->second.begin(), node->second.end(), slot.slot) != node->second.end();
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

std::map<uint32_t, uint32_t, std::greater<>> Slots::FreeByProtocol() const {
  std::map<uint32_t, uint32_t, std::greater<>> total;
  for (const auto& [node, slots] : free_) {
    total[protocols_.at(node)] += static_cast<uint32_t>(slots.size());
  }
  return total;
}

std::optional<std::vector<Slot>> Slots::Place(uint32_t protocol, uint32_t world_size,
                                              const std::set<std::string>& avoid) {
  const auto groups = FreeByProtocol();
  const auto group = groups.find(protocol);
  if (group == groups.end() || group->second < world_size) return std::nullopt;
  std::vector<std::string> nodes;
  for (const auto& [node, spoken] : protocols_) {
    if (spoken == protocol) nodes.push_back(node);
  }
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
  std::string text = absl::StrCat("needs ", CountOf(world_size, device_), "; ");
  if (offered_ == 0) {
    return absl::StrCat(text, any_node_ ? "no attached agent offers any" : "no agent is attached");
  }
  absl::StrAppend(&text, offered_, offered_ == 1 ? " is offered by " : " are offered by ",
                  free_.size(), free_.size() == 1 ? " node, " : " nodes, ", free(),
                  " of them free");
  if (free() >= world_size) {
    absl::StrAppend(&text, ", but not enough of them on nodes whose programs have one version");
  }
  return text;
}

namespace {

// The slots reserved for the first job in line that does not fit.
class Reservation {
 public:
  // Makes a reservation on nodes of `protocol`. `free` of their slots are free, and `running` holds
  // the others.
  Reservation(uint32_t needed, uint32_t protocol, uint32_t free,
              const std::vector<PlacedJob>& running)
      : protocol_(protocol), needed_(needed), start_(StartOf(needed, free, running)) {
    spare_ = start_ == absl::InfiniteFuture() ? SpareInAnyOrder(free, running)
                                              : FreeAt(start_, free, running) - needed_;
  }

  uint32_t protocol() const { return protocol_; }
  // Returns whether this job may start on nodes of that protocol without delaying the reservation.
  bool Allows(const WaitingJob& job, absl::Time now) const {
    return EndsInTime(job, now) || job.world_size <= spare_;
  }
  // Records that the job was started.
  void Take(const WaitingJob& job, absl::Time now) {
    if (!EndsInTime(job, now)) spare_ -= job.world_size;
  }

 private:
  bool EndsInTime(const WaitingJob& job, absl::Time now) const {
    return start_ != absl::InfiniteFuture() && now + job.time_limit <= start_;
  }

  static uint32_t FreeAt(absl::Time time, uint32_t free, const std::vector<PlacedJob>& running) {
    for (const PlacedJob& job : running) {
      if (job.end <= time && job.end != absl::InfiniteFuture()) free += job.slots;
    }
    return free;
  }

  // Returns the time by which this number of slots is free at the latest.
  static absl::Time StartOf(uint32_t needed, uint32_t free, const std::vector<PlacedJob>& running) {
    std::vector<absl::Time> ends;
    for (const PlacedJob& job : running) ends.push_back(job.end);
    std::sort(ends.begin(), ends.end());
    for (const absl::Time end : ends) {
      if (FreeAt(end, free, running) >= needed) return end;
    }
    return absl::InfiniteFuture();
  }

  // Returns the slots that are left when the reserved job starts, whatever the order in which the
  // running jobs end. This is the smallest sum of free slots that is enough for the job, over all
  // sets of ended jobs, minus the job's slots.
  uint32_t SpareInAnyOrder(uint32_t free, const std::vector<PlacedJob>& running) const {
    std::vector<bool> reachable(free + 1, false);
    reachable[free] = true;
    for (const PlacedJob& job : running) {
      reachable.resize(reachable.size() + job.slots, false);
      for (size_t sum = reachable.size(); sum-- > job.slots;) {
        if (reachable[sum - job.slots]) reachable[sum] = true;
      }
    }
    for (size_t sum = needed_; sum < reachable.size(); ++sum) {
      if (reachable[sum]) return static_cast<uint32_t>(sum) - needed_;
    }
    return 0;
  }

  const uint32_t protocol_;
  const uint32_t needed_;
  const absl::Time start_;
  uint32_t spare_ = 0;
};

std::string BehindOf(const WaitingJob& first, const WaitingJob& job) {
  std::string reason = absl::StrCat("waits behind job '", first.id, "'");
  if (first.started && !job.started) {
    absl::StrAppend(&reason, ", which starts again");
  } else if (first.priority != job.priority) {
    absl::StrAppend(&reason, " of priority ", first.priority);
  }
  return reason;
}

}  // namespace

std::vector<Decision> PlaceJobs(std::vector<WaitingJob> line, Slots slots,
                                std::vector<PlacedJob> running, absl::Time now) {
  std::sort(line.begin(), line.end(), [](const WaitingJob& a, const WaitingJob& b) {
    if (a.started != b.started) return a.started;
    if (a.priority != b.priority) return a.priority > b.priority;
    return a.number < b.number;
  });
  // The slots after all running jobs have ended, by protocol, the newest first.
  auto capacity = slots.FreeByProtocol();
  for (const PlacedJob& job : running) capacity[job.protocol] += job.slots;
  std::vector<Decision> decisions;
  const WaitingJob* first = nullptr;
  std::optional<Reservation> reservation;
  for (const WaitingJob& job : line) {
    Decision& decision = decisions.emplace_back(Decision{.id = job.id});
    const auto fits = std::find_if(capacity.begin(), capacity.end(), [&](const auto& entry) {
      return entry.second >= job.world_size;
    });
    if (fits == capacity.end()) {
      decision.reason = slots.Shortage(job.world_size);
      continue;
    }
    for (const auto& [protocol, free] : slots.FreeByProtocol()) {
      if (free < job.world_size) continue;
      const bool reserved = first != nullptr && protocol == reservation->protocol();
      if (reserved && !reservation->Allows(job, now)) continue;
      decision.placed = slots.Place(protocol, job.world_size, job.avoid);
      if (reserved) reservation->Take(job, now);
      running.push_back({job.world_size, now + job.time_limit, protocol});
      break;
    }
    if (decision.placed.has_value()) continue;
    if (first != nullptr) {
      decision.reason = BehindOf(*first, job);
      continue;
    }
    decision.reason = slots.Shortage(job.world_size);
    first = &job;
    std::vector<PlacedJob> there = running;
    std::erase_if(there, [&](const PlacedJob& one) { return one.protocol != fits->first; });
    reservation.emplace(job.world_size, fits->first, slots.FreeByProtocol()[fits->first], there);
  }
  return decisions;
}

}  // namespace muster::jobs
