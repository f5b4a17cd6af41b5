#include "coordinator/service/metrics_stream.h"

#include <algorithm>
#include <limits>

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
  // Behind a full page there may be more of its kind, to go before what the other page has further
  // on.
  uint64_t horizon = std::numeric_limits<uint64_t>::max();
  if (steps.size() == limit) horizon = std::min(horizon, steps.back().step);
  if (passes.size() == limit) horizon = std::min(horizon, passes.back().step);
  std::deque<v1::StepMetrics> page;
  auto step = steps.begin();
  auto pass = passes.begin();
  while (step != steps.end() || pass != passes.end()) {
    if (pass == passes.end() || (step != steps.end() && step->step <= pass->step)) {
      if (step->step > horizon) break;
      *position = {step->step + 1, std::max(position->validation, step->step)};
      page.push_back(ToWire(*step++));
    } else {
      if (pass->step > horizon) break;
      *position = {std::max(position->step, pass->step + 1), pass->step + 1};
      page.push_back(ToWire(*pass++));
    }
  }
  return page;
}

}  // namespace muster::service
