// The files of reports that this agent's workers could not send (common/spool/spool.h), and the
// messages by which the agent sends these reports. Each process has its own file.
#ifndef MUSTER_WORKER_AGENT_SPOOL_FOLDER_H_
#define MUSTER_WORKER_AGENT_SPOOL_FOLDER_H_

#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/muster/v1/agent_service.pb.h"
#include "worker/agent/core/worker_record.h"

namespace muster::agent {

// Not thread-safe.
class SpoolFolder {
 public:
  // An empty path: there is no folder, and no worker gets a file.
  explicit SpoolFolder(std::string path) : path_(std::move(path)) {}

  // Creates the folder, and removes incomplete files. After an error there is no folder, as with an
  // empty path.
  absl::Status Open();
  // The variables that a worker gets in its environment. `limit`: the largest size of its file.
  std::map<std::string, std::string> Environment(const WorkerId& worker, size_t limit) const;

  // Returns the workers with a file of at least one report. A damaged file gets a new name that
  // ends in .bad. A file that cannot be read now stays and is not listed.
  std::vector<WorkerId> List() const;
  bool Has(const WorkerId& worker) const;
  // Returns serialized v1::WorkerReports in order; empty if there is no file, or only a damaged
  // file. After an error, try again later.
  absl::StatusOr<std::vector<std::string>> Read(const WorkerId& worker) const;
  void Remove(const WorkerId& worker) const;

 private:
  // Empty: the incarnation cannot be used as a file name, or there is no folder.
  std::string PathOf(const WorkerId& worker) const;

  std::string path_;
};

// Makes the messages with the reports that workers left on this agent's disk. The next message of a
// worker is made when the coordinator has acknowledged the message before.
//
// Not thread-safe. Times are SteadyNow's.
class SpoolReplay {
 public:
  // `folder` outlives this object.
  explicit SpoolReplay(const SpoolFolder* folder) : folder_(*folder) {}

  // Reads the reports of this worker; Next returns them from the beginning. False: the reports
  // cannot be read now. The failure is logged; call Begin again at read_again_at.
  bool Begin(const WorkerId& worker, absl::Time now);
  // True if Begin has succeeded for this worker and Next has not returned nullopt yet.
  bool Replays(const WorkerId& worker) const { return replays_.contains(worker); }
  // Requires Replays(worker). nullopt: all reports were acknowledged, and the file is removed.
  std::optional<v1::AgentMessage> Next(const WorkerId& worker);

  // The time at which to call Begin for the workers of TakeUnread; infinite if there are none.
  absl::Time read_again_at() const { return read_again_at_; }
  // Returns the workers whose reports could not be read, and forgets them.
  std::set<WorkerId> TakeUnread();

  // Forgets everything, because the stream broke. After the next welcome the caller calls Begin
  // again for all workers.
  void Reset();

 private:
  struct Replay {
    // Serialized v1::WorkerReports.
    std::vector<std::string> reports;
    size_t next = 0;
  };

  const SpoolFolder& folder_;
  std::map<WorkerId, Replay> replays_;
  // The workers whose file could not be read, and the time of the next attempt.
  std::set<WorkerId> unread_;
  absl::Time read_again_at_ = absl::InfiniteFuture();
};

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_SPOOL_FOLDER_H_
