#include "worker/parallel/move_pieces.h"

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <numeric>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "ATen/core/Tensor.h"
#include "ATen/ops/empty.h"
#include "absl/strings/str_cat.h"
#include "common/status/status.h"
#include "worker/device/memory.h"
#include "worker/memory/memory_scope.h"

namespace muster::parallel {
namespace {

using sharding::Move;

// The pieces of this rank, by parameter.
using PieceMap = std::unordered_map<int64_t, const Piece*>;

absl::StatusOr<PieceMap> MapOf(const Arrangement& arrangement, int rank) {
  PieceMap pieces;
  for (const Piece& piece : arrangement.held) {
    if (piece.tensor.numel() > 0) pieces[static_cast<int64_t>(piece.parameter)] = &piece;
  }
  for (const sharding::Range& range : arrangement.holders.holders[rank]) {
    const auto found = pieces.find(range.parameter);
    if (found == pieces.end() || found->second->begin != range.begin ||
        found->second->tensor.numel() != range.end - range.begin ||
        !found->second->tensor.is_contiguous()) {
      return absl::InvalidArgumentError(absl::StrCat("parameter number ", range.parameter,
                                                     ": rank ", rank, " has no piece of elements ",
                                                     range.begin, " to ", range.end));
    }
  }
  return pieces;
}

// The begin of a move in the rank's pieces. bytes: of an element.
struct Place {
  const at::Tensor& tensor;
  int64_t begin = 0;  // in bytes
};

Place PlaceIn(const PieceMap& pieces, const Move& move, int64_t bytes) {
  const Piece& piece = *pieces.at(move.parameter);
  return {piece.tensor, (move.begin - piece.begin) * bytes};
}

int64_t BytesOf(const Move& move, const std::vector<int64_t>& element_bytes) {
  return (move.end - move.begin) * element_bytes[move.parameter];
}

// The moves from one rank to another.
struct Lane {
  std::vector<Move> moves;  // in the same order on sender and receiver
  size_t next = 0;          // the first move that is not completely taken

  // Takes the moves for one round: whole moves and at most a part of one move. Their size is at
  // most `bytes`, but at least one element.
  std::vector<Move> Take(int64_t bytes, const std::vector<int64_t>& element_bytes) {
    std::vector<Move> taken;
    while (next < moves.size()) {
      Move& move = moves[next];
      int64_t elements = std::min(bytes / element_bytes[move.parameter], move.end - move.begin);
      if (elements <= 0 && !taken.empty()) break;
      elements = std::max<int64_t>(elements, 1);
      taken.push_back(move);
      taken.back().end = move.begin + elements;
      bytes -= BytesOf(taken.back(), element_bytes);
      move.begin += elements;
      next += move.begin == move.end;
    }
    return taken;
  }
};

// The lanes by sender and receiver, only for ranks that exchange something.
using Lanes = std::map<std::pair<int64_t, int64_t>, Lane>;

Lanes LanesOf(const std::vector<Move>& moves) {
  Lanes lanes;
  for (const Move& move : moves) {
    if (move.from != move.to) lanes[{move.from, move.to}].moves.push_back(move);
  }
  for (auto& [ends, lane] : lanes) {
    std::sort(lane.moves.begin(), lane.moves.end(), [](const Move& a, const Move& b) {
      return std::tie(a.parameter, a.begin) < std::tie(b.parameter, b.begin);
    });
  }
  return lanes;
}

// One round of an exchange, with its memory. One object serves many rounds, one after another.
class Round {
 public:
  explicit Round(comm::Communicator* communicator) : communicator_(communicator) {}

  // Starts to send and receive the next part of each lane.
  void Begin(Lanes& lanes, const PieceMap& from, int64_t lane_bytes,
             const std::vector<int64_t>& element_bytes, comm::OpLabel label) {
    const int rank = communicator_->rank();
    std::vector<int64_t> out_sizes(communicator_->world_size());
    std::vector<int64_t> in_sizes(communicator_->world_size());
    std::vector<Move> sent;
    received_.clear();
    for (auto& [ends, lane] : lanes) {  // in ascending order of senders, then of receivers
      const std::vector<Move> taken = lane.Take(lane_bytes, element_bytes);
      if (ends.first != rank && ends.second != rank) continue;
      const bool out = ends.first == rank;
      std::vector<Move>& mine = out ? sent : received_;
      mine.insert(mine.end(), taken.begin(), taken.end());
      int64_t& size = out ? out_sizes[ends.second] : in_sizes[ends.first];
      for (const Move& move : taken) size += BytesOf(move, element_bytes);
    }
    at::Tensor out = Room(&out_, out_sizes);
    in_now_ = Room(&in_, in_sizes);
    int64_t at = 0;
    for (const Move& move : sent) {
      const int64_t bytes = BytesOf(move, element_bytes);
      const Place place = PlaceIn(from, move, element_bytes[move.parameter]);
      device::CopyBytes(out, at, place.tensor, place.begin, bytes);
      at += bytes;
    }
    work_ = communicator_->AllToAll(in_now_, in_sizes, out, out_sizes, label);
  }

  absl::Status Finish(const PieceMap& to, const std::vector<int64_t>& element_bytes) {
    if (work_ == nullptr) return absl::OkStatus();
    RETURN_IF_ERROR(std::exchange(work_, nullptr)->Wait());
    int64_t at = 0;
    for (const Move& move : received_) {
      const int64_t bytes = BytesOf(move, element_bytes);
      const Place place = PlaceIn(to, move, element_bytes[move.parameter]);
      device::CopyBytes(place.tensor, place.begin, in_now_, at, bytes);
      at += bytes;
    }
    return absl::OkStatus();
  }

 private:
  at::Tensor Room(at::Tensor* room, const std::vector<int64_t>& sizes) const {
    const int64_t bytes = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
    const memory::MemoryScope scope(memory::Purpose::kBuckets);
    if (!room->defined() || room->numel() < bytes) {
      *room = at::empty({bytes}, at::TensorOptions(at::kByte).device(communicator_->device()));
    }
    return room->narrow(0, 0, bytes);
  }

  comm::Communicator* const communicator_;
  at::Tensor out_, in_;  // memory for the bytes that are sent and received
  at::Tensor in_now_;    // the part of in_ that this round uses
  std::vector<Move> received_;
  // The last member: its destructor waits, and must run before the memory is freed.
  std::unique_ptr<comm::Work> work_;
};

int64_t TravellingBytes(const std::vector<Move>& moves, const std::vector<int64_t>& element_bytes) {
  int64_t bytes = 0;
  for (const Move& move : moves) {
    if (move.from != move.to) bytes += BytesOf(move, element_bytes);
  }
  return bytes;
}

}  // namespace

std::vector<int64_t> ElementBytes(const std::vector<at::ScalarType>& types) {
  std::vector<int64_t> bytes;
  for (const at::ScalarType type : types) {
    bytes.push_back(static_cast<int64_t>(c10::elementSize(type)));
  }
  return bytes;
}

absl::StatusOr<int64_t> MovePieces(const Arrangement& from, const Arrangement& to,
                                   const std::vector<int64_t>& element_bytes,
                                   comm::Communicator* communicator, comm::OpLabel label,
                                   int64_t round_bytes) {
  const int rank = communicator->rank();
  ASSIGN_OR_RETURN(const PieceMap sources, MapOf(from, rank));
  ASSIGN_OR_RETURN(const PieceMap targets, MapOf(to, rank));
  ASSIGN_OR_RETURN(const std::vector<Move> moves, sharding::Redistribute(from.holders, to.holders));
  for (const Move& move : moves) {
    if (move.from != rank || move.to != rank) continue;
    const int64_t bytes = element_bytes[move.parameter];
    const Place source = PlaceIn(sources, move, bytes);
    const Place target = PlaceIn(targets, move, bytes);
    device::CopyBytes(target.tensor, target.begin, source.tensor, source.begin,
                      (move.end - move.begin) * bytes);
  }
  Lanes lanes = LanesOf(moves);
  // Every round uses all connections, each for an equal part of the bytes.
  const int64_t lane_bytes = round_bytes / std::max(communicator->world_size() - 1, 1);
  std::array<Round, 2> rounds = {Round(communicator), Round(communicator)};
  const auto done = [](const auto& entry) {
    return entry.second.next == entry.second.moves.size();
  };
  for (size_t turn = 0; !lanes.empty(); ++turn) {
    Round& round = rounds[turn % rounds.size()];
    RETURN_IF_ERROR(round.Finish(targets, element_bytes));
    round.Begin(lanes, sources, lane_bytes, element_bytes, label);
    std::erase_if(lanes, done);
  }
  for (Round& round : rounds) RETURN_IF_ERROR(round.Finish(targets, element_bytes));
  return TravellingBytes(moves, element_bytes);
}

absl::StatusOr<int64_t> BytesToMove(const sharding::Placement& from, const sharding::Placement& to,
                                    const std::vector<int64_t>& element_bytes) {
  ASSIGN_OR_RETURN(const std::vector<Move> moves, sharding::Redistribute(from, to));
  return TravellingBytes(moves, element_bytes);
}

}  // namespace muster::parallel
