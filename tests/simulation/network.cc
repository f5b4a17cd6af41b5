#include "tests/simulation/network.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace muster::simulation {

Network::Stream* Network::Find(StreamId stream) {
  const auto found = streams_.find(stream);
  return found == streams_.end() ? nullptr : &found->second;
}

bool Network::Passes(const Stream& stream, Direction direction) {
  return stream.connected && !links_[stream.node].cut[direction];
}

bool Network::IsCut(const std::string& node) const {
  const auto link = links_.find(node);
  return link != links_.end() && (link->second.cut[kUp] || link->second.cut[kDown]);
}

// ---- Opening and sending.

StreamId Network::Open(const std::string& node, std::function<void(const StreamEnd&)> on_end) {
  const StreamId id = ++last_;
  streams_[id] = {.node = node, .on_end = std::move(on_end)};
  timeline_.After(timeline_.Between(0.001, 0.02), [this, id] { Connect(id); });
  return id;
}

void Network::Connect(StreamId id) {
  Stream* stream = Find(id);
  if (stream == nullptr || !stream->client_open) return Sweep(id);
  if (IsCut(stream->node)) {
    timeline_.After(lease_ * timeline_.Uniform(0.1, 0.6),
                    [this, id] { EndAtClient(id, {.silent = true}); });
    return;
  }
  if (server_ == nullptr) return EndAtClient(id, {.refused = true});
  stream->connected = stream->server_open = true;
  Unstick(id);
}

void Network::SendUp(StreamId stream, Parcel parcel) { Send(stream, kUp, std::move(parcel)); }
void Network::SendDown(StreamId stream, Parcel parcel) { Send(stream, kDown, std::move(parcel)); }

void Network::Send(StreamId id, Direction direction, Parcel parcel) {
  Stream* stream = Find(id);
  if (stream == nullptr || !(direction == kUp ? stream->client_open : stream->server_open)) return;
  stream->under_way[direction].push_back(std::move(parcel));
  Schedule(id, direction);
}

void Network::Schedule(StreamId id, Direction direction) {
  Stream& stream = streams_.at(id);
  const absl::Duration delay = timeline_.Between(0.0005, absl::ToDoubleSeconds(delay_));
  absl::Time& last = stream.last_arrival[direction];
  last = std::max(last, timeline_.now() + delay);
  timeline_.At(last, [this, id, direction] { Arrive(id, direction); });
}

void Network::Arrive(StreamId id, Direction direction) {
  Stream* stream = Find(id);
  if (stream == nullptr || stream->under_way[direction].empty()) return;
  if (!Passes(*stream, direction)) {
    ++stream->stuck[direction];
    return;
  }
  const Parcel parcel = std::move(stream->under_way[direction].front());
  stream->under_way[direction].pop_front();
  if (direction == kUp ? stream->server_open : stream->client_open) parcel();
}

void Network::Unstick(StreamId id) {
  Stream& stream = streams_.at(id);
  for (const Direction direction : {kUp, kDown}) {
    if (!Passes(stream, direction)) continue;
    for (int i = std::exchange(stream.stuck[direction], 0); i > 0; --i) Schedule(id, direction);
  }
}

// ---- Ends.

void Network::Sweep(StreamId id) {
  const Stream* stream = Find(id);
  if (stream != nullptr && !stream->client_open && !stream->server_open) streams_.erase(id);
}

void Network::EndAtClient(StreamId id, const StreamEnd& end) {
  Stream* stream = Find(id);
  if (stream == nullptr || !stream->client_open) return;
  // The other side, if it does not know of the end yet, is notified when the link works again.
  if (stream->server_open) Send(id, kUp, [this, id] { EndAtServer(id); });
  stream->client_open = false;
  const auto on_end = std::move(stream->on_end);
  Sweep(id);
  on_end(end);
}

void Network::EndAtServer(StreamId id) {
  Stream* stream = Find(id);
  if (stream == nullptr || !stream->server_open) return;
  if (stream->client_open) Send(id, kDown, [this, id] { EndAtClient(id, {}); });
  stream->server_open = false;
  Sweep(id);
  if (server_ != nullptr) server_->StreamBroke(id);
}

void Network::CloseByClient(StreamId id, bool vanished) {
  Stream* stream = Find(id);
  if (stream == nullptr || !stream->client_open) return;
  if (!stream->server_open) {
    stream->client_open = false;
    return Sweep(id);
  }
  // Messages that a killed process wrote may not have been sent.
  if (vanished || timeline_.OneIn(2)) {
    stream->under_way[kUp].clear();
    stream->stuck[kUp] = 0;
  }
  if (vanished) {
    timeline_.After(NoticeAfter(), [this, id] { EndAtServer(id); });
  } else {
    Send(id, kUp, [this, id] { EndAtServer(id); });
  }
  stream->client_open = false;
}

void Network::CloseByServer(StreamId id, const absl::Status& why) {
  Stream* stream = Find(id);
  if (stream == nullptr || !stream->server_open) return;
  Send(id, kDown, [this, id, why] { EndAtClient(id, {.said = why}); });
  stream->server_open = false;
  Sweep(id);
}

void Network::StopListening() {
  server_ = nullptr;
  std::vector<StreamId> ids;
  for (const auto& [id, stream] : streams_) ids.push_back(id);
  for (const StreamId id : ids) {
    Stream& stream = streams_.at(id);
    if (!stream.server_open) continue;
    stream.server_open = false;
    if (timeline_.OneIn(2)) {
      stream.under_way[kDown].clear();
      stream.stuck[kDown] = 0;
    }
    stream.under_way[kDown].push_back([this, id] { EndAtClient(id, {}); });
    Schedule(id, kDown);
    Sweep(id);
  }
}

// ---- Faults.

void Network::Cut(const std::string& node, bool up, bool down) {
  Link& link = links_[node];
  link.cut[kUp] = up;
  link.cut[kDown] = down;
  const uint64_t epoch = ++link.epoch;
  std::vector<StreamId> ids;
  for (const auto& [id, stream] : streams_) {
    if (stream.node == node) ids.push_back(id);
  }
  for (const StreamId id : ids) {
    Unstick(id);
    if (!up && !down) continue;
    // Each side notices the cut by itself.
    const auto still = [this, node, epoch] { return links_[node].epoch == epoch; };
    timeline_.After(NoticeAfter(), [this, id, still] {
      if (still()) EndAtClient(id, {.silent = true});
    });
    timeline_.After(NoticeAfter(), [this, id, still] {
      if (still()) EndAtServer(id);
    });
  }
}

bool Network::BreakOne() {
  std::vector<StreamId> open;
  for (const auto& [id, stream] : streams_) {
    if (stream.client_open && stream.server_open) open.push_back(id);
  }
  if (open.empty()) return false;
  const StreamId id = open[timeline_.Pick(open.size())];
  Stream& stream = streams_.at(id);
  timeline_.Tell("fault: a stream of ", stream.node, " breaks");
  for (const Direction direction : {kUp, kDown}) {
    stream.under_way[direction].clear();
    stream.stuck[direction] = 0;
  }
  stream.connected = false;  // what is sent from now on is lost
  timeline_.After(timeline_.Between(0, 0.2), [this, id] { EndAtClient(id, {}); });
  timeline_.After(timeline_.Between(0, 0.2), [this, id] { EndAtServer(id); });
  return true;
}

}  // namespace muster::simulation
