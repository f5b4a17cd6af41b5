#include "worker/comm/gloo/peer_watch.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "common/status/status.h"

namespace muster::comm {
namespace {

constexpr uint32_t kMessageTag = 0;
constexpr uint32_t kAcknowledgeTag = 1;
constexpr std::chrono::milliseconds kHeardLimit = std::chrono::seconds(2);

}  // namespace

PeerWatch::PeerWatch(Mesh* mesh, int rank, int world_size, Events events)
    : mesh_(mesh), events_(std::move(events)), peers_(world_size - 1) {
  for (int i = 0; i < world_size - 1; ++i) peers_[i].rank = i < rank ? i : i + 1;
}

absl::Status PeerWatch::Start() {
  for (Peer& peer : peers_) {
    ASSIGN_OR_RETURN(peer.receive,
                     mesh_->Receive(&peer.message, sizeof(Message), peer.rank, kMessageTag));
  }
  for (Peer& peer : peers_) {
    peer.thread = std::thread([this, &peer] { Watch(peer); });
  }
  return absl::OkStatus();
}

PeerWatch::~PeerWatch() {
  for (Peer& peer : peers_) {
    if (peer.thread.joinable()) peer.thread.join();
  }
}

void PeerWatch::Watch(Peer& peer) {
  const absl::Status status = peer.receive->Wait();
  if (absl::IsCancelled(status)) return;
  if (!status.ok()) return events_.failed(status);
  const Message& message = peer.message;
  if (message.operations >= 0) {
    events_.left(peer.rank, message.operations);
  } else {
    events_.failed(absl::Status(static_cast<absl::StatusCode>(message.code),
                                std::string(message.text.data())));
  }
  static constexpr char kAcknowledgement = 1;
  auto sent = mesh_->Send(&kAcknowledgement, 1, peer.rank, kAcknowledgeTag);
  if (sent.ok()) peer.acknowledge = std::move(*sent);
}

// Ignores errors: a message to a peer that has ended is not needed.
void PeerWatch::SendAll(const Message& message) {
  outbox_ = message;
  for (Peer& peer : peers_) {
    auto receive = mesh_->Receive(&peer.acknowledgement, 1, peer.rank, kAcknowledgeTag);
    if (receive.ok()) acknowledgements_.push_back(std::move(*receive));
  }
  for (Peer& peer : peers_) {
    auto send = mesh_->Send(&outbox_, sizeof(Message), peer.rank, kMessageTag);
    if (send.ok()) sends_.push_back(std::move(*send));
  }
}

void PeerWatch::TellFailure(const absl::Status& cause) {
  Message message{.code = static_cast<int32_t>(cause.code())};
  const std::string text = muster::Message(cause);
  std::copy_n(text.data(), std::min(text.size(), message.text.size() - 1), message.text.data());
  SendAll(message);
}

void PeerWatch::SayGoodbye(int64_t operations) { SendAll({.operations = operations}); }

void PeerWatch::WaitUntilHeard() {
  for (auto& acknowledgement : acknowledgements_) {
    acknowledgement->Wait(kHeardLimit).IgnoreError();
  }
}

}  // namespace muster::comm
