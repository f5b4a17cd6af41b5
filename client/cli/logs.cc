#include "absl/strings/str_replace.h"
#include "client/cli/command.h"
#include "client/cli/commands.h"

namespace muster::cli {
namespace {

struct LogsOptions : CommonOptions {
  std::string job;
  bool follow = false;
  std::optional<uint32_t> rank;
};

ExitCode Logs(Console* console, const LogsOptions& options) {
  const auto client = Connect(options);
  if (!client.ok()) return Fail(console, client.status());
  const absl::Status status =
      (*client)->Logs(options.job, options.rank, options.follow, {.retry_for = options.retry_for},
                      [&](const v1::LogLine& line) {
                        if (IsDocument(options.output)) {
                          console->out << StreamItem(line, options.output);
                        } else {
                          // A line is one line, whoever sent it; its tabs stay.
                          console->out << "[" << line.generation() << "." << line.rank() << "] "
                                       << absl::StrReplaceAll(line.text(), {{"\n", "\\n"}}) << "\n";
                        }
                        if (options.follow) console->out.flush();
                      });
  return status.ok() ? kDone : Fail(console, status);
}

}  // namespace

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
  command->callback([=] { *code = Logs(console, *options); });
}

}  // namespace muster::cli
