// Simulated time: scheduled events in the order of their time. Only events advance the clock.
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

// The clock, the random numbers, and the log of one simulated run, shared by all its parts.
class Timeline {
 public:
  // story: receives lines that describe what happened; may be null.
  Timeline(uint64_t seed, std::string* story) : dice_(random::Mix(seed + 1)), story_(story) {}

  absl::Time now() const { return now_; }
  void At(absl::Time when, std::function<void()> what) {
    events_.push_back({std::max(when, now_), ++number_, std::move(what)});
    std::push_heap(events_.begin(), events_.end());
  }
  void After(absl::Duration delay, std::function<void()> what) {
    At(now_ + delay, std::move(what));
  }
  // Runs the next event, unless its time is after `end`. False: there was no event.
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

  // ---- Random numbers.
  uint32_t Pick(uint64_t bound) { return static_cast<uint32_t>(dice_.Below(bound)); }
  bool OneIn(uint64_t bound) { return dice_.Below(bound) == 0; }
  absl::Duration Between(double low, double high) {
    return absl::Seconds(dice_.Uniform(low, high));
  }
  // Returns the delay of timers on this machine: small, but nearly as long as leases allow while
  // the machine is very busy. All processes of the machine have the same delay.
  absl::Duration Lateness(const std::string& machine) {
    Busy& busy = busy_[machine];
    if (now_ >= busy.until) busy = {now_ + absl::Seconds(4), Between(0, OneIn(3) ? 1.2 : 0.05)};
    return busy.late;
  }
  double Uniform(double low, double high) { return dice_.Uniform(low, high); }

  // ---- The log.
  template <typename... Parts>
  void Tell(const Parts&... parts) {
    if (story_ == nullptr) return;
    absl::StrAppend(
        story_, absl::FormatDuration(absl::Trunc(now_ - absl::UnixEpoch(), absl::Milliseconds(1))),
        "  ", parts..., "\n");
  }
  // Reports a violation. Only the first one is kept.
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
    // The top of the heap is the earliest event.
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
