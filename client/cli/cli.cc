#include "client/cli/cli.h"

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "client/cli/command.h"
#include "client/cli/commands.h"
#include "client/cli/terminal/escaped_stream.h"
#include "common/jobfile/near_name.h"
#include "common/version/version.h"

namespace muster::cli {
namespace {

constexpr char kFooter[] = R"(
Results go to stdout, everything else to stderr. The coordinator is --address, else $MUSTER_ADDRESS,
else the one of this user on this machine. For HOST:PORT with certificates: --tls-certificate,
--tls-key and --tls-ca, else $MUSTER_TLS_CERTIFICATE, $MUSTER_TLS_KEY and $MUSTER_TLS_CA.
Exit codes: 0 done, or the job SUCCEEDED; 1 other error; 2 usage or refused job file; 100 the job
FAILED; 101 the wait timed out; 102 not found; 103 the job was CANCELLED; 104 coordinator
unreachable; 105 preempted, can go on; 130 interrupted.

First steps:
  muster validate job.yaml        what is wrong with a job file, all at once
  muster run job.yaml             train on this machine, with a coordinator of its own
  muster COMMAND --help           the options of a command)";

using jobfile::NearName;

// "muster data pack"
std::string FullName(const CLI::App& command) {
  if (command.get_parent() == nullptr) return command.get_name();
  return absl::StrCat(FullName(*command.get_parent()), " ", command.get_name());
}

// The problem with the first words, which choose a command. Empty if there is none. CLI11 would
// only report that a command is needed.
std::string UnknownCommand(const CLI::App& app, const std::vector<std::string>& words) {
  const CLI::App* group = &app;
  for (const std::string& word : words) {
    const std::vector<const CLI::App*> commands = group->get_subcommands(nullptr);
    if (commands.empty() || word.empty() || word[0] == '-') return "";
    std::vector<std::string> names;
    const CLI::App* chosen = nullptr;
    for (const CLI::App* command : commands) {
      names.push_back(command->get_name());
      if (command->get_name() == word) chosen = command;
    }
    if (chosen == nullptr) {
      const std::string near = NearName(word, names);
      return absl::StrCat(FullName(*group), ": there is no command '", word, "'",
                          near.empty() ? ";" : absl::StrCat("; did you mean ", near, "?"), " `",
                          FullName(*group), " --help` lists the commands");
    }
    group = chosen;
  }
  return "";
}

// The command that got unexpected arguments; null if there is none.
const CLI::App* WithExtras(const CLI::App& app) {
  if (!app.remaining().empty()) return &app;
  for (const CLI::App* command : app.get_subcommands(nullptr)) {
    if (const CLI::App* found = WithExtras(*command); found != nullptr) return found;
  }
  return nullptr;
}

std::string UsageProblem(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App* command = WithExtras(app);
  if (command == nullptr) {
    command = &app;
    while (!command->get_subcommands().empty()) command = command->get_subcommands().back();
    return absl::StrCat(FullName(*command), ": ", error.what(), "; `", FullName(*command),
                        " --help` says more");
  }
  const std::string word = command->remaining().front();
  std::string problem = absl::StrCat(FullName(*command), ": unexpected argument '", word, "'");
  if (word[0] == '-') {
    std::vector<std::string> names;
    for (const CLI::Option* option : command->get_options()) {
      for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    }
    const std::string near = NearName(word.substr(0, word.find('=')), names);
    problem = absl::StrCat(FullName(*command), ": there is no option '", word, "'",
                           near.empty() ? "" : absl::StrCat("; did you mean ", near, "?"),
                           command == &app ? "; options come after the command" : "");
  }
  return absl::StrCat(problem, "; `", FullName(*command), " --help` lists what is possible");
}

// Adds a command that needs no coordinator.
void AddVersion(CLI::App* app, Console* console, ExitCode* code) {
  const auto options = std::make_shared<CommonOptions>();
  CLI::App* command = app->add_subcommand("version", "Show the version of this program");
  AddOutputOption(command, options.get());
  command->callback([=] {
    if (IsDocument(options->output)) {
      const nlohmann::ordered_json json = {{"version", Version()}};
      console->out << Document(json.dump(2) + "\n", options->output);
    } else {
      console->out << "muster " << Version() << "\n";
    }
    *code = kDone;
  });
}

}  // namespace

ExitCode RunCommandLine(const std::vector<std::string>& arguments, Console* terminal) {
  EscapedStream out(&terminal->out);
  EscapedStream err(&terminal->err);
  Console escaped{.in = terminal->in,
                  .out = out,
                  .err = err,
                  .person_answers = terminal->person_answers,
                  .out_is_terminal = terminal->out_is_terminal,
                  .err_is_terminal = terminal->err_is_terminal,
                  .columns = terminal->columns,
                  .environment = terminal->environment,
                  .command_line = terminal->command_line,
                  .interrupts = terminal->interrupts};
  Console* const console = &escaped;
  ExitCode code = kDone;
  CLI::App app(
      "Trains models on a cluster: submits jobs to a coordinator (musterd), shows, changes, stops "
      "and "
      "deletes them.",
      "muster");
  app.require_subcommand(1);
  app.set_version_flag("--version", absl::StrCat("muster ", Version()));
  AddRun(&app, console, &code);
  AddSubmit(&app, console, &code);
  AddValidate(&app, console, &code);
  AddNodes(&app, console, &code);
  AddDrain(&app, console, &code);
  AddCordon(&app, console, &code);
  AddUncordon(&app, console, &code);
  AddBackup(&app, console, &code);
  AddList(&app, console, &code);
  AddGet(&app, console, &code);
  AddRanks(&app, console, &code);
  AddWatch(&app, console, &code);
  AddLogs(&app, console, &code);
  AddWait(&app, console, &code);
  AddStop(&app, console, &code);
  AddRetry(&app, console, &code);
  AddFreeze(&app, console, &code);
  AddUnfreeze(&app, console, &code);
  AddRefresh(&app, console, &code);
  AddTrainability(&app, console, &code);
  AddPause(&app, console, &code);
  AddResume(&app, console, &code);
  AddCheckpoint(&app, console, &code);
  AddGatherOptimizerState(&app, console, &code);
  AddConsolidate(&app, console, &code);
  AddSettings(&app, console, &code);
  AddStage(&app, console, &code);
  AddSample(&app, console, &code);
  AddOperations(&app, console, &code);
  AddOperation(&app, console, &code);
  AddDelete(&app, console, &code);
  AddMetrics(&app, console, &code);
  AddCheckpoints(&app, console, &code);
  AddCerts(&app, console, &code);
  AddData(&app, console, &code);
  AddExport(&app, console, &code);
  AddNewJob(&app, console, &code);
  AddVersion(&app, console, &code);
  // The footer is set last, so that the commands do not inherit it.
  app.footer(kFooter);
  if (arguments.empty()) {
    console->err << app.help() << std::flush;
    return kUsage;
  }
  if (const std::string problem = UnknownCommand(app, arguments); !problem.empty()) {
    console->err << problem << std::endl;
    return kUsage;
  }
  try {
    // CLI11 expects the arguments in reverse order.
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) {
      app.exit(error, console->out, console->err);  // prints the requested help
    } else {
      console->err << UsageProblem(app, error) << std::endl;
      code = kUsage;
    }
  }
  console->out.flush();
  // A full disk or a closed pipe must not count as success.
  if (code == kDone && !console->out) {
    console->err << "muster: stdout cannot be written" << std::endl;
    return kOtherError;
  }
  return code;
}

}  // namespace muster::cli
