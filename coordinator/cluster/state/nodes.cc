#include "coordinator/cluster/state/nodes.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/membership/refusal.h"

namespace muster::cluster {
namespace {

// The number of agent incarnations that are stored for each node.
constexpr size_t kKeptIncarnations = 16;

}  // namespace

Nodes::Nodes(const std::vector<store::NodeMarkRow>& stored) {
  for (const store::NodeMarkRow& row : stored) {
    marks_[row.node] = row;
    health_.Restore(row.node, row.left_out);
  }
}

// ---- Requests of operators.

store::NodeMarkRow Nodes::Drain(const NodeRequest& request) {
  store::NodeMarkRow mark = MarkOf(request.node);
  mark.drained = true;
  // A repeated drain without a deadline keeps the deadline.
  if (request.deadline.has_value()) mark.drain_deadline = request.deadline;
  mark.reason = absl::StrCat("muster drain", request.By());
  Store(mark);
  return mark;
}

store::NodeMarkRow Nodes::Cordon(const NodeRequest& request) {
  store::NodeMarkRow mark = MarkOf(request.node);
  mark.cordoned = true;
  if (!mark.drained) mark.reason = absl::StrCat("muster cordon", request.By());
  Store(mark);
  return mark;
}

store::NodeMarkRow Nodes::Uncordon(const NodeRequest& request) {
  health_.Forgive(request.node);
  store::NodeMarkRow mark = MarkOf(request.node);
  mark.drained = mark.cordoned = false;
  mark.reason.clear();
  mark.drain_deadline.reset();
  mark.left_out = {};
  Store(mark);
  return mark;
}

void Nodes::Forget(const std::string& node) {
  AgentGone(node);
  health_.Forgive(node);
  Remove(node);
}

// ---- Agents.

absl::Status Nodes::CheckName(const AgentHello& hello, const membership::Agent* holder,
                              absl::Duration lease) const {
  const store::NodeMarkRow mark = MarkOf(hello.node);
  const auto& known = mark.incarnations;
  const auto found = std::find(known.begin(), known.end(), hello.incarnation);
  if (found != known.end() && found + 1 != known.end()) {
    return Refuse(absl::StatusCode::kFailedPrecondition, "STALE_INCARNATION",
                  absl::StrCat("node '", hello.node, "': a newer agent process has this name"),
                  {{"node", hello.node}});
  }
  // An agent without an id can be any agent.
  const bool another =
      holder != nullptr && !mark.agent_id.empty() && mark.agent_id != hello.agent_id;
  if (!another) return absl::OkStatus();
  return Refuse(
      absl::StatusCode::kAlreadyExists, "NODE_NAME_TAKEN",
      absl::StrCat("another agent has the name '", hello.node, "' (on ", holder->host,
                   holder->attached() ? ", attached" : ", its lease still holds",
                   "); start this one with another --node, or, if it replaces the other one, "
                   "stop that one and wait for ",
                   absl::FormatDuration(lease), ", or give it the other's --state directory"),
      {{"node", hello.node}});
}

void Nodes::Attached(const AgentHello& hello, bool new_process, std::set<uint32_t> quarantined) {
  store::NodeMarkRow mark = MarkOf(hello.node);
  auto& known = mark.incarnations;
  const bool newest = !known.empty() && known.back() == hello.incarnation;
  if (!newest || mark.agent_id != hello.agent_id) {
    mark.agent_id = hello.agent_id;
    if (!newest) known.push_back(hello.incarnation);
    if (known.size() > kKeptIncarnations) known.erase(known.begin());
    Store(std::move(mark));
  }
  const auto stopping = stopping_.find(hello.node);
  const bool over = stopping != stopping_.end() && stopping->second.by_agent;
  if (over && new_process) stopping_.erase(stopping);
  quarantined_[hello.node] = std::move(quarantined);
}

void Nodes::AgentGone(const std::string& node) {
  stopping_.erase(node);
  quarantined_.erase(node);
}

bool Nodes::AgentStops(const std::string& node, const std::string& reason) {
  return stopping_.try_emplace(node, Stopping{reason, true}).second;
}

void Nodes::StopAgent(const std::string& node, const std::string& reason) {
  stopping_[node] = {reason, false};
}

void Nodes::Quarantine(const std::string& node, uint32_t slot, bool quarantined) {
  if (quarantined) {
    quarantined_[node].insert(slot);
  } else {
    quarantined_[node].erase(slot);
  }
}

// ---- Faults.

bool Nodes::Failed(const std::string& node, jobs::NodeHealth::Fault fault, absl::Time now) {
  if (!health_.Failed(node, std::move(fault), now)) return false;
  StoreHealth(node);
  return true;
}

void Nodes::Works(const std::string& node) {
  if (health_.Forgive(node)) StoreHealth(node);
}

void Nodes::StoreHealth(const std::string& node) {
  store::NodeMarkRow mark = MarkOf(node);
  mark.left_out = health_.Series(node);
  Store(std::move(mark));
}

// ---- Questions.

store::NodeMarkRow Nodes::MarkOf(const std::string& node) const {
  const auto known = marks_.find(node);
  return known == marks_.end() ? store::NodeMarkRow{.node = node} : known->second;
}

std::optional<NodeView> Nodes::Closed(const std::string& node, absl::Time now) const {
  if (const auto stopping = stopping_.find(node); stopping != stopping_.end()) {
    return NodeView{NodeView::kDraining, stopping->second.reason};
  }
  if (const auto mark = marks_.find(node); mark != marks_.end()) {
    if (mark->second.drained) return NodeView{NodeView::kDraining, mark->second.reason};
    if (mark->second.cordoned) return NodeView{NodeView::kCordoned, mark->second.reason};
  }
  const jobs::NodeHealth::LeftOut* left_out = health_.Find(node, now);
  if (left_out == nullptr) return std::nullopt;
  return NodeView{NodeView::kLeftOut, left_out->reason, left_out->until};
}

NodeView Nodes::View(const std::string& node, absl::Time now) const {
  return Closed(node, now).value_or(NodeView{NodeView::kOpen, health_.Doubts(node, now)});
}

std::string Nodes::WhyClosed(const std::string& node, absl::Time now) const {
  const std::optional<NodeView> closed = Closed(node, now);
  if (!closed.has_value()) return "";
  std::string how = stopping_.contains(node) ? "is being stopped" : "is drained";
  if (closed->what == NodeView::kCordoned) how = "is cordoned";
  if (closed->what == NodeView::kLeftOut) {
    how = absl::FormatTime("is left out until %H:%M:%S UTC", closed->until, absl::UTCTimeZone());
  }
  return absl::StrCat(how, " (", closed->reason, ")");
}

bool Nodes::IsBeingEmptied(const std::string& node) const {
  const auto mark = marks_.find(node);
  return stopping_.contains(node) || (mark != marks_.end() && mark->second.drained);
}

// ---- What must be stored.

void Nodes::Store(store::NodeMarkRow mark) {
  changed_.insert(mark.node);
  const auto [known, added] = marks_.try_emplace(mark.node);
  grew_ = grew_ || added;
  known->second = std::move(mark);
}

void Nodes::Remove(const std::string& node) {
  if (marks_.erase(node) > 0) changed_.insert(node);
}

Nodes::Changes Nodes::TakeChanges(size_t most,
                                  const std::function<bool(const std::string&)>& has_agent) {
  std::vector<std::string> forgotten;
  const size_t excess = grew_ && marks_.size() > most ? marks_.size() - most : 0;
  grew_ = false;
  for (const auto& [node, mark] : marks_) {
    if (forgotten.size() == excess) break;
    const bool closed =
        mark.cordoned || mark.drained || mark.left_out != jobs::NodeHealth::LeftOut();
    if (!closed && !has_agent(node)) forgotten.push_back(node);
  }
  for (const std::string& node : forgotten) Remove(node);
  Changes changes;
  for (const std::string& node : std::exchange(changed_, {})) {
    if (const auto mark = marks_.find(node); mark != marks_.end()) {
      changes.marks.push_back(mark->second);
    } else {
      changes.removed.push_back(node);
    }
  }
  return changes;
}

}  // namespace muster::cluster
