// The folder in which rank 0 of a job writes a file that a client fetches (common/downloads).
// DownloadSender sends the files. A file is removed in these cases:
// - the client has it;
// - nobody has fetched it for a while;
// - the file has no final name yet, and its worker has ended.
#ifndef MUSTER_WORKER_AGENT_DOWNLOADS_FOLDER_H_
#define MUSTER_WORKER_AGENT_DOWNLOADS_FOLDER_H_

#include <grpcpp/channel.h>

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/muster/v1/agent_service.pb.h"
#include "worker/agent/core/worker_record.h"

namespace muster::agent {

// A downloaded file, open for reading.
class DownloadedFile {
 public:
  explicit DownloadedFile(int fd) : fd_(fd) {}
  ~DownloadedFile();
  DownloadedFile(DownloadedFile&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  DownloadedFile& operator=(DownloadedFile&&) = delete;

  // Reads exactly these bytes. DATA_LOSS: the file is shorter.
  absl::Status ReadAt(uint64_t offset, size_t bytes, char* out) const;
  // Marks the file as fetched now.
  void Touch() const;

 private:
  int fd_;
};

// Threading: the const methods may be called from any thread after Open.
class DownloadsFolder {
 public:
  // `node`: for errors. An empty path means that there is no folder. `keep`: how long a file is
  // kept after it was written or last sent, whichever is later.
  DownloadsFolder(std::string node, std::string path, absl::Duration keep)
      : node_(std::move(node)), path_(std::move(path)), keep_(keep) {}

  // Creates the folder, for its owner only, and removes incomplete files: no worker runs yet. After
  // an error there is no folder, as with an empty path.
  absl::Status Open();
  // The variables that a worker gets in its environment.
  std::map<std::string, std::string> Environment() const;

  // Opens the file of this command, which has this size. NOT_FOUND: there is no such file (any
  // more).
  absl::StatusOr<DownloadedFile> Read(const std::string& job_id, uint64_t command,
                                      uint64_t bytes) const;
  void Remove(const std::string& job_id, uint64_t command) const;
  // Removes the files without a final name of a worker that has ended.
  void RemoveUnfinished(const WorkerId& worker) const;
  // Removes the files that are older than `keep`. `now`: the time of day, as in the files' times.
  void RemoveOld(absl::Time now) const;

 private:
  const std::string node_;
  std::string path_;
  const absl::Duration keep_;
};

// Sends the files of DownloadsFolder to clients (AgentService.SendFile). Each file has its own
// thread and connection, so that the agent's heartbeats do not wait. The thread reads the next
// piece when the piece before has left.
//
// Threading: one thread.
class DownloadSender {
 public:
  // Makes a channel to the coordinator.
  using Connect = std::function<std::shared_ptr<grpc::Channel>()>;

  // `folder` outlives this object. `connect` is called from several threads.
  DownloadSender(Connect connect, const DownloadsFolder* folder);
  // Breaks off the transfers.
  ~DownloadSender();
  DownloadSender(const DownloadSender&) = delete;
  DownloadSender& operator=(const DownloadSender&) = delete;

  // Starts to send, and returns at once. The client gets an error: DOWNLOAD_GONE, or the disk's
  // error.
  void Send(const v1::SendDownload& request);

 private:
  struct Sending;

  const Connect connect_;
  const DownloadsFolder* const folder_;
  std::list<std::unique_ptr<Sending>> sendings_;
};

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_DOWNLOADS_FOLDER_H_
