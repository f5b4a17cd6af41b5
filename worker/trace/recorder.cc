#include "worker/trace/recorder.h"

#include <chrono>

namespace muster::trace {

int64_t Recorder::Now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

std::vector<Event> Recorder::Stop() {
  on_ = false;
  return std::exchange(events_, {});
}

void Recorder::Span(Lane lane, std::string name, int64_t begin, int64_t bytes) {
  if (!on_) return;
  events_.push_back({Event::Kind::kSpan, lane, std::move(name), begin, Now(), bytes});
}

void Recorder::Mark(Lane lane, std::string name) {
  if (!on_) return;
  const int64_t now = Now();
  events_.push_back({Event::Kind::kMark, lane, std::move(name), now, now});
}

void Recorder::Level(std::string name, int64_t bytes) {
  if (!on_) return;
  const int64_t now = Now();
  events_.push_back({Event::Kind::kLevel, Lane::kUnits, std::move(name), now, now, bytes});
}

}  // namespace muster::trace
