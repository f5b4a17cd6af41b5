// Sends the files of DownloadsFolder to clients (AgentService.SendFile), each on a thread and a
// connection of its own: the agent's heartbeats do not wait for it. A thread reads the next piece
// when the piece before has left.
#ifndef MUSTER_WORKER_AGENT_DOWNLOAD_SENDER_H_
#define MUSTER_WORKER_AGENT_DOWNLOAD_SENDER_H_

#include <grpcpp/channel.h>

#include <functional>
#include <list>
#include <memory>

#include "proto/muster/v1/agent_service.pb.h"
#include "worker/agent/downloads_folder.h"

namespace muster::agent {

// Threading: one thread.
class DownloadSender {
 public:
  // Makes a channel to the coordinator.
  using Connect = std::function<std::shared_ptr<grpc::Channel>()>;

  // `folder` outlives it. `connect` is called from several threads.
  DownloadSender(Connect connect, const DownloadsFolder* folder);
  // Breaks off what is being sent.
  ~DownloadSender();
  DownloadSender(const DownloadSender&) = delete;
  DownloadSender& operator=(const DownloadSender&) = delete;

  // Returns at once. An error is told to the client: DOWNLOAD_GONE, or what the disk says.
  void Send(const v1::SendDownload& request);

 private:
  struct Sending;

  const Connect connect_;
  const DownloadsFolder* const folder_;
  std::list<std::unique_ptr<Sending>> sendings_;
};

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_DOWNLOAD_SENDER_H_
