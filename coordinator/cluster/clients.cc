// Requests of clients, and what is remembered of them.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/cluster/cluster.h"
#include "coordinator/membership/refusal.h"

namespace muster::cluster {
namespace {

// Requests outlive their job by so much: longer than anybody repeats a call.
constexpr absl::Duration kRequestsKept = absl::Hours(24);

absl::Status DeletedSince(const std::string& job_id) {
  return Refuse(absl::StatusCode::kNotFound, "JOB_NOT_FOUND",
                absl::StrCat("the job '", job_id, "' of this request was deleted since"));
}

}  // namespace

absl::StatusOr<const store::RequestRow*> Cluster::Repeat(const std::string& request_id,
                                                         const std::string& fingerprint) const {
  const auto known = requests_.find(request_id);
  if (request_id.empty() || known == requests_.end()) return nullptr;
  if (known->second.fingerprint != fingerprint) {
    return Refuse(absl::StatusCode::kAlreadyExists, "REQUEST_ID_REUSED",
                  absl::StrCat("request id '", request_id,
                               "' was used for another request; take a fresh UUID"));
  }
  return &known->second;
}

void Cluster::Remember(store::RequestRow row) {
  if (row.request_id.empty()) return;
  batch_.requests.push_back(row);
  if (row.job_deleted()) bygone_requests_.emplace(row.deleted_time, row.request_id);
  requests_[row.request_id] = std::move(row);
}

void Cluster::ForgetRequests(absl::Time now) {
  while (!bygone_requests_.empty() && bygone_requests_.begin()->first + kRequestsKept <= now) {
    const std::string request_id = bygone_requests_.begin()->second;
    bygone_requests_.erase(bygone_requests_.begin());
    requests_.erase(request_id);
    batch_.removed_requests.push_back(request_id);
  }
}

absl::StatusOr<std::string> Cluster::Submit(const Submission& submission, absl::Time now) {
  const auto repeat = Repeat(submission.request_id, submission.fingerprint);
  if (!repeat.ok()) return repeat.status();
  if (*repeat != nullptr) {
    if ((*repeat)->job_deleted()) return DeletedSince((*repeat)->job_id);
    return (*repeat)->job_id;
  }

  const uint64_t number = last_number_ + 1;
  std::string id = submission.job_id;
  if (id.empty()) {
    uint64_t suffix = number;
    do {
      id = absl::StrCat(submission.name, "-", suffix++);
    } while (jobs_.contains(id));
  } else if (jobs_.contains(id)) {
    return Refuse(absl::StatusCode::kAlreadyExists, "JOB_ALREADY_EXISTS",
                  absl::StrCat("there is a job '", id, "' already (", jobs::Name(Find(id)->state),
                               "); choose another id, or none"));
  }
  last_number_ = number;
  jobs::Job& job = jobs_[id];
  job.id = id;
  job.number = number;
  job.spec = submission.spec;
  job.plan = submission.plan;
  job.create_time = now;
  submitted_[number] = id;
  open_[number] = id;
  Remember({.request_id = submission.request_id,
            .fingerprint = submission.fingerprint,
            .job_id = id});
  ListsChanged(&job);
  Follow(&job, {}, now);
  return id;
}

absl::Status Cluster::Stop(const std::string& job_id, const std::string& request_id,
                           const std::string& fingerprint, absl::Time now) {
  const auto repeat = Repeat(request_id, fingerprint);
  if (!repeat.ok()) return repeat.status();
  if (*repeat != nullptr) {
    return (*repeat)->job_deleted() ? DeletedSince(job_id) : absl::OkStatus();
  }
  jobs::Job* job = FindJob(job_id);
  if (job == nullptr) return NoSuchJob(job_id);
  if (job->terminal()) {
    return Refuse(absl::StatusCode::kFailedPrecondition, "JOB_ALREADY_ENDED",
                  absl::StrCat("job '", job_id, "' is ", jobs::Name(job->state), " already"));
  }
  Remember({.request_id = request_id, .fingerprint = fingerprint, .job_id = job_id});
  const bool first = !job->stop_requested;
  const jobs::Ended ended = jobs::OnStop(job, options_.patience, now);
  if (first && job->live && !job->ending) {
    const uint64_t number = job->commands.Append(commands::Kind::kStop);
    for (uint32_t rank = 0; rank < job->ranks.size(); ++rank) {
      SendToRank(*job, rank, job->commands.commands()[number - 1]);
    }
  }
  ListsChanged(job);
  Follow(job, ended, now);
  return absl::OkStatus();
}

absl::StatusOr<std::string> Cluster::Delete(const std::string& job_id,
                                            const std::string& request_id,
                                            const std::string& fingerprint,
                                            const std::string& answer, absl::Time now) {
  const auto repeat = Repeat(request_id, fingerprint);
  if (!repeat.ok()) return repeat.status();
  if (*repeat != nullptr) return (*repeat)->answer;
  const jobs::Job* job = FindJob(job_id);
  if (job == nullptr) return NoSuchJob(job_id);
  if (!job->terminal()) {
    return Refuse(absl::StatusCode::kFailedPrecondition, "JOB_NOT_ENDED",
                  absl::StrCat("job '", job_id, "' is ", jobs::Name(job->state),
                               "; only a job that has ended can be deleted: stop it first "
                               "(`muster stop ",
                               job_id, " --wait`)"));
  }
  for (auto& [id, row] : requests_) {
    if (row.job_id != job_id || row.job_deleted()) continue;
    row.deleted_time = now;
    batch_.requests.push_back(row);
    bygone_requests_.emplace(now, id);
  }
  Remember({.request_id = request_id,
            .fingerprint = fingerprint,
            .job_id = job_id,
            .deleted_time = now,
            .answer = answer});
  // What else of it would go into the same transaction.
  std::erase_if(batch_.steps, [&](const store::StepRow& row) { return row.job_id == job_id; });
  std::erase_if(batch_.validations,
                [&](const store::ValidationRow& row) { return row.job_id == job_id; });
  std::erase_if(batch_.logs, [&](const store::LogRow& row) { return row.job_id == job_id; });
  dirty_.erase(job_id);
  batch_.removed_jobs.push_back(job_id);
  batch_.last_number = last_number_;
  speed_.erase(job_id);
  said_.erase(job_id);
  submitted_.erase(job->number);
  jobs_.erase(job_id);
  effects_.push_back(JobDeleted{job_id});
  effects_.push_back(Say{absl::StrCat("job '", job_id, "' was deleted")});
  return answer;
}

}  // namespace muster::cluster
