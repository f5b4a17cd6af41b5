#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/cli/command.h"
#include "client/cli/commands.h"
#include "common/jobfile/check_files.h"
#include "common/jobfile/continued.h"
#include "common/jobspec/jobspec.h"
#include "common/rpc/error.h"
#include "common/status/status.h"

namespace muster::cli {
namespace {

// Adds missing input files: as problems if the job would run on this machine, otherwise as
// warnings.
void CheckInputs(const jobfile::JobFile& file, bool here, v1::ValidateJobResponse* response) {
  v1::SpecProblems problems = jobfile::CheckFiles(file.spec);
  jobfile::AddPlaces(file, &problems);
  for (const v1::SpecProblem& problem : problems.problems()) {
    if (here) {
      *response->add_problems() = problem;
    } else {
      response->add_warnings(
          absl::StrCat(problem.path(), ": ", problem.message(), " (on this machine)"));
    }
  }
}

// `client`: null if there is no coordinator to ask.
v1::ValidateJobResponse Check(client::MusterClient* client, const jobfile::JobFile& file) {
  v1::ValidateJobResponse response;
  if (client != nullptr) {
    v1::ValidateJobRequest request;
    *request.mutable_spec() = file.spec;
    auto answer = client->Read(&v1::JobService::Stub::ValidateJob, request);
    if (answer.ok()) {
      response = *std::move(answer);
      v1::SpecProblems problems;
      problems.mutable_problems()->Swap(response.mutable_problems());
      jobfile::AddPlaces(file, &problems);
      response.mutable_problems()->Swap(problems.mutable_problems());
    } else {
      response.add_warnings(
          absl::StrCat("the coordinator was not asked: ", Message(answer.status())));
    }
  }
  CheckInputs(file, /*here=*/client == nullptr, &response);
  if (response.problems().empty() && !response.has_resolved()) {
    *response.mutable_resolved() = jobspec::ResolveDefaults(jobfile::ContinueHere(file.spec).spec);
  }
  if (!response.problems().empty()) response.clear_resolved();
  return response;
}

std::string LengthOf(const v1::JobSpec& spec) {
  const auto steps = jobspec::TotalSteps(spec);
  return steps.has_value() ? absl::StrCat(*steps, " steps") : "steps as the data give";
}

struct ValidateOptions : CommonOptions, JobFileOptions {};

ExitCode Validate(Console* console, const ValidateOptions& options) {
  std::unique_ptr<client::MusterClient> client;
  if (!options.address.empty()) {
    auto connected = Connect(options);
    if (!connected.ok()) return Fail(console, connected.status());
    client = *std::move(connected);
  }
  v1::ValidateJobResponse response;
  std::string refusal;
  const auto file = Load(console, options);
  if (file.ok()) {
    response = Check(client.get(), *file);
    v1::SpecProblems problems;
    *problems.mutable_problems() = response.problems();
    if (!problems.problems().empty())
      refusal = Message(jobfile::ProblemsError(file->name, problems));
  } else {
    *response.mutable_problems() = Problems(file.status()).problems();
    refusal = Message(file.status());
  }
  if (IsDocument(options.output)) console->out << Document(response, options.output);
  for (const std::string& warning : response.warnings()) {
    console->err << "warning: " << warning << "\n";
  }
  if (!refusal.empty()) return FailWith(console, refusal, kUsage);
  if (!IsDocument(options.output)) {
    console->out << file->name << ": good: job " << response.resolved().name() << ", "
                 << response.resolved().world_size() << " ranks, " << LengthOf(response.resolved())
                 << "\n";
  }
  return kDone;
}

}  // namespace

void AddValidate(CLI::App* app, Console* console, ExitCode* code) {
  auto options = std::make_shared<ValidateOptions>();
  CLI::App* command = app->add_subcommand(
      "validate",
      "Report everything that is wrong with a job file; needs no coordinator, but asks the one of "
      "--address or $MUSTER_ADDRESS");
  AddJobFileOptions(command, options.get());
  AddCommonOptions(command, console, options.get());
  command->callback([=] { *code = Validate(console, *options); });
}

}  // namespace muster::cli
