// Metrics for Prometheus. A metric is described where its values are set. A metric without a value
// is also in the text, so that every musterd shows all metrics.
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

// One metric of an Exposition, which must live longer than the Metric.
class Metric {
 public:
  explicit Metric(prometheus::MetricFamily* family) : family_(family) {}

  // Sets the value of a combination of labels, once at most. The value may be NaN or infinite; an
  // absent value is left out.
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
  // Adds a number that only grows; its name ends with _total.
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
