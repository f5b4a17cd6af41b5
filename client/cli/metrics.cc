#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/command.h"
#include "client/cli/commands.h"
#include "client/cli/json.h"
#include "client/cli/table.h"

namespace muster::cli {
namespace {

double Seconds(const v1::StepMetrics& step) {
  return step.duration().seconds() + 1e-9 * step.duration().nanos();
}

// 17 digits give a double back exactly.
std::string CsvLine(const v1::StepMetrics& step) {
  return absl::StrFormat("%d,%.17g,%.17g,%s,%d,%.9f,%d\n", step.step(), step.loss(),
                         step.learning_rate(),
                         step.has_grad_norm() ? absl::StrFormat("%.17g", step.grad_norm()) : "",
                         step.samples(), Seconds(step), step.generation());
}

ExitCode Metrics(Console* console, const CommonOptions& options, const std::string& job_id) {
  const auto client = Connect(options);
  if (!client.ok()) return Fail(console, client.status());
  Table table({"STEP", "LOSS", "LR", "GRAD_NORM", "SAMPLES", "SECONDS", "GENERATION"});
  bool first = true;
  const absl::Status status = (*client)->Metrics(
      job_id, {.retry_for = options.retry_for}, [&](const v1::StepMetrics& step) {
        if (options.output == Output::kJson) {
          console->out << Json(step, JsonForm::kLine);
        } else if (options.output == Output::kCsv) {
          if (first) console->out << "step,loss,learning_rate,grad_norm,samples,seconds,generation\n";
          console->out << CsvLine(step);
        } else {
          table.Add({absl::StrCat(step.step()), absl::StrFormat("%.6f", step.loss()),
                     absl::StrFormat("%.4g", step.learning_rate()),
                     step.has_grad_norm() ? absl::StrFormat("%.4f", step.grad_norm()) : "-",
                     absl::StrCat(step.samples()), absl::StrFormat("%.3f", Seconds(step)),
                     absl::StrCat(step.generation())});
        }
        first = false;
      });
  if (!status.ok()) return Fail(console, status);
  if (options.output == Output::kTable) console->out << table.Text();
  return kDone;
}

}  // namespace

void AddMetrics(CLI::App* app, Console* console, ExitCode* code) {
  struct Options : CommonOptions {
    std::string job;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command = app->add_subcommand("metrics", "Loss, rate and time of each step so far");
  command->add_option("JOB", options->job, "The job's id")->required();
  options->address = console->environment("MUSTER_ADDRESS");
  command->add_option("--address", options->address, "The coordinator; default $MUSTER_ADDRESS")
      ->type_name("HOST:PORT");
  AddOutputOption(command, options.get(), /*with_csv=*/true);
  AddRetryOption(command, options.get());
  command->callback([=] { *code = Metrics(console, *options, options->job); });
}

}  // namespace muster::cli
