#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/api/cancellation.h"
#include "client/cli/command.h"
#include "client/cli/commands.h"
#include "client/cli/data/documents_text.h"
#include "client/cli/data/record_options.h"
#include "client/cli/init/fine_tune.h"
#include "client/cli/python/run_python.h"
#include "common/files/files.h"
#include "common/jobfile/check_files.h"
#include "common/jobfile/jobfile.h"
#include "common/status/status.h"

namespace muster::cli {
namespace {

namespace fs = std::filesystem;

struct FineTuneOptions : CommonOptions {
  std::string model;
  std::vector<std::string> data;
  std::string out = "fine-tune";
  std::optional<int64_t> context;
  RecordOptions records;
  int64_t ranks = 1;
  double split = 0.95;
  bool cuda = false;
};

// The context without --context.
constexpr int64_t kUsualContext = 2048;
constexpr char kTrain[] = "train.safetensors";
constexpr char kValidate[] = "validate.safetensors";
constexpr char kJob[] = "job.yaml";

// INVALID_ARGUMENT: the folder lacks a file that a job needs.
absl::Status CheckModel(const std::string& folder) {
  for (const char* name : {"config.json", "tokenizer.json"}) {
    if (fs::exists(fs::path(folder) / name)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(folder, " has no ", name, "; expected a model folder of Hugging Face"));
  }
  for (const char* name : {"model.safetensors", "model.safetensors.index.json"}) {
    if (fs::exists(fs::path(folder) / name)) return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat(folder, " has no weights in safetensors (model.safetensors)"));
}

// Makes the two files of documents, and returns the report of the Python package.
absl::StatusOr<nlohmann::json> MakeDocuments(Console* console, const FineTuneOptions& options,
                                             int64_t context) {
  client::Cancellation interrupted;
  const Interrupts::Listener listener(&console->interrupts, [&](int) { interrupted.Cancel(); });
  std::vector<std::string> arguments = {"documents",
                                        absl::StrCat("--tokenizer=", options.model),
                                        absl::StrCat("--out=", options.out, "/", kTrain),
                                        absl::StrCat("--out-rest=", options.out, "/", kValidate),
                                        absl::StrCat("--split=", options.split),
                                        absl::StrCat("--context=", context)};
  for (std::string& argument : options.records.Arguments())
    arguments.push_back(std::move(argument));
  arguments.push_back("--");
  arguments.insert(arguments.end(), options.data.begin(), options.data.end());
  return RunPython(*console, {"muster.data", "tokenizers", arguments},
                   [&] { return interrupted.cancelled(); });
}

absl::StatusOr<nlohmann::json> MakeFineTune(Console* console, const FineTuneOptions& options) {
  const std::string job = absl::StrCat(options.out, "/", kJob);
  if (fs::exists(job)) {
    return absl::InvalidArgumentError(
        absl::StrCat(job, " exists, and is not replaced; choose another --out"));
  }
  RETURN_IF_ERROR(CheckModel(options.model));
  ASSIGN_OR_RETURN(const std::string config,
                   files::ReadFile(absl::StrCat(options.model, "/config.json")));
  const auto positions = PositionsOf(config);
  RETURN_IF_ERROR(Annotate(positions.status(), absl::StrCat(options.model, "/config.json")));
  if (options.context.has_value() && *options.context > *positions) {
    return absl::InvalidArgumentError(absl::StrCat("--context: expected at most ", *positions,
                                                   ", the positions of the model, found ",
                                                   *options.context));
  }
  const int64_t context = options.context.value_or(std::min(kUsualContext, *positions));
  RETURN_IF_ERROR(files::CreateDirectories(options.out));
  const auto made = MakeDocuments(console, options, context);
  if (!made.ok()) {
    // Only an empty folder is removed.
    std::error_code ignored;
    fs::remove(options.out, ignored);
    return made.status();
  }
  const nlohmann::json& report = *made;
  const FineTune facts = {.name = JobName(options.model, options.data.front()),
                          .model = AbsolutePath(options.model),
                          .data = options.data.front(),
                          .train = kTrain,
                          .validate = kValidate,
                          .context = context,
                          .ranks = options.ranks,
                          .cuda = options.cuda,
                          .tokens = report["files"][0].value("tokens", int64_t{0})};
  const std::string text = FineTuneJob(facts);
  // The job is checked as `muster validate` checks it.
  ASSIGN_OR_RETURN(const jobfile::JobFile file,
                   jobfile::ParseJobFile(text, job, AbsolutePath(options.out)));
  const v1::SpecProblems problems = jobfile::CheckFiles(file.spec);
  if (!problems.problems().empty()) return jobfile::ProblemsError(job, problems);
  RETURN_IF_ERROR(files::WriteAtomically(job, text));
  return report;
}

ExitCode InitFineTune(Console* console, const FineTuneOptions& options) {
  const auto report = MakeFineTune(console, options);
  if (!report.ok()) {
    if (absl::IsCancelled(report.status())) return FailWith(console, "interrupted", kInterrupted);
    return FailWith(console, Message(report.status()),
                    absl::IsInvalidArgument(report.status()) ? kUsage : kOtherError);
  }
  PrintReport(*report, &console->out);
  console->out << options.out << "/" << kJob << ": the job; read and change it\nnext:\n  muster "
               << "data show " << options.out << "/" << kTrain << "\n  muster run " << options.out
               << "/" << kJob << " --state " << options.out << "/run\n";
  return kDone;
}

void AddFineTune(CLI::App* group, Console* console, ExitCode* code) {
  auto options = std::make_shared<FineTuneOptions>();
  CLI::App* command = group->add_subcommand(
      "fine-tune",
      "A job that trains all weights of a model folder of Hugging Face on conversations, prompts "
      "or texts. Makes the data, too; needs Python with the packages muster, tokenizers and "
      "jinja2");
  command->add_option("--model", options->model, "The model's folder")
      ->required()
      ->check(CLI::ExistingDirectory)
      ->type_name("DIR");
  command->add_option("--data", options->data, "Files of records (docs/reference/data.md)")
      ->required()
      ->check(CLI::ExistingFile)
      ->allow_extra_args(false)
      ->type_name("FILE");
  command->add_option("--out", options->out, "The new folder (default: fine-tune)")
      ->type_name("DIR");
  command
      ->add_option(
          "--context", options->context,
          "The tokens of a sample (default: 2048, or the model's positions if they are fewer)")
      ->check(CLI::Range(int64_t{2}, int64_t{16777216}))
      ->type_name("TOKENS");
  command->add_option("--ranks", options->ranks, "Processes (default: 1)")
      ->check(CLI::Range(int64_t{1}, int64_t{1024}))
      ->type_name("N");
  command
      ->add_option("--split", options->split,
                   "The share of the records that is trained; the others are held out "
                   "(default: 0.95)")
      ->check(CLI::Range(0.0, 1.0))
      ->type_name("PART");
  command->add_flag("--cuda", options->cuda, "Train on GPUs, in bfloat16");
  options->records.AddTo(command);
  command->callback([=] { *code = InitFineTune(console, *options); });
}

// A kind of job. Each makes a folder with data and a commented job file.
using AddKind = void (*)(CLI::App* group, Console* console, ExitCode* code);
constexpr AddKind kKinds[] = {AddFineTune};

}  // namespace

void AddNewJob(CLI::App* app, Console* console, ExitCode* code) {
  CLI::App* group = app->add_subcommand("init", "Make a job file; needs no coordinator");
  group->require_subcommand(1);
  for (const AddKind add : kKinds) add(group, console, code);
}

}  // namespace muster::cli
