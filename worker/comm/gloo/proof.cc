#include "worker/comm/gloo/proof.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/secret/secret.h"
#include "common/status/status.h"

namespace muster::comm {
namespace {

// The highest tags; the communicator counts its tags from the lowest.
constexpr uint32_t kChallengeTag = (1 << 30) - 2;
constexpr uint32_t kAnswerTag = (1 << 30) - 1;

struct Peer {
  int rank = 0;
  std::string challenge = secret::Random();                  // of this rank
  std::string received = secret::Random();                   // the peer's challenge
  std::string answer = std::string(secret::kBytes, '\0');    // of this rank
  std::string answered = std::string(secret::kBytes, '\0');  // by the peer
};

std::string Answer(const GlooOptions& options, int from, int to, const std::string& challenge) {
  return secret::Mac(options.secret,
                     {"rank", options.name, absl::StrCat(from), absl::StrCat(to), challenge});
}

// Sends a text to each peer and receives a text from each peer.
absl::Status ExchangeTexts(const GlooOptions& options, Mesh& mesh, std::vector<Peer>& peers,
                           uint32_t tag, std::string Peer::* sent, std::string Peer::* received) {
  std::vector<std::unique_ptr<Transfer>> transfers;
  for (Peer& peer : peers) {
    std::string& in = peer.*received;
    ASSIGN_OR_RETURN(auto receive, mesh.Receive(in.data(), in.size(), peer.rank, tag));
    transfers.push_back(std::move(receive));
  }
  for (Peer& peer : peers) {
    const std::string& out = peer.*sent;
    ASSIGN_OR_RETURN(auto send, mesh.Send(out.data(), out.size(), peer.rank, tag));
    transfers.push_back(std::move(send));
  }
  for (auto& transfer : transfers) RETURN_IF_ERROR(transfer->Wait(options.connect_timeout));
  return absl::OkStatus();
}

}  // namespace

absl::Status ProveRanks(const GlooOptions& options, Mesh& mesh) {
  if (options.secret.empty()) return absl::OkStatus();
  std::vector<Peer> peers;
  for (int rank = 0; rank < options.world_size; ++rank) {
    if (rank != options.rank) peers.push_back({.rank = rank});
  }
  RETURN_IF_ERROR(
      ExchangeTexts(options, mesh, peers, kChallengeTag, &Peer::challenge, &Peer::received));
  for (Peer& peer : peers) peer.answer = Answer(options, options.rank, peer.rank, peer.received);
  RETURN_IF_ERROR(ExchangeTexts(options, mesh, peers, kAnswerTag, &Peer::answer, &Peer::answered));
  for (const Peer& peer : peers) {
    if (secret::Equal(peer.answered, Answer(options, peer.rank, options.rank, peer.challenge))) {
      continue;
    }
    return absl::UnauthenticatedError(
        absl::StrCat("rank ", options.rank, ", communicator '", options.name,
                     "': the process that connected as "
                     "rank ",
                     peer.rank, " does not know the secret of this generation"));
  }
  return absl::OkStatus();
}

}  // namespace muster::comm
