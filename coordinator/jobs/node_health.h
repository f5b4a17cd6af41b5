// The health of nodes: which nodes make generations fail, and for how long these nodes are left
// out. Pure.
//
// Three kinds of faults:
// - A fault of the node's programs: a worker could not be started, or ended before its first
//   message. Such faults count against the node, whatever the job is.
// - A fault that a worker reports of its node, for example a missing mount. The job may cause this,
//   so such faults only count together with those of other jobs.
// - Any other failure. The same job uses the node only if there are no other nodes.
// A node is left out after three faults that count within ten minutes. The first time is a minute
// long. It doubles each time, up to an hour. A generation that makes progress on the node ends this
// series. A node with three failures of any kind is doubted, which is only shown.
#ifndef MUSTER_COORDINATOR_JOBS_NODE_HEALTH_H_
#define MUSTER_COORDINATOR_JOBS_NODE_HEALTH_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "absl/time/time.h"

namespace muster::jobs {

class NodeHealth {
 public:
  struct Fault {
    std::string job;
    // The fault for people: "job 'a' generation 3 rank 1: could not be started: ...".
    std::string reason;
    enum class Kind { kPrograms, kSaidByWorker, kPerhaps };
    Kind kind = Kind::kPerhaps;
  };
  struct LeftOut {
    // The end of the time for which the node is left out; infinite past if it is not left out now.
    absl::Time until = absl::InfinitePast();
    std::string reason;
    // The number of times in a row.
    uint32_t times = 0;

    bool operator==(const LeftOut&) const = default;
  };

  // Records a fault. True if the node is left out from now on because of this fault.
  bool Failed(const std::string& node, Fault fault, absl::Time now);
  // Ends the series of a node, because a generation made progress there or an operator says that
  // the node is in order. True if this changes anything.
  bool Forgive(const std::string& node);
  // Restores the stored series of a node.
  void Restore(const std::string& node, LeftOut left_out);

  // Null if the node is not left out now.
  const LeftOut* Find(const std::string& node, absl::Time now) const;
  // Returns the series of a node, for the store.
  LeftOut Series(const std::string& node) const;
  // Returns why the node is doubted, for people; empty if it is not. A node is doubted if three or
  // more generations failed there lately, perhaps because of their jobs, without progress since.
  std::string Doubts(const std::string& node, absl::Time now) const;
  // Returns how many of these failures were this job's.
  size_t FailuresOf(const std::string& job, const std::string& node, absl::Time now) const;
  // Returns the nodes that this job uses only if there are no others, because of recent faults.
  std::set<std::string> Suspects(const std::string& job, absl::Time now) const;

  // Returns the nodes on which a start of this job would fail. These nodes could not start a worker
  // lately, were called at fault by a worker of this job, or were left out and have not made
  // progress since.
  std::set<std::string> CannotStart(const std::string& job, absl::Time now) const;

  // The number of recent failures after which a node is left out, or doubted.
  static constexpr size_t kFaults = 3;

 private:
  struct Node {
    struct Dated {
      absl::Time time;
      Fault fault;
    };
    std::deque<Dated> faults;
    LeftOut left_out;
  };
  std::map<std::string, Node> nodes_;
};

}  // namespace muster::jobs

#endif  // MUSTER_COORDINATOR_JOBS_NODE_HEALTH_H_
