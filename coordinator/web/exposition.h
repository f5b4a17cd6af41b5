// Metrics on their way to Prometheus. A metric is described where its values are set, and it is
// part of the text even while it has no value, so that all of them can be seen on every musterd.
#ifndef MUSTER_COORDINATOR_WEB_EXPOSITION_H_
#define MUSTER_COORDINATOR_WEB_EXPOSITION_H_

#include <prometheus/client_metric.h>
#include <prometheus/metric_family.h>
#include <prometheus/metric_type.h>

#include <deque>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace muster::web {

using Labels = std::vector<prometheus::ClientMetric::Label>;

// One metric of an Exposition, which must live longer.
class Metric {
 public:
  explicit Metric(prometheus::MetricFamily* family) : family_(family) {}

  // For each combination of labels at most once. A value may be NaN or infinite; an absent one is
  // left out.
  void Set(Labels labels, std::optional<double> value) {
    if (!value.has_value()) return;
    prometheus::ClientMetric metric;
    metric.gauge.value = *value;
    metric.counter.value = *value;
    Set(std::move(labels), std::move(metric));
  }
  void Set(Labels labels, prometheus::ClientMetric histogram) {
    histogram.label = std::move(labels);
    family_->metric.push_back(std::move(histogram));
  }

 private:
  prometheus::MetricFamily* family_;
};

class Exposition {
 public:
  // `help`: sentences that end with a full stop.
  Metric Gauge(const std::string& name, const std::string& help) {
    return Add(name, help, prometheus::MetricType::Gauge);
  }
  // A number that only grows; its name ends with _total.
  Metric Counter(const std::string& name, const std::string& help) {
    return Add(name, help, prometheus::MetricType::Counter);
  }
  Metric Histogram(const std::string& name, const std::string& help) {
    return Add(name, help, prometheus::MetricType::Histogram);
  }

  Metric Add(const std::string& name, const std::string& help, prometheus::MetricType type) {
    families_.push_back({.name = name, .help = help, .type = type, .metric = {}});
    return Metric(&families_.back());
  }

  std::vector<prometheus::MetricFamily> Take() && {
    return {std::make_move_iterator(families_.begin()), std::make_move_iterator(families_.end())};
  }

 private:
  std::deque<prometheus::MetricFamily> families_;
};

}  // namespace muster::web

#endif  // MUSTER_COORDINATOR_WEB_EXPOSITION_H_
