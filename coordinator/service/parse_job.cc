#include "coordinator/service/parse_job.h"

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/jobfile/jobfile.h"
#include "common/jobfile/overrides.h"
#include "common/jobspec/problem_list.h"
#include "common/rpc/error.h"
#include "common/status/status.h"
#include "coordinator/membership/refusal.h"

namespace muster::service {
namespace {

// The file's name in messages of the reader, which no client sees: each problem stands alone.
constexpr char kText[] = "the text";

absl::Status CheckFolder(const std::string& field, const std::string& folder) {
  if (absl::StartsWith(folder, "/")) return absl::OkStatus();
  return Refuse(absl::StatusCode::kInvalidArgument, "FOLDER_NOT_ABSOLUTE",
                absl::StrCat(field, ": found '", folder, "'; expected an absolute path"),
                {{"field", field}});
}

}  // namespace

absl::StatusOr<v1::ParseJobResponse> ParseJob(const v1::ParseJobRequest& request) {
  const std::string& settings_folder =
      request.settings_folder().empty() ? request.base_folder() : request.settings_folder();
  RETURN_IF_ERROR(CheckFolder("base_folder", request.base_folder()));
  RETURN_IF_ERROR(CheckFolder("settings_folder", settings_folder));
  const jobfile::Overrides overrides{
      .settings = {request.settings().begin(), request.settings().end()},
      .base_folder = settings_folder};
  const auto file = jobfile::ParseJobFile(request.yaml(), kText, request.base_folder(), overrides);
  v1::ParseJobResponse response;
  if (file.ok()) {
    *response.mutable_spec() = file->spec;
    response.mutable_lines()->insert(file->lines.begin(), file->lines.end());
    return response;
  }
  const v1::SpecProblems problems = Problems(file.status());
  if (problems.problems().empty()) return file.status();
  const int most = jobspec::kMostProblems;
  for (const v1::SpecProblem& problem : problems.problems()) {
    if (response.problems_size() == most) break;
    *response.add_problems() = problem;
  }
  if (const int more = problems.problems_size() - most; more > 0) {
    response.add_problems()->set_message(absl::StrCat("and ", more, " more problems"));
  }
  return response;
}

}  // namespace muster::service
