#include "coordinator/service/metrics_stream.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "common/status/status.h"
#include "coordinator/service/wire.h"

namespace muster::service {

MetricsPosition StartOf(const v1::StreamMetricsRequest& request) {
  const uint64_t passes = request.from_step() <= 1 ? 0 : request.from_step();
  return {request.from_step(), request.has_from_validation() ? request.from_validation() : passes,
          request.has_from_test() ? request.from_test() : passes};
}

absl::StatusOr<std::deque<v1::StepMetrics>> ReadMetrics(store::Store* store,
                                                        const std::string& job_id, size_t limit,
                                                        MetricsPosition* position) {
  struct Kind {
    std::vector<store::MetricsRow> rows;
    uint64_t* from;
    absl::StatusOr<v1::StepMetrics> (*to_wire)(const store::MetricsRow& row);
    size_t next = 0;
  };
  // The kinds in the order in which rows of one step are sent.
  Kind kinds[] = {{{}, &position->step, StepToWire},
                  {{}, &position->validation, ValidationToWire},
                  {{}, &position->test, TestToWire}};
  ASSIGN_OR_RETURN(kinds[0].rows,
                   store->ReadMetrics(store::MetricsOf::kSteps, job_id, position->step, limit));
  ASSIGN_OR_RETURN(kinds[1].rows, store->ReadMetrics(store::MetricsOf::kValidations, job_id,
                                                     position->validation, limit));
  ASSIGN_OR_RETURN(kinds[2].rows,
                   store->ReadMetrics(store::MetricsOf::kTests, job_id, position->test, limit));
  // A full page may be followed by more rows of its kind. They come before the rows of other pages
  // with later steps.
  uint64_t horizon = std::numeric_limits<uint64_t>::max();
  for (const Kind& kind : kinds) {
    if (kind.rows.size() == limit) horizon = std::min(horizon, kind.rows.back().step);
  }
  std::deque<v1::StepMetrics> page;
  while (true) {
    Kind* first = nullptr;
    for (Kind& kind : kinds) {
      if (kind.next == kind.rows.size()) continue;
      if (first == nullptr || kind.rows[kind.next].step < first->rows[first->next].step) {
        first = &kind;
      }
    }
    if (first == nullptr) break;
    const store::MetricsRow& row = first->rows[first->next++];
    if (row.step > horizon) break;
    absl::StatusOr<v1::StepMetrics> entry = first->to_wire(row);
    if (!entry.ok()) {
      if (page.empty()) return entry.status();
      break;  // the entries before it are sent first; the next call returns the error
    }
    page.push_back(*std::move(entry));
    // Passes of this step may still come. The step itself comes before its passes.
    for (const Kind& kind : kinds) *kind.from = std::max(*kind.from, row.step);
    position->step = std::max(position->step, row.step + 1);
    *first->from = row.step + 1;
  }
  return page;
}

}  // namespace muster::service
