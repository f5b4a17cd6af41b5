// Files that operations wrote for clients, on their way from the nodes. Each transfer joins a
// client's stream (OperationService.Download) and an agent's stream (AgentService.SendFile). The
// coordinator keeps one piece of each file in memory. The pieces do not pass through the engine.
//
// Life cycle: a client's call makes a Transfer. Transfers::Begin gives it a name, and the agent is
// told this name. The agent's stream begins with this name. TransferCore decides, on the threads of
// gRPC.
#ifndef MUSTER_COORDINATOR_SERVICE_TRANSFERS_H_
#define MUSTER_COORDINATOR_SERVICE_TRANSFERS_H_

#include <grpcpp/support/server_callback.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/steady/condition.h"
#include "coordinator/jobs/job.h"
#include "coordinator/membership/membership.h"
#include "coordinator/service/transfer_core.h"
#include "proto/muster/v1/agent_service.pb.h"
#include "proto/muster/v1/file_piece.pb.h"

namespace muster::service {

// The file that an operation wrote for a client: which node can send it, and its size.
struct DownloadFile {
  // The node with the file.
  std::string node;
  uint64_t bytes = 0;
};

// Returns the file of an operation. NOT_FOUND OPERATION_NOT_FOUND. FAILED_PRECONDITION NO_DOWNLOAD:
// the operation does not write a file for a client; OPERATION_NOT_DONE, OPERATION_FAILED.
absl::StatusOr<DownloadFile> DownloadOf(const jobs::Job& job, uint64_t number);

// Returns the stream of the node's agent. UNAVAILABLE NODE_NOT_ATTACHED.
absl::StatusOr<membership::PeerStreamId> AgentFor(const DownloadFile& file,
                                                  const membership::Membership& membership);

class Transfers;

// One transfer. Thread-safe.
class Transfer : public std::enable_shared_from_this<Transfer> {
 public:
  using ClientStream = grpc::ServerWriteReactor<v1::FilePiece>;
  using AgentStream = grpc::ServerReadReactor<v1::FilePiece>;

  // Ends the client's stream with an error.
  void Fail(const absl::Status& why);

 private:
  friend class Transfers;
  class ClientEnd;
  class AgentEnd;

  explicit Transfer(Transfers* transfers) : transfers_(transfers) {}
  // Starts the transfer. False if nobody waits for this file any more.
  bool Begin(const std::string& id, const std::string& node);
  bool Join(AgentEnd* agent);
  // Takes a piece of the agent.
  void Take(v1::FilePiece piece);
  // Gives an event to the core, and carries out the core's acts.
  void Step(const std::function<TransferCore::Actions(TransferCore&)>& event);

  Transfers* const transfers_;
  absl::Mutex mutex_;
  // The decisions. Begin sets the node.
  TransferCore core_ ABSL_GUARDED_BY(mutex_){"", absl::InfiniteFuture()};
  std::string id_ ABSL_GUARDED_BY(mutex_);
  // The two streams. Valid until the core ends them.
  ClientEnd* client_ ABSL_GUARDED_BY(mutex_) = nullptr;
  AgentEnd* agent_ ABSL_GUARDED_BY(mutex_) = nullptr;
  // The piece on its way to the client.
  v1::FilePiece piece_;
};

// All transfers. Outlives the server whose streams it joins. Thread-safe.
class Transfers {
 public:
  Transfers();
  ~Transfers();

  // Accepts a client's call: returns its stream and its transfer, which the caller begins or fails.
  std::pair<Transfer::ClientStream*, std::shared_ptr<Transfer>> AcceptClient();
  // Gives the transfer its name, with which the agent of this node must come in time.
  // RESOURCE_EXHAUSTED TOO_MANY_DOWNLOADS; CANCELLED if the client has gone.
  absl::StatusOr<std::string> Begin(const std::shared_ptr<Transfer>& transfer,
                                    const std::string& node);
  // Accepts an agent's call, and returns its stream.
  Transfer::AgentStream* AcceptAgent();
  // Ends all transfers, and refuses new transfers from then on.
  void EndAll(const absl::Status& why);

 private:
  friend class Transfer;
  std::shared_ptr<Transfer> Find(const std::string& id);
  void Remove(const std::string& id);
  void Watch();

  absl::Mutex mutex_;
  SteadyCondition stopped_;
  std::map<std::string, std::shared_ptr<Transfer>> under_way_ ABSL_GUARDED_BY(mutex_);
  absl::Status ended_ ABSL_GUARDED_BY(mutex_);
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread watcher_;
};

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_TRANSFERS_H_
