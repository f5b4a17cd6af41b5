#include "coordinator/service/follow.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/limits/limits.h"

namespace muster::service {

namespace {

absl::Status TooMany(size_t found, const std::string& what, size_t limit) {
  return Refuse(absl::StatusCode::kResourceExhausted, "TOO_MANY_FOLLOWERS",
                absl::StrCat(found, " calls ", what, " already, as many as allowed; end some"),
                LimitOf(limit));
}

}  // namespace

std::string HostOf(const std::string& peer) {
  // Examples of `peer`: "ipv4:10.0.0.1:5000", "ipv6:%5B::1%5D:5000", "unix:".
  const size_t colon = peer.rfind(':');
  return colon == peer.find(':') ? peer : peer.substr(0, colon);
}

absl::Status Followers::Add(const std::string& job, const std::string& host, Follower* follower) {
  const size_t of_job = followers_.contains(job) ? followers_.at(job).size() : 0;
  if (of_job >= kLimits.followers_of_job) {
    return TooMany(of_job, absl::StrCat("follow job '", job, "'"), kLimits.followers_of_job);
  }
  if (hosts_.size() >= kLimits.followers) {
    return TooMany(hosts_.size(), "follow any job", kLimits.followers);
  }
  if (const auto of_host = of_host_.find(host);
      of_host != of_host_.end() && of_host->second >= kLimits.followers_of_host) {
    return TooMany(of_host->second, absl::StrCat("of ", host, " follow jobs"),
                   kLimits.followers_of_host);
  }
  if (!followers_[job].insert(follower).second) return absl::OkStatus();
  hosts_[follower] = host;
  ++of_host_[host];
  return absl::OkStatus();
}

void Followers::Remove(const std::string& job, Follower* follower) {
  const auto found = followers_.find(job);
  if (found == followers_.end()) return;
  if (found->second.erase(follower) == 0) return;
  if (found->second.empty()) followers_.erase(found);
  const auto host = hosts_.find(follower);
  const auto of_host = of_host_.find(host->second);
  if (--of_host->second == 0) of_host_.erase(of_host);
  hosts_.erase(host);
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

void Followers::EndRefused() {
  std::vector<std::pair<Follower*, absl::Status>> refused;
  for (const auto& [follower, host] : hosts_) {
    if (absl::Status why = follower->MayGoOn(); !why.ok()) refused.emplace_back(follower, why);
  }
  for (const auto& [follower, why] : refused) follower->End(why);
}

void Followers::EndAll(const absl::Status& why) {
  ended_ = why;
  const auto all = std::exchange(followers_, {});
  hosts_.clear();
  of_host_.clear();
  for (const auto& [job, followers] : all) {
    for (Follower* follower : followers) follower->End(why);
  }
}

}  // namespace muster::service
