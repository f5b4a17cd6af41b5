// The files in which this agent's workers leave reports that they could not tell
// (common/spool/spool.h), one per process.
#ifndef MUSTER_WORKER_AGENT_SPOOL_FOLDER_H_
#define MUSTER_WORKER_AGENT_SPOOL_FOLDER_H_

#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/agent/worker_record.h"

namespace muster::agent {

class SpoolFolder {
 public:
  // An empty path: no worker is given a file.
  explicit SpoolFolder(std::string path) : path_(std::move(path)) {}

  // Makes the folder, and takes out of it what was half written. After an error there is none, as
  // with an empty path.
  absl::Status Open();
  // What a worker is to be told in its environment; `limit`: of its file.
  std::map<std::string, std::string> Environment(const WorkerId& worker, size_t limit) const;

  // Whose files are there, with at least one report in each. What is damaged is renamed, to end
  // with .bad; what cannot be read now stays.
  std::vector<WorkerId> List() const;
  bool Has(const WorkerId& worker) const;
  // Serialized v1::WorkerReports in order; empty where there is nothing, or nothing whole. Other
  // errors: try again.
  absl::StatusOr<std::vector<std::string>> Read(const WorkerId& worker) const;
  void Remove(const WorkerId& worker) const;

 private:
  // Empty: the incarnation makes no file name, or there is no folder.
  std::string PathOf(const WorkerId& worker) const;

  std::string path_;
};

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_SPOOL_FOLDER_H_
