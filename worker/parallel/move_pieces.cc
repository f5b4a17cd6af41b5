#include "worker/parallel/move_pieces.h"

#include <algorithm>
#include <cstring>
#include <tuple>
#include <unordered_map>

#include "ATen/core/Tensor.h"
#include "ATen/ops/empty.h"
#include "absl/strings/str_cat.h"
#include "common/status/status.h"
#include "worker/memory/memory_scope.h"

namespace muster::parallel {
namespace {

using layout::Move;

// Of this rank, by parameter.
using PieceMap = std::unordered_map<int64_t, const Piece*>;

absl::StatusOr<PieceMap> MapOf(const Arrangement& arrangement, int rank) {
  PieceMap pieces;
  for (const Piece& piece : arrangement.held) {
    if (piece.tensor.numel() > 0) pieces[static_cast<int64_t>(piece.parameter)] = &piece;
  }
  for (const layout::Range& range : arrangement.holders.holders[rank]) {
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

char* AddressIn(const PieceMap& pieces, const Move& move, int64_t bytes) {
  const Piece& piece = *pieces.at(move.parameter);
  return static_cast<char*>(piece.tensor.data_ptr()) + (move.begin - piece.begin) * bytes;
}

// Moves between two ranks, in an order that all agree on, cut so that none is larger than a round.
std::vector<Move> Travelling(std::vector<Move> moves, const std::vector<int64_t>& element_bytes,
                             int64_t round_bytes) {
  std::vector<Move> travelling;
  std::sort(moves.begin(), moves.end(), [](const Move& a, const Move& b) {
    return std::tie(a.parameter, a.begin, a.to) < std::tie(b.parameter, b.begin, b.to);
  });
  for (Move move : moves) {
    if (move.from == move.to) continue;
    const int64_t most = std::max<int64_t>(round_bytes / element_bytes[move.parameter], 1);
    for (const int64_t end = move.end; move.begin < end; move.begin = move.end) {
      move.end = std::min(end, move.begin + most);
      travelling.push_back(move);
    }
  }
  return travelling;
}

// The next round from `begin`: how far it goes.
size_t EndOfRound(const std::vector<Move>& moves, size_t begin,
                  const std::vector<int64_t>& element_bytes, int64_t round_bytes, int ranks) {
  std::vector<int64_t> sent(ranks);
  std::vector<int64_t> received(ranks);
  size_t end = begin;
  for (; end < moves.size(); ++end) {
    const Move& move = moves[end];
    const int64_t bytes = (move.end - move.begin) * element_bytes[move.parameter];
    sent[move.from] += bytes;
    received[move.to] += bytes;
    const bool full = sent[move.from] > round_bytes || received[move.to] > round_bytes;
    if (full && end > begin) break;
  }
  return end;
}

absl::Status Exchange(const std::vector<Move>& moves, size_t begin, size_t end,
                      const PieceMap& from, const PieceMap& to,
                      const std::vector<int64_t>& element_bytes, comm::Communicator* communicator,
                      comm::OpLabel label) {
  const int rank = communicator->rank();
  std::vector<int64_t> out_sizes(communicator->world_size());
  std::vector<int64_t> in_sizes(communicator->world_size());
  const auto bytes_of = [&](const Move& move) {
    return (move.end - move.begin) * element_bytes[move.parameter];
  };
  for (size_t i = begin; i < end; ++i) {
    if (moves[i].from == rank) out_sizes[moves[i].to] += bytes_of(moves[i]);
    if (moves[i].to == rank) in_sizes[moves[i].from] += bytes_of(moves[i]);
  }
  const auto starts = [](const std::vector<int64_t>& sizes, int64_t* total) {
    std::vector<int64_t> starts;
    *total = 0;
    for (const int64_t size : sizes) {
      starts.push_back(*total);
      *total += size;
    }
    return starts;
  };
  int64_t out_total = 0;
  int64_t in_total = 0;
  std::vector<int64_t> out_at = starts(out_sizes, &out_total);
  std::vector<int64_t> in_at = starts(in_sizes, &in_total);
  const memory::MemoryScope scope(memory::Purpose::kBuckets);
  const at::Tensor out = at::empty({out_total}, at::kByte);
  const at::Tensor in = at::empty({in_total}, at::kByte);
  for (size_t i = begin; i < end; ++i) {
    const Move& move = moves[i];
    if (move.from != rank) continue;
    int64_t& at = out_at[move.to];
    std::memcpy(static_cast<char*>(out.data_ptr()) + at,
                AddressIn(from, move, element_bytes[move.parameter]), bytes_of(move));
    at += bytes_of(move);
  }
  RETURN_IF_ERROR(communicator->AllToAll(in, in_sizes, out, out_sizes, label)->Wait());
  for (size_t i = begin; i < end; ++i) {
    const Move& move = moves[i];
    if (move.to != rank) continue;
    int64_t& at = in_at[move.from];
    std::memcpy(AddressIn(to, move, element_bytes[move.parameter]),
                static_cast<const char*>(in.data_ptr()) + at, bytes_of(move));
    at += bytes_of(move);
  }
  return absl::OkStatus();
}

int64_t TravellingBytes(const std::vector<Move>& moves, const std::vector<int64_t>& element_bytes) {
  int64_t bytes = 0;
  for (const Move& move : moves) {
    if (move.from != move.to) bytes += (move.end - move.begin) * element_bytes[move.parameter];
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
  ASSIGN_OR_RETURN(const std::vector<Move> moves, layout::Redistribute(from.holders, to.holders));
  for (const Move& move : moves) {
    if (move.from != rank || move.to != rank) continue;
    const int64_t bytes = element_bytes[move.parameter];
    std::memcpy(AddressIn(targets, move, bytes), AddressIn(sources, move, bytes),
                (move.end - move.begin) * bytes);
  }
  const std::vector<Move> travelling = Travelling(moves, element_bytes, round_bytes);
  for (size_t begin = 0; begin < travelling.size();) {
    const size_t end =
        EndOfRound(travelling, begin, element_bytes, round_bytes, communicator->world_size());
    RETURN_IF_ERROR(
        Exchange(travelling, begin, end, sources, targets, element_bytes, communicator, label));
    begin = end;
  }
  return TravellingBytes(travelling, element_bytes);
}

absl::StatusOr<int64_t> BytesToMove(const layout::Placement& from, const layout::Placement& to,
                                    const std::vector<int64_t>& element_bytes) {
  ASSIGN_OR_RETURN(const std::vector<Move> moves, layout::Redistribute(from, to));
  return TravellingBytes(moves, element_bytes);
}

}  // namespace muster::parallel
