#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/cli/command.h"
#include "client/cli/commands.h"
#include "client/cli/steer.h"
#include "client/cli/terminal/job_text.h"
#include "client/cli/terminal/operation_text.h"
#include "client/cli/terminal/output.h"
#include "common/status/status.h"

namespace muster::cli {
namespace {

struct RuleOptions : SteeringOptions {
  std::vector<std::string> patterns;
  bool dry_run = false;
};

void AddRuleCommand(CLI::App* app, Console* console, ExitCode* code, const std::string& name,
                    const std::string& help,
                    void (*set)(v1::TrainableRule* rule, const std::string& pattern)) {
  auto options = std::make_shared<RuleOptions>();
  CLI::App* command = app->add_subcommand(name, help);
  AddSteeringOptions(command, console, options.get());
  command
      ->add_option("PATTERN", options->patterns,
                   "Names of parameters: * stands for any characters, ? for one (quote them)")
      ->required();
  command->add_flag(
      "--dry-run", options->dry_run,
      "Print which parameters would change, what would be moved, and the memory of each rank "
      "after; change nothing. Waits for the answer");
  command->callback([=] {
    v1::SetTrainabilityRequest request;
    for (const std::string& pattern : options->patterns) set(request.add_rules(), pattern);
    request.set_dry_run(options->dry_run);
    options->wait |= options->dry_run;
    *code = Steer(console, *options, &v1::ControlService::Stub::SetTrainability, request);
  });
}

std::string RulesText(const v1::Trainability& trainability) {
  std::string text;
  for (const v1::TrainableRule& rule : trainability.rules()) {
    absl::StrAppend(&text, text.empty() ? "" : ", ", rule.has_freeze() ? "freeze " : "unfreeze ",
                    rule.has_freeze() ? rule.freeze() : rule.unfreeze());
  }
  return text.empty() ? "none" : text;
}

std::string TrainabilityText(const v1::GetTrainabilityResponse& response, absl::Time now) {
  const v1::Trainability& trainability = response.trainability();
  std::string text =
      absl::StrCat("version ", trainability.version(), ": ", trainability.trainable_params(),
                   " elements trained, ", trainability.frozen_params(),
                   " frozen\nrules: ", RulesText(trainability), "\n");
  for (const std::string& name : trainability.pending()) {
    absl::StrAppend(&text, "pending (muster refresh): ", name, "\n");
  }
  Table parameters({"PARAMETER", "ELEMENTS", "TRAINED"});
  for (const v1::ParameterStatus& parameter : response.parameters()) {
    parameters.Add({parameter.name(), absl::StrCat(parameter.elements()),
                    parameter.trained() ? "yes" : "frozen"});
  }
  absl::StrAppend(&text, "\n", parameters.Text());
  if (trainability.history().empty()) return text;
  Table history({"STEP", "WHEN", "BY", "CHANGE"});
  for (const v1::TrainabilityChange& change : trainability.history()) {
    history.Add({absl::StrCat(change.step()), Ago(change.time(), now),
                 change.requested_by().empty() ? "-" : change.requested_by(), ChangeText(change)});
  }
  return absl::StrCat(text, "\n", history.Text());
}

absl::StatusOr<ExitCode> ShowTrainability(Console* console, client::MusterClient& client,
                                          const JobOptions& options) {
  v1::GetTrainabilityRequest request;
  request.set_job_id(options.job);
  ASSIGN_OR_RETURN(const v1::GetTrainabilityResponse trainability,
                   client.Read(&v1::ControlService::Stub::GetTrainability, request));
  console->out << (IsDocument(options.output) ? Document(trainability, options.output)
                                              : TrainabilityText(trainability, absl::Now()));
  return kDone;
}

}  // namespace

void AddFreeze(CLI::App* app, Console* console, ExitCode* code) {
  AddRuleCommand(
      app, console, code, "freeze",
      "Stop training parameters of a running job; their values and optimizer state are kept",
      [](v1::TrainableRule* rule, const std::string& pattern) { rule->set_freeze(pattern); });
}

void AddUnfreeze(CLI::App* app, Console* console, ExitCode* code) {
  AddRuleCommand(
      app, console, code, "unfreeze", "Train parameters of a running job again",
      [](v1::TrainableRule* rule, const std::string& pattern) { rule->set_unfreeze(pattern); });
}

void AddRefresh(CLI::App* app, Console* console, ExitCode* code) {
  auto options = std::make_shared<SteeringOptions>();
  CLI::App* command = app->add_subcommand("refresh",
                                          "Apply what the model's own code has frozen "
                                          "or unfrozen (trainable.refresh: manual)");
  AddSteeringOptions(command, console, options.get(), /*schedulable=*/false);
  command->callback([=] {
    *code = Steer(console, *options, &v1::ControlService::Stub::Refresh, v1::RefreshRequest());
  });
}

void AddTrainability(CLI::App* app, Console* console, ExitCode* code) {
  auto options = std::make_shared<JobOptions>();
  CLI::App* command = app->add_subcommand(
      "trainability",
      "Show which parameters of a job are trained, by which rules, and what was changed when");
  command->add_option("JOB", options->job, "The job's id")->required();
  AddCommonOptions(command, console, options.get());
  command->callback([=] { *code = Call(console, *options, ShowTrainability); });
}

}  // namespace muster::cli
