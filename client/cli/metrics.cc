#include <memory>
#include <string>
#include <utility>

#include "client/cli/command.h"
#include "client/cli/commands.h"
#include "client/cli/terminal/metrics_text.h"

namespace muster::cli {
namespace {

struct MetricsOptions : CommonOptions {
  std::string job;
  bool follow = false;
};

std::string Header(Output output) {
  switch (output) {
    case Output::kTable:
      return MetricsHeader();
    case Output::kCsv:
      return MetricsCsvHeader();
    case Output::kJson:
    case Output::kYaml:
      break;
  }
  return "";
}

std::string Line(Output output, const v1::StepMetrics& entry) {
  switch (output) {
    case Output::kTable:
      return MetricsLine(entry);
    case Output::kCsv:
      return MetricsCsvLine(entry);
    case Output::kJson:
    case Output::kYaml:
      break;
  }
  return StreamItem(entry, output);
}

ExitCode Metrics(Console* console, const MetricsOptions& options) {
  const auto client = Connect(options);
  if (!client.ok()) return Fail(console, client.status());
  // Only once it is known that the job exists.
  bool header_is_due = true;
  const auto header = [&] {
    if (std::exchange(header_is_due, false)) console->out << Header(options.output);
  };
  const absl::Status status =
      (*client)->Metrics(options.job, options.follow, {.retry_for = options.retry_for},
                         [&](const v1::StepMetrics& entry) {
                           header();
                           console->out << Line(options.output, entry);
                           if (options.follow) console->out.flush();
                         });
  if (status.ok()) header();
  console->out.flush();
  return status.ok() ? kDone : Fail(console, status);
}

}  // namespace

void AddMetrics(CLI::App* app, Console* console, ExitCode* code) {
  auto options = std::make_shared<MetricsOptions>();
  CLI::App* command = app->add_subcommand(
      "metrics", "Show the measurements of each step, validation and test (docs/metrics.md)");
  command->add_option("JOB", options->job, "The job's id")->required();
  command->add_flag("-f,--follow", options->follow, "Continue until the job ends");
  AddCommonOptions(command, console, options.get(), /*with_csv=*/true);
  AddRetryOption(command, options.get());
  command->callback([=] { *code = Metrics(console, *options); });
}

}  // namespace muster::cli
