#include "coordinator/service/follow.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/limits/limits.h"

namespace muster::service {

absl::Status Followers::Add(const std::string& job, Follower* follower) {
  const size_t of_job = followers_.contains(job) ? followers_.at(job).size() : 0;
  if (of_job >= kLimits.followers_of_job || count_ >= kLimits.followers) {
    return Refuse(absl::StatusCode::kResourceExhausted, "TOO_MANY_FOLLOWERS",
                  absl::StrCat(of_job, " calls follow job '", job, "' already, and ", count_,
                               " follow any job; allowed are ", kLimits.followers_of_job, " and ",
                               kLimits.followers));
  }
  count_ += followers_[job].insert(follower).second;
  return absl::OkStatus();
}

void Followers::Remove(const std::string& job, Follower* follower) {
  const auto found = followers_.find(job);
  if (found == followers_.end()) return;
  count_ -= found->second.erase(follower);
  if (found->second.empty()) followers_.erase(found);
}

void Followers::Poke(const std::string& job) {
  const auto found = followers_.find(job);
  if (found == followers_.end()) return;
  // A follower may remove itself from the set while it is poked.
  const std::vector<Follower*> now(found->second.begin(), found->second.end());
  for (Follower* follower : now) follower->Poke();
}

void Followers::JobDeleted(const std::string& job) {
  const auto found = followers_.find(job);
  if (found == followers_.end()) return;
  // Each follower removes itself from the set when it ends.
  const std::vector<Follower*> now(found->second.begin(), found->second.end());
  for (Follower* follower : now) follower->JobDeleted();
}

void Followers::EndAll(const absl::Status& why) {
  ended_ = why;
  const auto all = std::exchange(followers_, {});
  count_ = 0;
  for (const auto& [job, followers] : all) {
    for (Follower* follower : followers) follower->End(why);
  }
}

}  // namespace muster::service
