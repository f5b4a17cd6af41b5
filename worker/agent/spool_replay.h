// Tells the coordinator what workers left on this agent's disk, one message at a time: the next of
// a worker is made when the coordinator has acknowledged the one before.
#ifndef MUSTER_WORKER_AGENT_SPOOL_REPLAY_H_
#define MUSTER_WORKER_AGENT_SPOOL_REPLAY_H_

#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "proto/muster/v1/agent_service.pb.h"
#include "worker/agent/spool_folder.h"
#include "worker/agent/worker_record.h"

namespace muster::agent {

// Not thread-safe. Times are SteadyNow's.
class SpoolReplay {
 public:
  // `folder` outlives this object.
  explicit SpoolReplay(const SpoolFolder* folder) : folder_(*folder) {}

  // Reads what this worker left; Next gives it from the beginning. False: it cannot be read now,
  // which is logged, and it is to be tried again (read_again_at).
  bool Begin(const WorkerId& worker, absl::Time now);
  // Begun, and not at its end.
  bool Replays(const WorkerId& worker) const { return replays_.contains(worker); }
  // Of a worker that Replays. nullopt: all of it is told, and the file is removed.
  std::optional<v1::AgentMessage> Next(const WorkerId& worker);

  // When Begin is to be called for TakeUnread; infinite where that is empty.
  absl::Time read_again_at() const { return read_again_at_; }
  std::set<WorkerId> TakeUnread();

  // The stream broke. After the next welcome all of them are told anew.
  void Reset();

 private:
  struct Replay {
    // Serialized v1::WorkerReports.
    std::vector<std::string> reports;
    size_t next = 0;
  };

  const SpoolFolder& folder_;
  std::map<WorkerId, Replay> replays_;
  // Those whose file could not be read, and when it is tried again.
  std::set<WorkerId> unread_;
  absl::Time read_again_at_ = absl::InfiniteFuture();
};

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_SPOOL_REPLAY_H_
