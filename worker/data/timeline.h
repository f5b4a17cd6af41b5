// Where the steps of a job lie in its data: those that were done, with whatever batch and data
// sessions before this one had, and those that follow with the batch and the data of this one.
// Pure.
#ifndef MUSTER_WORKER_DATA_TIMELINE_H_
#define MUSTER_WORKER_DATA_TIMELINE_H_

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "worker/data/pace.h"

namespace muster::data {

class Timeline {
 public:
  // Steps that have one pace.
  struct Span {
    int64_t step = 0;         // done before it
    Position position;        // after these steps
    Pace pace;
    // The samples between the end of the span before and `position` were left out.
    bool skipped = false;
  };

  // Of a job without training data: nothing may be asked of it.
  Timeline() = default;
  // In order of their steps; the first one begins with step 0. The last one has no end. One that
  // skips samples may begin with the same step as the one before.
  explicit Timeline(std::vector<Span> spans) : spans_(std::move(spans)) {}

  const Span& newest() const { return spans_.back(); }
  const std::vector<Span>& spans() const { return spans_; }

  // What has been consumed after `step` steps, and where the step that follows them begins.
  Position After(int64_t step) const;
  Position BeginAfter(int64_t step) const;
  // Where that step would begin if no command had left out samples between it and the step before.
  Position BeginBeforeSkips(int64_t step) const;
  // The smallest number of steps, `from` or more, after which everything before `to` is consumed or
  // dropped.
  int64_t Reaches(int64_t from, Position to) const;

 private:
  size_t SpanAfter(int64_t step) const;

  std::vector<Span> spans_;
};

}  // namespace muster::data

#endif  // MUSTER_WORKER_DATA_TIMELINE_H_
