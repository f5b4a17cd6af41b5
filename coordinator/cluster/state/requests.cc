#include "coordinator/cluster/state/requests.h"

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/status/status.h"
#include "coordinator/membership/refusal.h"

namespace muster::cluster {
namespace {

// The time for which requests of a deleted job are kept. Clients repeat a call for less time.
constexpr absl::Duration kKeptAfterDeletion = absl::Hours(24);

}  // namespace

Requests::Requests(size_t most, const std::vector<store::RequestRow>& stored) : most_(most) {
  for (const store::RequestRow& row : stored) Remember(row);
}

absl::StatusOr<const store::RequestRow*> Requests::Repeat(const std::string& request_id,
                                                          const std::string& fingerprint) const {
  if (request_id.empty()) return nullptr;
  const auto known = rows_.find(request_id);
  if (known == rows_.end()) return nullptr;
  if (known->second.fingerprint != fingerprint) {
    return Refuse(
        absl::StatusCode::kAlreadyExists, "REQUEST_ID_REUSED",
        absl::StrCat("request id '", request_id, "' was used for another request; use a new UUID"),
        {{"field", "request_id"}});
  }
  return &known->second;
}

absl::StatusOr<std::optional<uint64_t>> Requests::RepeatedCommand(
    const std::string& request_id, const std::string& fingerprint) const {
  ASSIGN_OR_RETURN(const store::RequestRow* const repeat, Repeat(request_id, fingerprint));
  if (repeat == nullptr) return std::nullopt;
  if (repeat->job_deleted()) return JobOfRequestDeleted(repeat->job_id);
  uint64_t number = 0;
  (void)absl::SimpleAtoi(repeat->answer, &number);
  return number;
}

absl::Status Requests::CheckRoom(const std::string& request_id) const {
  if (request_id.empty() || rows_.size() < most_) return absl::OkStatus();
  return Refuse(absl::StatusCode::kResourceExhausted, "TOO_MANY_REQUEST_IDS",
                absl::StrCat(rows_.size(),
                             " request ids are kept, as many as allowed; those of a job are "
                             "removed a day after `muster delete JOB`"),
                {{"limit", absl::StrCat(most_)}});
}

std::vector<store::RequestRow> Requests::Remember(store::RequestRow row) {
  if (row.request_id.empty()) return {};
  if (row.job_deleted()) of_deleted_jobs_.emplace(row.deleted_time, row.request_id);
  rows_[row.request_id] = row;
  return {std::move(row)};
}

std::vector<store::RequestRow> Requests::JobDeleted(const std::string& job_id, absl::Time now) {
  std::vector<store::RequestRow> changed;
  for (auto& [id, row] : rows_) {
    if (row.job_id != job_id || row.job_deleted()) continue;
    row.deleted_time = now;
    changed.push_back(row);
    of_deleted_jobs_.emplace(now, id);
  }
  return changed;
}

std::vector<std::string> Requests::ForgetOld(absl::Time now) {
  std::vector<std::string> removed;
  while (!of_deleted_jobs_.empty() && of_deleted_jobs_.begin()->first + kKeptAfterDeletion <= now) {
    removed.push_back(std::move(of_deleted_jobs_.begin()->second));
    of_deleted_jobs_.erase(of_deleted_jobs_.begin());
    rows_.erase(removed.back());
  }
  return removed;
}

absl::Status JobOfRequestDeleted(const std::string& job_id) {
  return Refuse(absl::StatusCode::kNotFound, "JOB_NOT_FOUND",
                absl::StrCat("the job '", job_id, "' of this request has been deleted"));
}

}  // namespace muster::cluster
