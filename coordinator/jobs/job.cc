#include "coordinator/jobs/job.h"

#include <algorithm>
#include <cstdint>

namespace muster::jobs {

bool JobLife::time_up() const {
  if (const auto* ended = std::get_if<life::Ended>(&phase)) return ended->time_up;
  const auto* stopping = std::get_if<life::Stopping>(&phase);
  return stopping != nullptr && stopping->why == life::Stopping::Why::kTimeIsUp;
}

absl::Time JobLife::not_before() const {
  const auto* recovering = std::get_if<life::Recovering>(&phase);
  const auto* waiting =
      recovering == nullptr ? nullptr : std::get_if<life::Waiting>(&recovering->how);
  return waiting == nullptr ? absl::InfinitePast() : waiting->not_before;
}

absl::Time JobLife::end_time() const {
  const auto* ended = std::get_if<life::Ended>(&phase);
  return ended == nullptr ? absl::InfinitePast() : ended->time;
}

bool JobLife::halted() const {
  const auto* paused = std::get_if<life::Paused>(&phase);
  return paused != nullptr && std::holds_alternative<life::Halted>(paused->how);
}

uint64_t TotalSteps(const JobFields& job) {
  const uint64_t told = job.fit_steps > 0 ? job.fit_steps : job.plan.total_steps;
  const bool complete = job.state() == State::kSucceeded && job.state_reason.empty();
  return complete ? std::min(told, job.step) : told;
}

}  // namespace muster::jobs
