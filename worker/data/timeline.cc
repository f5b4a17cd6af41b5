#include "worker/data/timeline.h"

#include <algorithm>

namespace muster::data {

size_t Timeline::SpanAfter(int64_t step) const {
  const auto later =
      std::upper_bound(spans_.begin() + 1, spans_.end(), step,
                       [](int64_t value, const Span& span) { return value < span.step; });
  return later - spans_.begin() - 1;
}

Position Timeline::After(int64_t step) const {
  const Span& span = spans_[SpanAfter(step)];
  return span.pace.Ahead(span.position, step - span.step);
}

Position Timeline::BeginAfter(int64_t step) const {
  return spans_[SpanAfter(step)].pace.Begin(After(step));
}

Position Timeline::BeginBeforeSkips(int64_t step) const {
  size_t i = SpanAfter(step);
  while (i > 0 && spans_[i].skipped && spans_[i].step == step) --i;
  const Span& span = spans_[i];
  return span.pace.Begin(span.pace.Ahead(span.position, step - span.step));
}

int64_t Timeline::Reaches(int64_t from, Position to) const {
  for (size_t i = 0; i < spans_.size(); ++i) {
    const int64_t end = i + 1 < spans_.size() ? spans_[i + 1].step : -1;
    if (end >= 0 && end <= from) continue;
    const int64_t reached = from + spans_[i].pace.StepsTo(After(from), to);
    if (end < 0 || reached <= end) return reached;
    from = end;
  }
  return from;
}

}  // namespace muster::data
