// A job's metrics as text: one line for each entry of StreamMetrics (a step, or a pass). Pure.
#ifndef MUSTER_CLIENT_CLI_TERMINAL_METRICS_TEXT_H_
#define MUSTER_CLIENT_CLI_TERMINAL_METRICS_TEXT_H_

#include <string>

#include "proto/muster/v1/job_service.pb.h"

namespace muster::cli {

// Columns of fixed width, so that lines can be printed as they arrive. "-" for an absent value.
std::string MetricsHeader();
std::string MetricsLine(const v1::StepMetrics& entry);

// RFC 4180: a header, lines that end in CRLF, an empty cell for an absent value.
// docs/reference/metrics.md has the columns; new columns come last. Numbers have 17 digits, from
// which a float64 is restored exactly.
std::string MetricsCsvHeader();
std::string MetricsCsvLine(const v1::StepMetrics& entry);

// A loss or a norm: 2.34567 as "2.3457", a large number (of a run that diverges) as "4.857e+36".
std::string LossText(double value);
// 1234567 as "1.23M": three digits and k, M, G, T, P.
std::string WithUnit(double value);
// ", accuracy 97.50%, top 5 99.00%": the values that the pass has.
std::string AccuracyText(const v1::Evaluation& pass);
// 0.975 as "97.50%".
std::string Percent(double part);

}  // namespace muster::cli

#endif  // MUSTER_CLIENT_CLI_TERMINAL_METRICS_TEXT_H_
