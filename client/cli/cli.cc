#include "client/cli/cli.h"

#include <CLI/CLI.hpp>

#include "absl/strings/str_cat.h"
#include "client/cli/commands.h"
#include "common/jobfile/near_name.h"

namespace muster::cli {
namespace {

constexpr char kFooter[] = R"(
Results go to stdout, everything else to stderr. The coordinator is --address, else $MUSTER_ADDRESS.
Exit codes: 0 done, or the job SUCCEEDED; 1 other error; 2 usage or refused job file; 100 the job FAILED;
101 the wait timed out; 102 not found; 103 the job was CANCELLED; 104 coordinator unreachable; 130 interrupted.

First steps:
  muster validate job.yaml        what is wrong with a job file, all at once
  muster run job.yaml             train on this machine, with a coordinator of its own
  muster COMMAND --help           the options of a command)";

// What is wrong with the first word; empty when nothing is. CLI11 would only say that a command is needed.
std::string UnknownCommand(const CLI::App& app, const std::string& word) {
  if (word.empty() || word[0] == '-') return "";
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands(nullptr)) {
    if (command->get_name() == word) return "";
    names.push_back(command->get_name());
  }
  const std::string near = jobfile::NearName(word, names);
  return absl::StrCat("there is no command '", word, "'",
                      near.empty() ? "" : absl::StrCat("; did you mean ", near, "?"),
                      "; `muster --help` lists them");
}

}  // namespace

ExitCode RunCommandLine(const std::vector<std::string>& arguments, Console* console) {
  ExitCode code = kDone;
  CLI::App app("Trains models on a cluster: hands jobs to a coordinator (musterd), shows, stops and deletes them.",
               "muster");
  app.require_subcommand(1);
  app.failure_message(CLI::FailureMessage::simple);
  AddRun(&app, console, &code);
  AddSubmit(&app, console, &code);
  AddValidate(&app, console, &code);
  AddNodes(&app, console, &code);
  AddList(&app, console, &code);
  AddGet(&app, console, &code);
  AddRanks(&app, console, &code);
  AddWatch(&app, console, &code);
  AddLogs(&app, console, &code);
  AddWait(&app, console, &code);
  AddStop(&app, console, &code);
  AddDelete(&app, console, &code);
  AddMetrics(&app, console, &code);
  AddCheckpoints(&app, console, &code);
  AddData(&app, console, &code);
  // Last, so that the commands do not inherit it.
  app.footer(kFooter);
  if (arguments.empty()) {
    console->err << app.help() << std::flush;
    return kUsage;
  }
  if (const std::string problem = UnknownCommand(app, arguments[0]); !problem.empty()) {
    console->err << "muster: " << problem << std::endl;
    return kUsage;
  }
  try {
    // CLI11 takes them last first.
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::ParseError& error) {
    code = app.exit(error, console->out, console->err) == 0 ? kDone : kUsage;
  }
  console->out.flush();
  // A full disk or a closed pipe must not look like success.
  if (code == kDone && !console->out) {
    console->err << "muster: stdout cannot be written" << std::endl;
    return kOtherError;
  }
  return code;
}

}  // namespace muster::cli
