#include "common/jobspec/validate_outputs.h"

#include <filesystem>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/jobspec/fields.h"
#include "common/jobspec/rules.h"

namespace muster::jobspec {
namespace {

constexpr char kExport[] = "export.path";

// The name that a path has, however it is written.
std::string Normal(const std::string& path) {
  return std::filesystem::path(path).lexically_normal().string();
}

bool IsOutputFile(const std::string& field) {
  return field == kExport || absl::EndsWith(field, ".predict.output");
}

// Another path of the job would be overwritten, or would overwrite it. Of two outputs that are the
// same the stage is reported, and of two stages the later one.
void Output(const v1::JobSpec& spec, const std::string& path, const std::string& output,
            ProblemList* problems) {
  if (output.empty()) return;  // another check reports that it is missing
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

}  // namespace

void ValidateOutputs(const v1::JobSpec& spec, ProblemList* problems) {
  for (int i = 0; i < spec.stages_size(); ++i) {
    if (!spec.stages(i).has_predict()) continue;
    Output(spec, ElementPath("stages", i) + ".predict.output", spec.stages(i).predict().output(),
           problems);
  }
  Output(spec, kExport, spec.export_().path(), problems);
}

}  // namespace muster::jobspec
