// The files in which this agent's workers leave reports that they could not send
// (common/spool/spool.h). Each process has its own file.
#ifndef MUSTER_WORKER_AGENT_SPOOL_FOLDER_H_
#define MUSTER_WORKER_AGENT_SPOOL_FOLDER_H_

#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/agent/core/worker_record.h"

namespace muster::agent {

// Not thread-safe.
class SpoolFolder {
 public:
  // If the path is empty, there is no folder, and no worker gets a file.
  explicit SpoolFolder(std::string path) : path_(std::move(path)) {}

  // Creates the folder, and removes files from it that were written only in part. After an error
  // there is no folder, as with an empty path.
  absl::Status Open();
  // The variables that a worker gets in its environment. `limit`: the largest size of its file.
  std::map<std::string, std::string> Environment(const WorkerId& worker, size_t limit) const;

  // The workers whose files are there and have at least one report. A damaged file is renamed, so
  // that its name ends in .bad. A file that cannot be read now stays and is not listed.
  std::vector<WorkerId> List() const;
  bool Has(const WorkerId& worker) const;
  // Serialized v1::WorkerReports in order; empty if there is no file, or only a damaged one. After
  // an error, try again later.
  absl::StatusOr<std::vector<std::string>> Read(const WorkerId& worker) const;
  void Remove(const WorkerId& worker) const;

 private:
  // Empty: the incarnation cannot be used as a file name, or there is no folder.
  std::string PathOf(const WorkerId& worker) const;

  std::string path_;
};

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_SPOOL_FOLDER_H_
