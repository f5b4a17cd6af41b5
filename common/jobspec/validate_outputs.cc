#include <filesystem>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/jobspec/fields.h"
#include "common/jobspec/rules.h"
#include "common/jobspec/validate.h"

namespace muster::jobspec {
namespace {

constexpr char kExport[] = "export.path";
constexpr char kTensorboard[] = "metrics.tensorboard";
constexpr char kCheckpoints[] = "checkpoint.directory";

// The one form of all spellings of a path.
std::string Normal(const std::string& path) {
  return std::filesystem::path(path).lexically_normal().string();
}

bool IsOutputFile(const std::string& field) {
  return field == kExport || absl::EndsWith(field, ".predict.output");
}

// Refuses an output that would overwrite another path of the job, or be overwritten. Two equal
// outputs give one problem: at the stage, or at the later of two stages.
void Output(const v1::JobSpec& spec, const std::string& path, const std::string& output,
            ProblemList* problems) {
  if (output.empty()) return;  // another check reports it as missing
  bool before = true;
  ForEachValue(spec, [&](const FieldValue& value) {
    if (value.path == path) before = false;
    if (value.path == path || !IsPath(*value.field)) return;
    if (IsOutputFile(value.path) && (path == kExport || (value.path != kExport && !before))) return;
    if (Normal(value.String()) != Normal(output)) return;
    problems->Add(path, absl::StrCat("found ", output, ", which is ", value.path,
                                     ", too; allowed: a path of its own"));
  });
}

bool LiesIn(const std::string& path, const std::string& folder) {
  const std::string relative =
      std::filesystem::path(Normal(path + "/")).lexically_relative(Normal(folder + "/")).string();
  return !relative.empty() && relative != ".." && !absl::StartsWith(relative, "../");
}

// Refuses a folder in the place of a file of the job, or among checkpoints. The folder may be that
// of other outputs.
void Tensorboard(const v1::JobSpec& spec, ProblemList* problems) {
  const std::string& folder = spec.metrics().tensorboard();
  if (folder.empty()) return;
  const std::string& checkpoints = spec.checkpoint().directory();
  if (!checkpoints.empty() && LiesIn(folder, checkpoints)) {
    problems->Add(
        kTensorboard,
        absl::StrCat("found ", folder, ", which ",
                     Normal(folder + "/") == Normal(checkpoints + "/") ? "is " : "lies in ",
                     kCheckpoints, " (", checkpoints, "); allowed: a folder outside of it"));
  }
  ForEachValue(spec, [&](const FieldValue& value) {
    const bool folders = value.path == kTensorboard || value.path == kCheckpoints ||
                         value.path == "profile.directory";
    if (folders || IsOutputFile(value.path) || !IsPath(*value.field)) return;
    if (!LiesIn(folder, value.String()) || value.String().empty()) return;
    problems->Add(kTensorboard, absl::StrCat("found ", folder, ", but ", value.String(), " is ",
                                             value.path, "; allowed: a folder of its own"));
  });
}

}  // namespace

void ValidateOutputs(const v1::JobSpec& spec, ProblemList* problems) {
  for (int i = 0; i < spec.stages_size(); ++i) {
    if (!spec.stages(i).has_predict()) continue;
    Output(spec, ElementPath("stages", i) + ".predict.output", spec.stages(i).predict().output(),
           problems);
  }
  Output(spec, kExport, spec.export_().path(), problems);
  Tensorboard(spec, problems);
}

}  // namespace muster::jobspec
