#include "client/cli/command.h"

#include <limits.h>
#include <pwd.h>
#include <unistd.h>

#include <filesystem>
#include <istream>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/flags/flags.h"
#include "common/jobfile/yaml_document.h"
#include "common/rpc/address.h"
#include "common/rpc/error.h"
#include "common/status/status.h"
#include "common/utf8/utf8.h"

namespace muster::cli {

void AddJobFileOptions(CLI::App* command, JobFileOptions* options) {
  command
      ->add_option("FILE", options->file,
                   "The job file (docs/reference/job-file.md); -: standard input")
      ->required();
  command
      ->add_option(
          "--set", options->settings,
          "Set a value of the job file, such as optimizer.adamw.lr=1e-4 or stages[0].fit.steps=10. "
          "VALUE is YAML. May be given several times. Relative paths in it are relative to the "
          "current "
          "directory (those in the file to the file; those in standard input to the current "
          "directory)")
      ->allow_extra_args(false)
      ->type_name("KEY=VALUE");
}

void AddOutputOption(CLI::App* command, CommonOptions* options, bool with_csv) {
  std::map<std::string, Output> forms = {
      {"table", Output::kTable}, {"json", Output::kJson}, {"yaml", Output::kYaml}};
  if (with_csv) forms["csv"] = Output::kCsv;
  const std::string names = with_csv ? "table, json, yaml or csv" : "table, json or yaml";
  command
      ->add_option_function<std::string>(
          "-o,--output",
          [forms, options](const std::string& form) { options->output = forms.at(form); },
          absl::StrCat(names, "; default: table"))
      ->check([forms, names](const std::string& form) {
        return forms.count(form) > 0
                   ? std::string()
                   : absl::StrCat("'", form, "' is not an output format; allowed: ", names);
      })
      ->type_name("FORM");
}

void AddCommonOptions(CLI::App* command, Console* console, CommonOptions* options, bool with_csv) {
  options->address = console->environment("MUSTER_ADDRESS");
  options->default_state = DefaultStateDirectory(console->environment);
  options->tls = TlsFilesOf(console->environment);
  AddTlsOptions(command, &options->tls);
  command
      ->add_option("--address", options->address,
                   "The coordinator: HOST:PORT, unix:/PATH, or its state directory; default "
                   "$MUSTER_ADDRESS, or the state directory that musterd has without --state")
      ->type_name("ADDRESS");
  AddOutputOption(command, options, with_csv);
}

void AddRetryOption(CLI::App* command, CommonOptions* options) {
  AddDurationOption(command, "--retry-for", &options->retry_for,
                    "How long to try again when the coordinator is away (default 30s)");
}

namespace {

std::string CheckDuration(const std::string& text) {
  absl::Duration duration;
  const bool good = absl::ParseDuration(text, &duration) && duration >= absl::ZeroDuration();
  return good ? "" : absl::StrCat("'", text, "' is not a duration such as 60s or 1m30s");
}

}  // namespace

void AddDurationOption(CLI::App* command, const std::string& name, absl::Duration* value,
                       const std::string& help) {
  command
      ->add_option_function<std::string>(
          name, [value](const std::string& text) { absl::ParseDuration(text, value); }, help)
      ->check(CheckDuration)
      ->type_name("DURATION");
}

void AddDurationOption(CLI::App* command, const std::string& name,
                       std::optional<absl::Duration>* value, const std::string& help) {
  command
      ->add_option_function<std::string>(
          name, [value](const std::string& text) { absl::ParseDuration(text, &value->emplace()); },
          help)
      ->check(CheckDuration)
      ->type_name("DURATION");
}

void AddAtStepOption(CLI::App* command, std::optional<uint64_t>* at_step) {
  command
      ->add_option_function<uint64_t>(
          "--at-step", [at_step](uint64_t step) { *at_step = step; },
          "Do it after this optimizer step of the job (default: after the current step)")
      ->check([](const std::string& text) {
        uint64_t steps = 0;
        return absl::SimpleAtoi(text, &steps)
                   ? ""
                   : absl::StrCat("'", text, "' is not a number of steps: 0, 1, 2, ...");
      })
      ->type_name("N");
}

std::string AbsolutePath(const std::string& path) {
  if (path.empty()) return "";
  std::string absolute = std::filesystem::absolute(path).lexically_normal().string();
  if (absolute.size() > 1 && absolute.back() == '/') absolute.pop_back();
  return absolute;
}

std::string JobFileOptions::Path() const {
  if (file == "-") return "";
  const std::string path = AbsolutePath(file);
  return ValidUtf8(path) == path ? path : "";
}

std::string Requester(Console* console) {
  char host[HOST_NAME_MAX + 1] = {};
  if (gethostname(host, sizeof(host) - 1) != 0) host[0] = '\0';
  std::string user = console->environment("USER");
  if (user.empty()) {
    const passwd* entry = getpwuid(geteuid());
    user = entry != nullptr ? entry->pw_name : absl::StrCat("uid ", geteuid());
  }
  return absl::StrCat(user, "@", host);
}

absl::StatusOr<std::unique_ptr<client::MusterClient>> Connect(const CommonOptions& options) {
  if (options.address.empty()) {
    if (options.default_state.empty()) {
      return absl::InvalidArgumentError(
          "no coordinator is given: use --address or set MUSTER_ADDRESS (`muster run FILE` needs "
          "none)");
    }
    ASSIGN_OR_RETURN(const std::string address, FindCoordinator(options.default_state));
    return client::MusterClient::Connect(address, options.tls);
  }
  ASSIGN_OR_RETURN(const std::string address, FindCoordinator(options.address));
  return client::MusterClient::Connect(address, options.tls);
}

namespace {

// The command that helps after an error of the coordinator with this reason; empty if there is none
// to name.
std::string NextCommand(const std::string& reason) {
  if (reason == "JOB_NOT_FOUND") return "; `muster list` shows the jobs";
  if (reason == "OPERATION_NOT_FOUND") return "; `muster operations JOB` lists those of a job";
  if (reason == "TRAINABILITY_INVALID") return "; `muster trainability JOB` shows all names";
  return "";
}

}  // namespace

ExitCode Fail(Console* console, const absl::Status& status) {
  const ExitCode code = ExitCodeOf(status);
  console->err << "muster: " << Message(status) << NextCommand(ErrorReason(status)) << "\n";
  if (code == kUnreachable && ErrorReason(status).empty()) {
    console->err
        << "Is musterd running there? Start one with `musterd` (after `muster run --state DIR`: "
           "`musterd --state DIR`),\nor name another with --address or MUSTER_ADDRESS.\n";
    // A failed TLS handshake looks like any broken connection.
    if (absl::StrContains(status.message(), "coordinator answers at") &&
        !absl::StrContains(status.message(), "unix:")) {
      console->err << "If the port needs certificates: are --tls-certificate, --tls-key and "
                      "--tls-ca given, are they of the\ncoordinator's CA, and are they valid "
                      "(`muster certs show FILE`)? Its log says why a connection failed.\n";
    }
  }
  console->err.flush();
  return code;
}

ExitCode FailWith(Console* console, const std::string& message, ExitCode code) {
  console->err << "muster: " << message << std::endl;
  return code;
}

absl::StatusOr<jobfile::JobFile> Load(Console* console, const JobFileOptions& options) {
  std::error_code error;
  const std::string here = std::filesystem::current_path(error).string();
  if (error) {
    return absl::NotFoundError(absl::StrCat("there is no current directory: ", error.message()));
  }
  const jobfile::Overrides overrides{.settings = options.settings, .base_folder = here};
  if (options.file != "-") return jobfile::LoadJobFile(options.file, overrides);
  // One byte more than allowed shows that a file is too long.
  std::string text(jobfile::kMaxJobFileBytes + 1, '\0');
  console->in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(console->in.gcount());
  return jobfile::ParseJobFile(text, "standard input", here, overrides);
}

std::unique_ptr<jobfile::JobFile> LoadOrExplain(Console* console, const JobFileOptions& options) {
  auto file = Load(console, options);
  if (file.ok()) return std::make_unique<jobfile::JobFile>(*std::move(file));
  FailWith(console, Message(file.status()));
  return nullptr;
}

ExitCode FailSubmission(Console* console, const absl::Status& status,
                        const jobfile::JobFile& file) {
  v1::SpecProblems problems = Problems(status);
  if (problems.problems().empty()) return Fail(console, status);
  for (v1::SpecProblem& problem : *problems.mutable_problems()) {
    // A field of the request, and not a key of the file.
    if (problem.path() != "job_id") continue;
    problem.set_source("--id");
    problem.clear_path();
  }
  jobfile::AddPlaces(file, &problems);
  return FailWith(console, Message(jobfile::ProblemsError(file.name, problems)), kUsage);
}

}  // namespace muster::cli
