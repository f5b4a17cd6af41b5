#include "coordinator/web/exposition.h"

#include <iterator>

namespace muster::web {

void Metric::Set(Labels labels, std::optional<double> value) {
  if (!value.has_value()) return;
  prometheus::ClientMetric metric;
  metric.label = std::move(labels);
  metric.gauge.value = *value;
  metric.counter.value = *value;
  family_->metric.push_back(std::move(metric));
}

void Metric::Set(Labels labels, prometheus::ClientMetric histogram) {
  histogram.label = std::move(labels);
  family_->metric.push_back(std::move(histogram));
}

Metric Exposition::Add(const std::string& name, const std::string& help,
                       prometheus::MetricType type) {
  prometheus::MetricFamily family;
  family.name = name;
  family.help = help;
  family.type = type;
  families_.push_back(std::move(family));
  return Metric(&families_.back());
}

std::vector<prometheus::MetricFamily> Exposition::Take() && {
  return {std::make_move_iterator(families_.begin()), std::make_move_iterator(families_.end())};
}

}  // namespace muster::web
