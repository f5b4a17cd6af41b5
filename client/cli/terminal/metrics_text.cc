#include "client/cli/terminal/metrics_text.h"

#include <cmath>
#include <iterator>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "common/rpc/proto_time.h"

namespace muster::cli {
namespace {

double Seconds(const v1::StepMetrics& step) {
  return absl::ToDoubleSeconds(FromProto(step.duration()));
}

// NaN without a sign: printf shows a sign that depends on the machine.
std::string Exactly(double value) {
  return std::isnan(value) ? "nan" : absl::StrFormat("%.17g", value);
}
std::string Exactly(bool has, double value) { return has ? Exactly(value) : ""; }
std::string Count(bool has, uint64_t value) { return has ? absl::StrCat(value) : ""; }

using Cells = std::vector<std::pair<const char*, std::string>>;

Cells CsvCells(const v1::StepMetrics& e) {
  const bool validation = e.has_validation(), test = e.has_test();
  const bool step = !validation && !test;
  const v1::Evaluation &v = e.validation(), &t = e.test();
  return {
      {"step", absl::StrCat(e.step())},
      {"loss", Exactly(e.has_loss(), e.loss())},
      {"learning_rate", Exactly(e.has_learning_rate(), e.learning_rate())},
      {"grad_norm", Exactly(e.has_grad_norm(), e.grad_norm())},
      {"samples", Count(step, e.samples())},
      {"seconds", step ? absl::StrFormat("%.9f", Seconds(e)) : ""},
      {"generation", absl::StrCat(e.generation())},
      {"perplexity", Exactly(e.has_perplexity(), e.perplexity())},
      {"tokens", Count(e.has_tokens(), e.tokens())},
      {"samples_per_second", Exactly(e.has_samples_per_second(), e.samples_per_second())},
      {"tokens_per_second", Exactly(e.has_tokens_per_second(), e.tokens_per_second())},
      {"model_flops_per_second",
       Exactly(e.has_model_flops_per_second(), e.model_flops_per_second())},
      {"skipped", step ? (e.skipped() ? "true" : "false") : ""},
      {"loss_scale", Exactly(e.has_loss_scale(), e.loss_scale())},
      {"validation_loss", Exactly(validation, v.loss())},
      {"validation_accuracy", Exactly(v.has_accuracy(), v.accuracy())},
      {"validation_perplexity", Exactly(v.has_perplexity(), v.perplexity())},
      {"validation_samples", Count(validation, v.samples())},
      {"model_flops_utilization",
       Exactly(e.has_model_flops_utilization(), e.model_flops_utilization())},
      {"validation_top_k_accuracy", Exactly(v.has_top_k_accuracy(), v.top_k_accuracy())},
      {"test_loss", Exactly(test, t.loss())},
      {"test_accuracy", Exactly(t.has_accuracy(), t.accuracy())},
      {"test_perplexity", Exactly(t.has_perplexity(), t.perplexity())},
      {"test_samples", Count(test, t.samples())},
      {"test_top_k_accuracy", Exactly(t.has_top_k_accuracy(), t.top_k_accuracy())},
  };
}

// A row without quotes: no cell has a comma, a quote or a line break.
std::string CsvRow(const Cells& cells, bool names) {
  const auto cell = [names](std::string* out, const auto& c) {
    absl::StrAppend(out, names ? c.first : c.second);
  };
  return absl::StrCat(absl::StrJoin(cells, ",", cell), "\r\n");
}

std::string Row(const std::vector<std::string>& cells) {
  constexpr int kWidths[] = {8, 10, 10, 10, 10, 16, 7, 9};
  std::string line;
  for (size_t i = 0; i < cells.size(); ++i) {
    const bool last = i >= std::size(kWidths);
    absl::StrAppend(&line, last ? cells[i] : absl::StrFormat("%-*s  ", kWidths[i], cells[i]));
  }
  line.erase(line.find_last_not_of(' ') + 1);
  return line + "\n";
}

std::string OrDash(bool has, const std::string& text) { return has ? text : "-"; }
std::string Short(double value) { return absl::StrFormat("%.4g", value); }

std::string PassLine(const v1::StepMetrics& entry) {
  const v1::Evaluation& pass = entry.has_test() ? entry.test() : entry.validation();
  return Row({absl::StrCat(entry.step()), LossText(pass.loss()),
              OrDash(pass.has_perplexity(), Short(pass.perplexity())), "-", "-", "-", "-", "-",
              absl::StrCat(entry.has_test() ? "test" : "validation", ", ", pass.samples(),
                           " samples", AccuracyText(pass))});
}

std::string StepNotes(const v1::StepMetrics& step) {
  std::vector<std::string> notes;
  if (step.skipped()) notes.push_back("skipped");
  if (step.has_model_flops_utilization()) {
    notes.push_back(absl::StrCat(Percent(step.model_flops_utilization()), " of peak"));
  }
  if (step.has_loss_scale()) notes.push_back(absl::StrCat("loss scale ", step.loss_scale()));
  return absl::StrJoin(notes, ", ");
}

}  // namespace

std::string WithUnit(double value) {
  const char* unit = "";
  for (const char* larger : {"k", "M", "G", "T", "P"}) {
    if (std::abs(value) < 999.5) break;
    value /= 1000;
    unit = larger;
  }
  return absl::StrFormat("%.3g%s", value, unit);
}

std::string LossText(double value) {
  return std::abs(value) < 1e6 ? absl::StrFormat("%.4f", value) : absl::StrFormat("%.4g", value);
}

std::string Percent(double part) { return absl::StrFormat("%.2f%%", 100 * part); }

std::string AccuracyText(const v1::Evaluation& pass) {
  std::string text;
  if (pass.has_accuracy()) absl::StrAppend(&text, ", accuracy ", Percent(pass.accuracy()));
  if (pass.has_top_k_accuracy()) {
    absl::StrAppend(&text, ", top ", pass.top_k(), " ", Percent(pass.top_k_accuracy()));
  }
  return text;
}

std::string MetricsHeader() {
  return Row({"STEP", "LOSS", "PERPLEXITY", "LR", "GRAD_NORM", "THROUGHPUT", "FLOP/S", "SECONDS",
              "NOTES"});
}

std::string MetricsLine(const v1::StepMetrics& entry) {
  if (entry.has_validation() || entry.has_test()) return PassLine(entry);
  const std::string throughput =
      entry.has_tokens_per_second()
          ? absl::StrCat(WithUnit(entry.tokens_per_second()), " tokens/s")
          : absl::StrCat(WithUnit(entry.samples_per_second()), " samples/s");
  return Row({absl::StrCat(entry.step()), OrDash(entry.has_loss(), LossText(entry.loss())),
              OrDash(entry.has_perplexity(), Short(entry.perplexity())),
              OrDash(entry.has_learning_rate(), Short(entry.learning_rate())),
              OrDash(entry.has_grad_norm(), LossText(entry.grad_norm())),
              OrDash(entry.has_samples_per_second(), throughput),
              OrDash(entry.has_model_flops_per_second(), WithUnit(entry.model_flops_per_second())),
              absl::StrFormat("%.3f", Seconds(entry)), StepNotes(entry)});
}

std::string MetricsCsvHeader() { return CsvRow(CsvCells({}), /*names=*/true); }
std::string MetricsCsvLine(const v1::StepMetrics& entry) {
  return CsvRow(CsvCells(entry), /*names=*/false);
}

}  // namespace muster::cli
