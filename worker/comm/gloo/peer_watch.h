// Detects at once that a peer dies, fails or leaves, whatever this rank does.
//
// One receive per peer is posted for the whole life of a mesh, on a tag of its own, with a thread
// that waits for it. It ends in one of three ways: the peer sends a goodbye (a clean end, with the
// number of operations in which it took part), the peer sends why it failed (so that every rank
// reports the root cause), or the connection breaks. A message is acknowledged by the peer's
// watching thread: connections are ordered, so the rank then knows that everything it sent has
// arrived, and may close them.
#ifndef MUSTER_WORKER_COMM_GLOO_PEER_WATCH_H_
#define MUSTER_WORKER_COMM_GLOO_PEER_WATCH_H_

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "worker/comm/gloo/mesh.h"

namespace muster::comm {

class PeerWatch {
 public:
  // The peer watch uses the tags below this one.
  static constexpr uint32_t kFirstFreeTag = 2;

  // Called from the watching threads, at most once per peer.
  struct Events {
    std::function<void(int peer, int64_t operations)> left;
    std::function<void(const absl::Status& cause)> failed;
  };

  PeerWatch(Mesh* mesh, int rank, int world_size, Events events);
  ~PeerWatch();  // after Mesh::CancelFrom(0), which ends the threads

  absl::Status Start();

  // A rank sends one of these messages, once. Neither call blocks.
  void TellFailure(const absl::Status& cause);  // why this rank failed
  void SayGoodbye(int64_t operations);          // it is done, after this many operations

  // Waits until all peers have acknowledged the message: two seconds at most, which are needed only
  // if a peer is alive and hangs. This is the last use of the mesh.
  void WaitUntilHeard();

 private:
  struct Message {
    int64_t operations = -1;  // >= 0: goodbye
    int32_t code = 0;         // otherwise the status
    std::array<char, 500> text = {};
  };
  struct Peer {
    int rank = 0;
    Message message;  // received
    char acknowledgement = 0;
    std::unique_ptr<Transfer> receive;
    std::unique_ptr<Transfer> acknowledge;
    std::thread thread;
  };

  void Watch(Peer& peer);
  void SendAll(const Message& message);

  Mesh* const mesh_;
  const Events events_;
  std::vector<Peer> peers_;  // without this rank; each used by its thread
  Message outbox_;
  std::vector<std::unique_ptr<Transfer>> sends_;
  std::vector<std::unique_ptr<Transfer>> acknowledgements_;
};

}  // namespace muster::comm

#endif  // MUSTER_WORKER_COMM_GLOO_PEER_WATCH_H_
