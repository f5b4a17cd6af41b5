#include "coordinator/service/follow.h"

#include <vector>

namespace muster::service {

void Followers::Remove(const std::string& job, Follower* follower) {
  const auto found = followers_.find(job);
  if (found == followers_.end()) return;
  found->second.erase(follower);
  if (found->second.empty()) followers_.erase(found);
}

void Followers::Poke(const std::string& job) {
  const auto found = followers_.find(job);
  if (found == followers_.end()) return;
  // A follower may leave while it is poked.
  const std::vector<Follower*> now(found->second.begin(), found->second.end());
  for (Follower* follower : now) follower->Poke();
}

void Followers::JobDeleted(const std::string& job) {
  const auto found = followers_.find(job);
  if (found == followers_.end()) return;
  // Each leaves as it ends.
  const std::vector<Follower*> now(found->second.begin(), found->second.end());
  for (Follower* follower : now) follower->JobDeleted();
}

void Followers::EndAll(const absl::Status& why) {
  ended_ = why;
  const auto all = std::exchange(followers_, {});
  for (const auto& [job, followers] : all) {
    for (Follower* follower : followers) follower->End(why);
  }
}

}  // namespace muster::service
