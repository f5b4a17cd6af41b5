#include "coordinator/jobs/node_health.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace muster::jobs {
namespace {

constexpr absl::Duration kWindow = absl::Minutes(10);
constexpr absl::Duration kFirst = absl::Minutes(1);
constexpr absl::Duration kLongest = absl::Hours(1);
// The number of faults that are remembered for each node.
constexpr size_t kRemembered = 20;

// Returns "3 failures within 10m; the last one: no program".
std::string Summary(size_t failures, const std::string& last) {
  return absl::StrCat(failures, " failures within ", absl::FormatDuration(kWindow),
                      "; the last one: ", last);
}

// Returns the nodes with recent faults that count. A node that was left out is avoided until a
// generation makes progress there.
template <typename Nodes, typename Counts>
std::set<std::string> AtFault(const Nodes& nodes, absl::Time now, const Counts& counts) {
  std::set<std::string> found;
  for (const auto& [name, node] : nodes) {
    const bool at_fault = std::any_of(
        node.faults.begin(), node.faults.end(),
        [&](const auto& dated) { return dated.time + kWindow > now && counts(dated.fault); });
    if (at_fault || node.left_out.times > 0) found.insert(name);
  }
  return found;
}

}  // namespace

bool NodeHealth::Failed(const std::string& name, Fault fault, absl::Time now) {
  Node& node = nodes_[name];
  node.faults.push_back({now, std::move(fault)});
  while (node.faults.size() > kRemembered || node.faults.front().time + kWindow <= now) {
    node.faults.pop_front();
  }
  size_t of_programs = 0;
  size_t faults = 0;
  std::set<std::string> jobs;
  for (const auto& [time, known] : node.faults) {
    if (known.kind == Fault::Kind::kPerhaps) continue;
    ++faults;
    of_programs += known.kind == Fault::Kind::kPrograms;
    jobs.insert(known.job);
  }
  if (of_programs < kFaults && (faults < kFaults || jobs.size() < 2)) return false;
  LeftOut& out = node.left_out;
  const absl::Duration length =
      std::min(kLongest, kFirst * (int64_t{1} << std::min(out.times, 10u)));
  ++out.times;
  out.until = now + length;
  out.reason = Summary(faults, node.faults.back().fault.reason);
  // Later failures are counted from zero.
  node.faults.clear();
  return true;
}

bool NodeHealth::Forgive(const std::string& name) {
  const auto node = nodes_.find(name);
  if (node == nodes_.end()) return false;
  const bool changed = node->second.left_out.times > 0;
  nodes_.erase(node);
  return changed;
}

void NodeHealth::Restore(const std::string& node, LeftOut left_out) {
  if (left_out.times > 0) nodes_[node].left_out = std::move(left_out);
}

const NodeHealth::LeftOut* NodeHealth::Find(const std::string& name, absl::Time now) const {
  const auto node = nodes_.find(name);
  if (node == nodes_.end() || node->second.left_out.until <= now) return nullptr;
  return &node->second.left_out;
}

NodeHealth::LeftOut NodeHealth::Series(const std::string& name) const {
  const auto node = nodes_.find(name);
  return node == nodes_.end() ? LeftOut() : node->second.left_out;
}

std::string NodeHealth::Doubts(const std::string& name, absl::Time now) const {
  const auto node = nodes_.find(name);
  if (node == nodes_.end()) return "";
  const auto& faults = node->second.faults;
  const size_t lately = std::count_if(
      faults.begin(), faults.end(), [&](const auto& dated) { return dated.time + kWindow > now; });
  return lately < kFaults ? "" : Summary(lately, faults.back().fault.reason);
}

size_t NodeHealth::FailuresOf(const std::string& job, const std::string& name,
                              absl::Time now) const {
  const auto node = nodes_.find(name);
  if (node == nodes_.end()) return 0;
  const auto& faults = node->second.faults;
  return std::count_if(faults.begin(), faults.end(), [&](const auto& dated) {
    return dated.time + kWindow > now && dated.fault.job == job;
  });
}

std::set<std::string> NodeHealth::Suspects(const std::string& job, absl::Time now) const {
  return AtFault(nodes_, now, [&](const Fault& fault) {
    return fault.kind == Fault::Kind::kPrograms || fault.job == job;
  });
}

std::set<std::string> NodeHealth::CannotStart(const std::string& job, absl::Time now) const {
  return AtFault(nodes_, now, [&](const Fault& fault) {
    return fault.kind == Fault::Kind::kPrograms ||
           (fault.kind == Fault::Kind::kSaidByWorker && fault.job == job);
  });
}

}  // namespace muster::jobs
