// Which nodes fail the generations that run on them, and for how long nothing is placed there
// because of that. Pure.
//
// A fault of the node's own programs (a worker that could not be started, or that ended before its
// first message) speaks against the node whatever the job is. What a worker calls a fault of its
// node (a mount that is not there) may be the job's: it speaks against the node only together with
// those of other jobs. After three such faults within ten minutes the node is left out: for a
// minute, then for twice as long each time, up to an hour. A generation that makes progress there
// ends this series. All other failures only have the effect that the same job uses the node last.
// After three failures of any kind the node is doubted, which is only shown.
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
    // For people: "job 'a' generation 3 rank 1: could not be started: ...".
    std::string reason;
    enum class Kind { kPrograms, kSaidByWorker, kPerhaps };
    Kind kind = Kind::kPerhaps;
  };
  struct LeftOut {
    // Infinite past: the node is not left out, but it may have been before.
    absl::Time until = absl::InfinitePast();
    std::string reason;
    // How often in a row.
    uint32_t times = 0;

    bool operator==(const LeftOut&) const = default;
  };

  // Records a fault. True if the node is left out from now on because of it.
  bool Failed(const std::string& node, Fault fault, absl::Time now);
  // A generation made progress there, or somebody says that the node is in order. True if that
  // changes anything.
  bool Forgive(const std::string& node);
  // As stored.
  void Restore(const std::string& node, LeftOut left_out);

  // Null if it is not left out now.
  const LeftOut* Find(const std::string& node, absl::Time now) const;
  // The series, for the store.
  LeftOut Series(const std::string& node) const;
  // Why the node is doubted, for people: three or more generations failed there lately, perhaps
  // because of their jobs, and none has made progress there since. Empty: it is not doubted.
  std::string Doubts(const std::string& node, absl::Time now) const;
  // How many of them were this job's.
  size_t FailuresOf(const std::string& job, const std::string& node, absl::Time now) const;
  // Nodes that this job uses only if there are no others, because they had faults lately.
  std::set<std::string> Suspects(const std::string& job, absl::Time now) const;

  // Nodes that could not start a worker lately, or that a worker of this job called at fault, or
  // that were left out and have not made progress since.
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
