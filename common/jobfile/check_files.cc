#include "common/jobfile/check_files.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/exports/target.h"
#include "common/files/files.h"
#include "common/jobspec/fields.h"
#include "common/jobspec/problem_list.h"
#include "common/jobspec/rules.h"
#include "common/jobspec/start.h"
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
  return "";
}

}  // namespace

std::string CheckExport(const v1::JobSpec& spec) {
  if (!spec.has_export_()) return "";
  const absl::Status status =
      exports::CheckTarget(spec.export_().path(), spec.name(), spec.export_().overwrite());
  return absl::IsFailedPrecondition(status) ? Message(status) : "";
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
    if (jobspec::RuleOf(*value.field).text() != v1::FieldRule::INPUT_PATH) return;
    const std::string problem = Problem(value.String());
    if (!problem.empty()) problems.Add(value.path, problem);
  });
  const std::string problem = CheckExport(spec);
  if (!problem.empty()) problems.Add("export.path", problem);
  return problems.problems();
}

}  // namespace muster::jobfile
