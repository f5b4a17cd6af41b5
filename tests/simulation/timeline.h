// Simulated time: what is to happen, in the order of its time. Nothing else moves the clock.
#ifndef MUSTER_TESTS_SIMULATION_TIMELINE_H_
#define MUSTER_TESTS_SIMULATION_TIMELINE_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/random/splitmix.h"

namespace muster::simulation {

// What all parts of one simulated run share: its clock, its dice, and what is told of it.
class Timeline {
 public:
  // story: what happened, in lines; may be null.
  Timeline(uint64_t seed, std::string* story) : dice_(random::Mix(seed + 1)), story_(story) {}

  absl::Time now() const { return now_; }
  void At(absl::Time when, std::function<void()> what) {
    events_.push_back({std::max(when, now_), ++number_, std::move(what)});
    std::push_heap(events_.begin(), events_.end());
  }
  void After(absl::Duration delay, std::function<void()> what) {
    At(now_ + delay, std::move(what));
  }
  // Lets the next thing happen, unless it lies behind `end`. False: nothing did.
  bool Next(absl::Time end) {
    if (events_.empty() || events_.front().when > end) {
      now_ = std::max(now_, end);
      return false;
    }
    std::pop_heap(events_.begin(), events_.end());
    Event event = std::move(events_.back());
    events_.pop_back();
    now_ = event.when;
    ++happened_;
    event.what();
    return true;
  }
  uint64_t happened() const { return happened_; }

  // ---- Dice.
  uint32_t Pick(uint64_t bound) { return static_cast<uint32_t>(dice_.Below(bound)); }
  bool OneIn(uint64_t bound) { return dice_.Below(bound) == 0; }
  absl::Duration Between(double low, double high) {
    return absl::Seconds(dice_.Uniform(low, high));
  }
  // By how much a timer on this machine is late, and what follows from it: a little, and while the
  // machine is very busy nearly as much as leases leave room for. All its processes are late alike.
  absl::Duration Lateness(const std::string& machine) {
    Busy& busy = busy_[machine];
    if (now_ >= busy.until) busy = {now_ + absl::Seconds(4), Between(0, OneIn(3) ? 1.2 : 0.05)};
    return busy.late;
  }
  double Uniform(double low, double high) { return dice_.Uniform(low, high); }

  // ---- What is told.
  template <typename... Parts>
  void Tell(const Parts&... parts) {
    if (story_ == nullptr) return;
    absl::StrAppend(
        story_, absl::FormatDuration(absl::Trunc(now_ - absl::UnixEpoch(), absl::Milliseconds(1))),
        "  ", parts..., "\n");
  }
  // What must not be. The first one counts.
  template <typename... Parts>
  void Wrong(const Parts&... parts) {
    if (wrong_.empty()) wrong_ = absl::StrCat(parts...);
    Tell("WRONG: ", parts...);
  }
  const std::string& wrong() const { return wrong_; }

 private:
  struct Event {
    absl::Time when;
    uint64_t number = 0;
    std::function<void()> what;
    // The heap's top is the earliest.
    bool operator<(const Event& other) const {
      return when != other.when ? when > other.when : number > other.number;
    }
  };

  struct Busy {
    absl::Time until = absl::InfinitePast();
    absl::Duration late;
  };

  absl::Time now_ = absl::UnixEpoch();
  uint64_t number_ = 0;
  uint64_t happened_ = 0;
  std::vector<Event> events_;
  random::Splitmix dice_;
  std::map<std::string, Busy> busy_;  // by machine
  std::string* const story_;
  std::string wrong_;
};

}  // namespace muster::simulation

#endif  // MUSTER_TESTS_SIMULATION_TIMELINE_H_
