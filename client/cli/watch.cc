// The commands watch, wait, logs, metrics: a job until it ends.
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/time/clock.h"
#include "client/cli/command.h"
#include "client/cli/commands.h"
#include "client/cli/follow.h"
#include "client/cli/terminal/job_text.h"
#include "client/cli/terminal/metrics_text.h"
#include "client/cli/terminal/progress.h"
#include "common/status/status.h"

namespace muster::cli {
namespace {

absl::StatusOr<ExitCode> Watch(Console* console, client::MusterClient& client,
                               const JobOptions& options) {
  Progress progress(console->out_is_terminal ? ProgressForm::kTerminal : ProgressForm::kPlain,
                    absl::Seconds(5), console->columns);
  v1::Job last;
  const absl::Status status =
      client.Watch(options.job, {.retry_for = options.retry_for}, [&](const v1::Job& job) {
        last = job;
        if (IsDocument(options.output)) {
          console->out << StreamItem(job, options.output) << std::flush;
        } else {
          PrintProgress(progress.Update(job, absl::Now()), &console->out);
        }
        return console->out.good();
      });
  console->out << progress.Interrupt() << std::flush;
  RETURN_IF_ERROR(status);
  if (last.state() == v1::Job::FAILED) {
    const std::string failure = FailureText(last);
    console->err << "muster: job " << options.job
                 << " failed: " << (failure.empty() ? last.state_reason() + "\n" : failure)
                 << "`muster retry " << options.job
                 << "` continues it, from its newest checkpoint if it has one\n"
                 << std::flush;
  }
  // The watch ended because stdout cannot be written, which RunCommandLine reports.
  if (!client::HasEnded(last.state())) return kDone;
  return ExitCodeOf(last.state());
}

struct WaitOptions : JobOptions {
  absl::Duration timeout = absl::InfiniteDuration();
};

absl::StatusOr<ExitCode> Wait(Console* console, client::MusterClient& client,
                              const WaitOptions& options) {
  const auto job =
      client.Wait(options.job, {.retry_for = options.retry_for, .timeout = options.timeout});
  if (absl::IsDeadlineExceeded(job.status())) {
    return FailWith(console,
                    absl::StrCat("job ", options.job, " has not ended after ",
                                 absl::FormatDuration(options.timeout)),
                    kTimedOut);
  }
  RETURN_IF_ERROR(job.status());
  return ReportEnd(console, *job, options.output);
}

struct LogsOptions : JobOptions {
  bool follow = false;
  std::optional<uint32_t> rank;
};

absl::StatusOr<ExitCode> Logs(Console* console, client::MusterClient& client,
                              const LogsOptions& options) {
  RETURN_IF_ERROR(
      client.Logs(options.job, options.rank, options.follow, {.retry_for = options.retry_for},
                  [&](const v1::LogLine& line) {
                    if (IsDocument(options.output)) {
                      console->out << StreamItem(line, options.output);
                    } else {
                      // Each log line stays one line, whoever sent it; tabs are kept.
                      console->out << "[" << line.generation() << "." << line.rank() << "] "
                                   << absl::StrReplaceAll(line.text(), {{"\n", "\\n"}}) << "\n";
                    }
                    if (options.follow) console->out.flush();
                  }));
  return kDone;
}

struct MetricsOptions : JobOptions {
  bool follow = false;
};

std::string Header(Output output) {
  if (IsDocument(output)) return "";
  return output == Output::kCsv ? MetricsCsvHeader() : MetricsHeader();
}

std::string Line(Output output, const v1::StepMetrics& entry) {
  if (IsDocument(output)) return StreamItem(entry, output);
  return output == Output::kCsv ? MetricsCsvLine(entry) : MetricsLine(entry);
}

absl::StatusOr<ExitCode> Metrics(Console* console, client::MusterClient& client,
                                 const MetricsOptions& options) {
  // The header waits until the job is known to exist.
  bool header_is_due = true;
  const auto header = [&] {
    if (std::exchange(header_is_due, false)) console->out << Header(options.output);
  };
  const absl::Status status = client.Metrics(
      options.job, options.follow, {.retry_for = options.retry_for},
      [&](const v1::StepMetrics& entry) {
        header();
        console->out << Line(options.output, entry);
        if (options.follow) console->out.flush();
      });
  if (status.ok()) header();
  console->out.flush();
  RETURN_IF_ERROR(status);
  return kDone;
}

}  // namespace

void AddWatch(CLI::App* app, Console* console, ExitCode* code) {
  auto options = std::make_shared<JobOptions>();
  CLI::App* command = app->add_subcommand(
      "watch", "Show a job as it changes, until it ends; the exit code says how");
  command->add_option("JOB", options->job, "The job's id")->required();
  AddCommonOptions(command, console, options.get());
  AddRetryOption(command, options.get());
  command->callback([=] { *code = Call(console, *options, Watch); });
}

void AddWait(CLI::App* app, Console* console, ExitCode* code) {
  auto options = std::make_shared<WaitOptions>();
  CLI::App* command =
      app->add_subcommand("wait", "Wait until a job has ended; the exit code says how");
  command->add_option("JOB", options->job, "The job's id")->required();
  AddDurationOption(command, "--timeout", &options->timeout,
                    "Wait at most this long (exit code 101)");
  AddCommonOptions(command, console, options.get());
  AddRetryOption(command, options.get());
  command->callback([=] { *code = Call(console, *options, Wait); });
}

void AddLogs(CLI::App* app, Console* console, ExitCode* code) {
  auto options = std::make_shared<LogsOptions>();
  CLI::App* command = app->add_subcommand(
      "logs", "Show what a job's workers printed, each line with [generation.rank]");
  command->add_option("JOB", options->job, "The job's id")->required();
  command->add_flag("-f,--follow", options->follow, "Continue until the job ends");
  command
      ->add_option_function<uint32_t>(
          "--rank", [options](uint32_t rank) { options->rank = rank; }, "Only this rank")
      ->type_name("R");
  AddCommonOptions(command, console, options.get());
  AddRetryOption(command, options.get());
  command->callback([=] { *code = Call(console, *options, Logs); });
}

void AddMetrics(CLI::App* app, Console* console, ExitCode* code) {
  auto options = std::make_shared<MetricsOptions>();
  CLI::App* command = app->add_subcommand(
      "metrics",
      "Show the measurements of each step, validation and test (docs/reference/metrics.md)");
  command->add_option("JOB", options->job, "The job's id")->required();
  command->add_flag("-f,--follow", options->follow, "Continue until the job ends");
  AddCommonOptions(command, console, options.get(), /*with_csv=*/true);
  AddRetryOption(command, options.get());
  command->callback([=] { *code = Call(console, *options, Metrics); });
}

}  // namespace muster::cli
