// A simulated network between one coordinator and the nodes: streams on which nothing is reordered,
// and between which everything is. A stream breaks, is refused, or falls silent; what was under way
// on it is lost then. Each direction of each node's link can be cut by itself: what is sent
// meanwhile arrives after the link is whole again, where the stream still stands.
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

// How a stream ended, as its client sees it.
struct StreamEnd {
  // Nobody listens at an address that answers.
  bool refused = false;
  // No answer at all.
  bool silent = false;
  // The coordinator's own last word; OK: it said none.
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
  // lease: how long it may take at most until a dead stream is noticed follows from it.
  Network(Timeline* timeline, absl::Duration lease) : timeline_(*timeline), lease_(lease) {}

  // ---- The coordinator's process.
  void Listen(Server* server) { server_ = server; }
  // It died: all its streams break.
  void StopListening();
  // Whether a node that knocks now is told that nobody listens.
  bool Refuses(const std::string& node) const { return server_ == nullptr && !IsCut(node); }
  // After what was sent before.
  void CloseByServer(StreamId stream, const absl::Status& why);
  void SendDown(StreamId stream, Parcel parcel);

  // ---- Clients.
  // on_end is called once, unless the client closes the stream itself.
  StreamId Open(const std::string& node, std::function<void(const StreamEnd&)> on_end);
  void SendUp(StreamId stream, Parcel parcel);
  // The process ended, or wants no more of it. vanished: without a word, with its machine.
  void CloseByClient(StreamId stream, bool vanished = false);

  // ---- Faults.
  void Cut(const std::string& node, bool up, bool down);
  void Heal(const std::string& node) { Cut(node, false, false); }
  bool IsCut(const std::string& node) const;
  // Breaks one stream, as a router that forgets it does. False: there is none.
  bool BreakOne();
  // Most parcels take so long at most from now on.
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
    // Arrivals that found the link cut.
    int stuck[2] = {0, 0};
  };
  struct Link {
    bool cut[2] = {false, false};
    // Changes with each change of the link.
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
