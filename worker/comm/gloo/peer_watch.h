// Detects at once that a peer dies, fails or leaves, whatever this rank does.
//
// One receive per peer is posted for the whole life of a mesh, on a tag of its own. A thread waits
// for each receive, which ends in one of three ways:
// - The peer says goodbye: a clean end, with the number of operations in which the peer took part.
// - The peer tells why it failed, so that every rank reports the root cause.
// - The connection breaks.
// The watching thread of the peer acknowledges each message. Connections keep the order of
// messages. So a rank with the acknowledgement knows that all its messages have arrived, and may
// close its connections.
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
  // The lowest tag that other users of the mesh may use. The peer watch uses the tags below.
  static constexpr uint32_t kFirstFreeTag = 2;

  // Called from the watching threads, at most once per peer.
  struct Events {
    std::function<void(int peer, int64_t operations)> left;
    std::function<void(const absl::Status& cause)> failed;
  };

  PeerWatch(Mesh* mesh, int rank, int world_size, Events events);
  ~PeerWatch();  // after Mesh::CancelFrom(0), which ends the threads

  absl::Status Start();

  // Each rank sends one of these two messages, once. Neither call blocks.
  void TellFailure(const absl::Status& cause);  // why this rank failed
  void SayGoodbye(int64_t operations);          // this rank is done, after this many operations

  // Waits until all peers have acknowledged the message, for at most two seconds. Only a peer that
  // is alive and hangs takes that long. Must be the last use of the mesh.
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
