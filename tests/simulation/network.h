// A simulated network between one coordinator and the nodes. Messages of one stream keep their
// order, messages of different streams do not. A stream breaks, is refused, or falls silent; its
// messages in flight are then lost. Each direction of each node's link can be cut separately.
// Messages that are sent during the cut arrive after its end if the stream is still open.
#ifndef MUSTER_TESTS_SIMULATION_NETWORK_H_
#define MUSTER_TESTS_SIMULATION_NETWORK_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "tests/simulation/timeline.h"

namespace muster::simulation {

using StreamId = uint64_t;
using Parcel = std::function<void()>;

// The end of a stream, from the view of its client.
struct StreamEnd {
  // The host answers, but no process listens there.
  bool refused = false;
  // There is no answer at all.
  bool silent = false;
  // The status with which the coordinator closed the stream. OK: without an error.
  absl::Status said;
};

class Network {
 public:
  // The coordinator's side of the streams.
  class Server {
   public:
    virtual ~Server() = default;
    virtual void StreamBroke(StreamId stream) = 0;
  };
  // lease: the longest time until a dead stream is noticed depends on it.
  Network(Timeline* timeline, absl::Duration lease) : timeline_(*timeline), lease_(lease) {}

  // ---- The coordinator's process.
  void Listen(Server* server) { server_ = server; }
  // Ends the coordinator's process: all its streams break.
  void StopListening();
  // True if a node that tries a connection now gets the answer that no process listens.
  bool Refuses(const std::string& node) const { return server_ == nullptr && !IsCut(node); }
  // Closes a stream after all messages that were sent before.
  void CloseByServer(StreamId stream, const absl::Status& why);
  void SendDown(StreamId stream, Parcel parcel);

  // ---- Clients. Opens a stream. on_end is called once, unless the client closes the stream
  // itself.
  StreamId Open(const std::string& node, std::function<void(const StreamEnd&)> on_end);
  void SendUp(StreamId stream, Parcel parcel);
  // Closes a stream because its process ended or wants to. vanished: the machine failed, so the
  // coordinator gets no notice.
  void CloseByClient(StreamId stream, bool vanished = false);

  // ---- Faults.
  void Cut(const std::string& node, bool up, bool down);
  void Heal(const std::string& node) { Cut(node, false, false); }
  bool IsCut(const std::string& node) const;
  // Breaks one stream, like a router that loses its state. False: there is no stream.
  bool BreakOne();
  // Sets the time that most messages take at most.
  void SetDelay(absl::Duration delay) { delay_ = delay; }

 private:
  enum Direction { kUp = 0, kDown = 1 };
  struct Stream {
    std::string node;
    std::function<void(const StreamEnd&)> on_end;
    bool connected = false;
    bool client_open = true;
    bool server_open = false;
    std::deque<Parcel> under_way[2];
    absl::Time last_arrival[2] = {absl::InfinitePast(), absl::InfinitePast()};
    // Messages that arrived while the link was cut.
    int stuck[2] = {0, 0};
  };
  struct Link {
    bool cut[2] = {false, false};
    // A number that changes with each change of the link.
    uint64_t epoch = 0;
  };

  Stream* Find(StreamId stream);
  bool Passes(const Stream& stream, Direction direction);
  void Send(StreamId id, Direction direction, Parcel parcel);
  void Schedule(StreamId id, Direction direction);
  void Arrive(StreamId id, Direction direction);
  void Unstick(StreamId id);
  void Connect(StreamId id);
  void EndAtClient(StreamId id, const StreamEnd& end);
  void EndAtServer(StreamId id);
  void Sweep(StreamId id);
  absl::Duration NoticeAfter() { return lease_ * timeline_.Uniform(0.2, 2.5); }

  Timeline& timeline_;
  const absl::Duration lease_;
  absl::Duration delay_ = absl::Milliseconds(20);
  Server* server_ = nullptr;
  StreamId last_ = 0;
  std::map<StreamId, Stream> streams_;
  std::map<std::string, Link> links_;
};

}  // namespace muster::simulation

#endif  // MUSTER_TESTS_SIMULATION_NETWORK_H_
