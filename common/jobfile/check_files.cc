#include "common/jobfile/check_files.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/exports/folder.h"
#include "common/exports/target.h"
#include "common/filekind/file_kind.h"
#include "common/files/files.h"
#include "common/files/read_beginning.h"
#include "common/huggingface/folder.h"
#include "common/jobfile/continued.h"
#include "common/jobspec/fields.h"
#include "common/jobspec/problem_list.h"
#include "common/jobspec/prompts.h"
#include "common/jobspec/rules.h"
#include "common/manifest/manifest.h"
#include "common/status/status.h"

namespace muster::jobfile {
namespace {

// The problem with an input file; empty if there is none.
std::string Problem(const std::string& path) {
  struct stat info;
  if (stat(path.c_str(), &info) != 0 || access(path.c_str(), R_OK) != 0) {
    return absl::StrCat("cannot read ", path, ": ", strerror(errno));
  }
  if (!S_ISREG(info.st_mode)) return absl::StrCat(path, " is not a regular file");
  if (info.st_size == 0) return absl::StrCat(path, " is empty");
  const auto beginning = files::ReadBeginning(path, filekind::kLook);
  if (!beginning.ok()) return Message(beginning.status());
  const auto other = filekind::Mismatch(*beginning, filekind::Wanted::kAnyInput);
  return other.has_value() ? absl::StrCat(path, ": ", *other) : "";
}

// The problem with a folder in which a file must exist; empty if there is none.
std::string ProblemOfFolder(const std::string& folder, const v1::FieldRule& rule) {
  const std::string file = files::JoinPath(folder, rule.holds());
  const auto absent = [](const std::string& path) {
    return access(path.c_str(), F_OK) != 0 && errno == ENOENT;
  };
  if (absent(folder)) {
    return absl::StrCat("there is no folder ", folder, "; allowed: ", rule.allowed());
  }
  if (absent(file)) {
    return absl::StrCat(folder, " has no ", rule.holds(), "; allowed: ", rule.allowed());
  }
  return Problem(file);
}

// Adds the problems with the model of a folder of Hugging Face, whose files are there.
void AddModel(const v1::ModelSpec& model, jobspec::ProblemList* problems) {
  constexpr char kFolder[] = "model.hf";
  constexpr char kContext[] = "model.context";
  if (!model.has_hf() || problems->Has(kFolder)) return;
  const absl::Status status =
      huggingface::ReadFolder(model.hf(), model.context(), model.vocab_size()).status();
  if (status.ok()) return;
  absl::string_view message = status.message();
  const bool of_context = absl::ConsumePrefix(&message, absl::StrCat(kContext, ": "));
  problems->Add(of_context ? kContext : kFolder, std::string(message));
}

std::string PathOf(int stage) {
  return absl::StrCat(jobspec::ElementPath("stages", stage), ".predict");
}

absl::Status CheckPromptsOf(const v1::JobSpec& spec, const v1::GenerateSpec& generate) {
  ASSIGN_OR_RETURN(const jobspec::Prompts prompts, jobspec::ReadPrompts(generate.prompts_from()));
  return Annotate(jobspec::CheckPrompts(prompts, spec.model(), generate), generate.prompts_from());
}

void AddOutputs(const v1::JobSpec& spec, jobspec::ProblemList* problems) {
  const exports::Inputs inputs = jobspec::InputFiles(spec);
  if (spec.has_export_()) {
    const absl::Status status = exports::CheckTarget(spec.export_().path(), spec.name(),
                                                     spec.export_().overwrite(), inputs);
    if (absl::IsFailedPrecondition(status)) problems->Add("export.path", Message(status));
  }
  const auto check_folder = [problems](const char* path, const std::string& folder) {
    if (folder.empty()) return;
    const absl::Status status = exports::CheckFolder(folder);
    if (!status.ok()) problems->Add(path, Message(status));
  };
  check_folder("metrics.tensorboard", spec.metrics().tensorboard());
  check_folder("profile.directory", spec.profile().directory());
  for (int i = 0; i < spec.stages_size(); ++i) {
    if (!spec.stages(i).has_predict()) continue;
    const v1::PredictStage& stage = spec.stages(i).predict();
    const absl::Status status =
        exports::CheckOutput(stage.output(), spec.name(), stage.overwrite(), inputs);
    const bool refused = absl::IsAlreadyExists(status) || absl::IsFailedPrecondition(status);
    if (refused) problems->Add(PathOf(i) + ".output", Message(status));
  }
}

}  // namespace

v1::SpecProblems CheckOutputs(const v1::JobSpec& spec) {
  jobspec::ProblemList problems;
  AddOutputs(spec, &problems);
  return problems.problems();
}

v1::SpecProblems CheckFiles(const v1::JobSpec& spec) {
  jobspec::ProblemList problems;
  jobspec::ForEachValue(spec, [&problems](const jobspec::FieldValue& value) {
    if (jobspec::RuleOf(*value.field).text() == v1::FieldRule::CHECKPOINT) {
      const std::string text = value.String();
      if (!jobspec::IsDirectory(text)) return;
      const std::string problem = Problem(files::JoinPath(text, manifest::kFileName));
      if (!problem.empty()) problems.Add(value.path, absl::StrCat("no checkpoint: ", problem));
      return;
    }
    const v1::FieldRule& rule = jobspec::RuleOf(*value.field);
    const bool folder = rule.text() == v1::FieldRule::FOLDER;
    if (!folder && rule.text() != v1::FieldRule::INPUT_PATH) return;
    const std::string problem =
        folder ? ProblemOfFolder(value.String(), rule) : Problem(value.String());
    if (!problem.empty()) problems.Add(value.path, problem);
  });
  AddModel(spec.model(), &problems);
  for (int i = 0; i < spec.stages_size(); ++i) {
    const v1::GenerateSpec& generate = spec.stages(i).predict().generate();
    const std::string path = PathOf(i) + ".generate.prompts";
    if (generate.prompts_from().empty() || problems.Has(path)) continue;
    const absl::Status status = CheckPromptsOf(spec, generate);
    if (!status.ok()) problems.Add(path, Message(status));
  }
  if (!problems.Has("start.checkpoint")) {
    const Continued continued = ContinueHere(spec);
    for (const v1::SpecProblem& problem : continued.problems.problems()) {
      problems.Add(problem.path(), problem.message());
    }
  }
  AddOutputs(spec, &problems);
  return problems.problems();
}

}  // namespace muster::jobfile
