#include "coordinator/service/metrics_stream.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "common/status/status.h"
#include "coordinator/service/wire.h"

namespace muster::service {

MetricsPosition StartOf(const v1::StreamMetricsRequest& request) {
  if (request.has_from_validation()) return {request.from_step(), request.from_validation()};
  return {request.from_step(), request.from_step() <= 1 ? 0 : request.from_step()};
}

absl::StatusOr<std::deque<v1::StepMetrics>> ReadMetrics(store::Store* store,
                                                        const std::string& job_id, size_t limit,
                                                        MetricsPosition* position) {
  ASSIGN_OR_RETURN(const auto steps, store->ReadSteps(job_id, position->step, limit));
  ASSIGN_OR_RETURN(const auto passes, store->ReadValidations(job_id, position->validation, limit));
  // A full page may be followed by more rows of its kind, which come before the rows of the other
  // page that have later steps.
  uint64_t horizon = std::numeric_limits<uint64_t>::max();
  if (steps.size() == limit) horizon = std::min(horizon, steps.back().step);
  if (passes.size() == limit) horizon = std::min(horizon, passes.back().step);
  std::deque<v1::StepMetrics> page;
  auto step = steps.begin();
  auto pass = passes.begin();
  while (step != steps.end() || pass != passes.end()) {
    const bool step_is_next =
        pass == passes.end() || (step != steps.end() && step->step <= pass->step);
    const store::MetricsRow& row = step_is_next ? *step : *pass;
    if (row.step > horizon) break;
    absl::StatusOr<v1::StepMetrics> entry = step_is_next ? StepToWire(row) : PassToWire(row);
    if (!entry.ok()) {
      if (page.empty()) return entry.status();
      break;  // the entries before it are sent first; the next call returns the error
    }
    page.push_back(*std::move(entry));
    if (step_is_next) {
      *position = {row.step + 1, std::max(position->validation, row.step)};
      ++step;
    } else {
      *position = {std::max(position->step, row.step + 1), row.step + 1};
      ++pass;
    }
  }
  return page;
}

}  // namespace muster::service
