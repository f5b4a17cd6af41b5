// The places of a job's steps in its data. Steps of earlier sessions have the batch and the data of
// those sessions. Later steps have the batch and the data of this session. Pure.
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
  // The steps that have one pace.
  struct Span {
    int64_t step = 0;         // steps done before this span
    Position position;        // after these steps
    Pace pace;
    // True if the samples between the end of the previous span and `position` were left out.
    bool skipped = false;
  };

  // The timeline of a job without training data. No function may be called.
  Timeline() = default;
  // `spans`: in order of their steps. The first span begins with step 0, and the last one has no
  // end. A span that skips samples may begin with the same step as the span before.
  explicit Timeline(std::vector<Span> spans) : spans_(std::move(spans)) {}

  const Span& newest() const { return spans_.back(); }
  const std::vector<Span>& spans() const { return spans_; }

  // The samples that are consumed after `step` steps, and the beginning of the next step.
  Position After(int64_t step) const;
  Position BeginAfter(int64_t step) const;
  // The result of BeginAfter without the samples that a command left out just before that step.
  Position BeginBeforeSkips(int64_t step) const;
  // The smallest number of steps, at least `from`, after which everything before `to` is consumed
  // or dropped.
  int64_t Reaches(int64_t from, Position to) const;

 private:
  size_t SpanAfter(int64_t step) const;

  std::vector<Span> spans_;
};

}  // namespace muster::data

#endif  // MUSTER_WORKER_DATA_TIMELINE_H_
