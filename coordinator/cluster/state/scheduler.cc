#include "coordinator/cluster/state/scheduler.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/slots/slots.h"
#include "coordinator/jobs/conclusion.h"

namespace muster::cluster {
namespace {

std::vector<uint32_t> SlotsOf(const membership::Agent& agent, jobs::Device device) {
  std::vector<uint32_t> slots;
  if (device == jobs::Device::kCuda) {
    for (const membership::Gpu& gpu : agent.gpus) slots.push_back(kFirstGpuSlot + gpu.index);
  } else {
    for (uint32_t slot = 0; slot < agent.slots; ++slot) slots.push_back(slot);
  }
  return slots;
}

}  // namespace

bool HasSlot(const membership::Agent& agent, uint32_t slot) {
  return slot < agent.slots ||
         std::any_of(agent.gpus.begin(), agent.gpus.end(),
                     [&](const membership::Gpu& gpu) { return slot == kFirstGpuSlot + gpu.index; });
}

std::vector<jobs::Decision> Scheduler::Decide(jobs::Device device) const {
  std::vector<jobs::WaitingJob> waiting = WaitingJobs(device);
  if (waiting.empty()) return {};
  std::vector<jobs::Decision> decisions =
      jobs::PlaceJobs(std::move(waiting), Slots(device), PlacedJobs(device), now_);
  // A job keeps its place in the line and these slots before not_before, but does not start.
  std::erase_if(decisions, [this](const jobs::Decision& decision) {
    return decision.placed.has_value() && state_.jobs.Find(decision.id)->not_before() > now_;
  });
  const std::string closed = ClosedNodes();
  for (jobs::Decision& decision : decisions) {
    if (decision.placed.has_value()) continue;
    if (!closed.empty()) {
      // Removes texts that Slots::Shortage has added.
      decision.reason = absl::StrReplaceAll(
          absl::StrCat(decision.reason, "; ", closed),
          {{"; no agent is attached", ""}, {"; no attached agent offers any", ""}});
    }
    if (state_.jobs.Find(decision.id)->state() == jobs::State::kRecovering) {
      decision.reason = absl::StrCat("to start again: ", decision.reason);
    }
  }
  return decisions;
}

std::vector<jobs::WaitingJob> Scheduler::WaitingJobs(jobs::Device device) const {
  std::vector<jobs::WaitingJob> line;
  for (const jobs::Job* job : state_.jobs.Open()) {
    if (job->plan.device != device || !job->waiting()) continue;
    if (state_.restored.MayStillRun(job->id, now_)) continue;
    // A job that waits after faults of nodes does not delay other jobs.
    if (job->not_before() > now_ && jobs::EndOf(*job) == jobs::End::kNodeFault) continue;
    line.push_back({.id = job->id,
                    .number = job->number,
                    .priority = job->plan.priority,
                    .started = job->generation > 0,
                    .world_size = job->plan.world_size,
                    .avoid = state_.nodes.health().Suspects(job->id, now_),
                    .time_limit = jobs::TimeLeft(*job, now_)});
  }
  return line;
}

std::vector<jobs::PlacedJob> Scheduler::PlacedJobs(jobs::Device device) const {
  std::vector<jobs::PlacedJob> running;
  for (const jobs::Job* job : state_.jobs.Open()) {
    if (!job->live() || job->plan.device != device) continue;
    // Slots on nodes that accept no work are not counted, because they are not offered when the job
    // ends.
    jobs::PlacedJob entry{.end = jobs::TimeLimitEnd(*job)};
    for (const jobs::Rank& rank : job->ranks) {
      if (rank.exited || !Offers(rank.node)) continue;
      ++entry.slots;
      entry.protocol = state_.membership.agents().Find(rank.node)->protocol;
    }
    running.push_back(entry);
  }
  return running;
}

jobs::Slots Scheduler::Slots(jobs::Device device) const {
  jobs::Slots slots(device);
  for (const auto& [node, agent] : state_.membership.agents().all()) {
    if (Offers(node)) slots.Offer(node, SlotsOf(agent, device), agent.protocol);
  }
  for (const auto& [node, hanging] : state_.nodes.quarantined()) {
    for (const uint32_t slot : hanging) slots.Use({node, slot});
  }
  for (const jobs::Job* job : state_.jobs.Open()) {
    if (!job->live()) continue;
    for (const jobs::Rank& rank : job->ranks) {
      if (!rank.exited) slots.Use({rank.node, rank.slot});
    }
  }
  return slots;
}

std::string Scheduler::TooBigFor(uint32_t world_size, jobs::Device device) const {
  bool any = false;
  const uint32_t offered = MostOffered(device, [&](const std::string& node) {
    const bool offers = Offers(node);
    any = any || offers;
    return offers;
  });
  if (world_size <= offered) return "";
  const std::string needs = absl::StrCat("needs ", jobs::CountOf(world_size, device), "; ");
  if (!any) return absl::StrCat(needs, "no agent is attached");
  if (offered == 0) return absl::StrCat(needs, "no attached agent offers any");
  return absl::StrCat(needs, offered, offered == 1 ? " is offered" : " are offered");
}

bool Scheduler::MayStartElsewhere(const jobs::Job& job) const {
  const std::set<std::string> cannot = state_.nodes.health().CannotStart(job.id, now_);
  // A node whose agent may soon attach again counts, too.
  return job.plan.world_size <= MostOffered(job.plan.device, [&](const std::string& node) {
           return state_.nodes.WhyClosed(node, now_).empty() && !cannot.contains(node);
         });
}

bool Scheduler::Offers(const std::string& node) const {
  const membership::Agent* agent = state_.membership.agents().Find(node);
  return agent != nullptr && agent->attached() && state_.nodes.WhyClosed(node, now_).empty();
}

uint32_t Scheduler::MostOffered(jobs::Device device,
                                const std::function<bool(const std::string& node)>& counts) const {
  // All ranks of a job run on nodes of the same protocol.
  std::map<uint32_t, uint32_t> of_protocol;
  uint32_t most = 0;
  for (const auto& [node, agent] : state_.membership.agents().all()) {
    if (!counts(node)) continue;
    most = std::max(
        most, of_protocol[agent.protocol] += static_cast<uint32_t>(SlotsOf(agent, device).size()));
  }
  return most;
}

std::string Scheduler::ClosedNodes() const {
  constexpr int kShown = 3;
  std::string text;
  int count = 0;
  for (const auto& [node, agent] : state_.membership.agents().all()) {
    const std::string why = agent.attached() ? state_.nodes.WhyClosed(node, now_) : "";
    if (why.empty() || ++count > kShown) continue;
    absl::StrAppend(&text, count == 1 ? "" : "; ", "node '", node, "' ", why);
  }
  if (count > kShown) absl::StrAppend(&text, "; and ", count - kShown, " more nodes");
  return text;
}

}  // namespace muster::cluster
