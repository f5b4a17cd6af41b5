#include "coordinator/service/parse_job.h"

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/jobfile/jobfile.h"
#include "common/jobfile/overrides.h"
#include "common/rpc/error.h"
#include "common/status/status.h"
#include "coordinator/limits/limits.h"
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

// That no request takes the coordinator more than about a second.
absl::Status CheckSettings(const v1::ParseJobRequest& request) {
  constexpr Limits kLimits;
  size_t bytes = 0;
  for (const std::string& setting : request.settings()) bytes += setting.size();
  const auto too_many = [](const std::string& what, size_t found, size_t limit) {
    return Refuse(
        absl::StatusCode::kInvalidArgument, "FIELD_TOO_LONG",
        absl::StrCat("settings: ", what, ": found ", found, ", allowed ", limit,
                     "; write the values into the text"),
        {{"field", "settings"}, {"found", absl::StrCat(found)}, {"limit", absl::StrCat(limit)}});
  };
  if (bytes > kLimits.job_settings_bytes) {
    return too_many("bytes in all", bytes, kLimits.job_settings_bytes);
  }
  const size_t work = request.yaml().size() * static_cast<size_t>(request.settings_size());
  if (work > kLimits.job_settings_times_text_bytes) {
    return too_many("their number times the bytes of the text", work,
                    kLimits.job_settings_times_text_bytes);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<v1::ParseJobResponse> ParseJob(const v1::ParseJobRequest& request) {
  const std::string& settings_folder =
      request.settings_folder().empty() ? request.base_folder() : request.settings_folder();
  RETURN_IF_ERROR(CheckFolder("base_folder", request.base_folder()));
  RETURN_IF_ERROR(CheckFolder("settings_folder", settings_folder));
  RETURN_IF_ERROR(CheckSettings(request));
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
  v1::SpecProblems problems = Problems(file.status());
  if (problems.problems().empty()) return file.status();
  response.mutable_problems()->Swap(problems.mutable_problems());
  return response;
}

}  // namespace muster::service
