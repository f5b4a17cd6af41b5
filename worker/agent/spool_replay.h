// Makes the messages with the reports that workers left on this agent's disk. The next message of a
// worker is made when the coordinator has acknowledged the one before.
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
#include "worker/agent/core/worker_record.h"

namespace muster::agent {

// Not thread-safe. Times are SteadyNow's.
class SpoolReplay {
 public:
  // `folder` outlives this object.
  explicit SpoolReplay(const SpoolFolder* folder) : folder_(*folder) {}

  // Reads the reports of this worker; Next returns them from the beginning. False: they cannot be
  // read now, which is logged; try again at read_again_at.
  bool Begin(const WorkerId& worker, absl::Time now);
  // True if Begin has succeeded for this worker and Next has not returned nullopt yet.
  bool Replays(const WorkerId& worker) const { return replays_.contains(worker); }
  // Requires Replays(worker). nullopt: all reports were acknowledged, and the file is removed.
  std::optional<v1::AgentMessage> Next(const WorkerId& worker);

  // When to call Begin for the workers of TakeUnread; infinite if there are none.
  absl::Time read_again_at() const { return read_again_at_; }
  // Returns the workers whose reports could not be read, and forgets them.
  std::set<WorkerId> TakeUnread();

  // The stream broke: everything is forgotten. After the next welcome Begin is called again for all
  // workers.
  void Reset();

 private:
  struct Replay {
    // Serialized v1::WorkerReports.
    std::vector<std::string> reports;
    size_t next = 0;
  };

  const SpoolFolder& folder_;
  std::map<WorkerId, Replay> replays_;
  // The workers whose file could not be read, and when it is tried again.
  std::set<WorkerId> unread_;
  absl::Time read_again_at_ = absl::InfiniteFuture();
};

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_SPOOL_REPLAY_H_
