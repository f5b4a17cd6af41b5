#include "common/sharding/placement.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <queue>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/problems/problems.h"
#include "common/status/status.h"

namespace muster::sharding {
namespace {

std::string NameOf(int64_t parameter, const std::vector<std::string>& names) {
  if (parameter < 0 || parameter >= static_cast<int64_t>(names.size())) {
    return absl::StrCat("parameter ", parameter);
  }
  return absl::StrCat("'", names[parameter], "'");
}

std::string Interval(int64_t begin, int64_t end) {
  return absl::StrCat("elements [", begin, ", ", end, ")");
}

// Adds a problem. Makes its text only if the problem is shown, because there may be millions.
template <typename Text>
void AddProblem(Problems& problems, const Text& text) {
  problems.Add(problems.count() < Problems::kShown ? text() : std::string());
}

// INVALID_ARGUMENT: a range is not within its parameter.
absl::Status CheckRanges(const Placement& placement, const std::vector<std::string>& names) {
  const int64_t parameters = placement.elements.size();
  Problems problems;
  for (int64_t parameter = 0; parameter < parameters; ++parameter) {
    if (placement.elements[parameter] >= 0) continue;
    AddProblem(problems, [&] {
      return absl::StrCat(NameOf(parameter, names), " has ", placement.elements[parameter],
                          " elements");
    });
  }
  for (size_t holder = 0; holder < placement.holders.size(); ++holder) {
    for (const Range& range : placement.holders[holder]) {
      if (range.parameter < 0 || range.parameter >= parameters) {
        AddProblem(problems, [&] {
          return absl::StrCat("holder ", holder, " has parameter ", range.parameter, " of ",
                              parameters);
        });
      } else if (range.begin < 0 || range.begin >= range.end || range.offset < 0 ||
                 range.end > placement.elements[range.parameter]) {
        AddProblem(problems, [&] {
          return absl::StrCat("holder ", holder, " has ", Interval(range.begin, range.end), " of ",
                              NameOf(range.parameter, names), ", which has ",
                              placement.elements[range.parameter], ", at offset ", range.offset);
        });
      }
    }
  }
  return problems.ToStatus(absl::StatusCode::kInvalidArgument, "placement with invalid ranges");
}

// A range with positions relative to its parameter.
struct Piece {
  int64_t begin;
  int64_t end;
  int64_t holder;
  int64_t offset;
};

bool ByBegin(const Piece& a, const Piece& b) {
  return std::pair(a.begin, a.holder) < std::pair(b.begin, b.holder);
}

bool AreDisjoint(const Piece* begin, const Piece* end) {  // by rising begin
  return std::adjacent_find(begin, end,
                            [](const Piece& a, const Piece& b) { return b.begin < a.end; }) == end;
}

// All ranges of a placement (whose ranges are checked) by parameter, and for each parameter by
// (begin, holder).
class PieceTable {
 public:
  explicit PieceTable(const Placement& placement) : starts_(placement.elements.size() + 1, 0) {
    // Counting sort by parameter. The ranges of one parameter are mostly in order already.
    for (const auto& ranges : placement.holders) {
      for (const Range& range : ranges) ++starts_[range.parameter + 1];
    }
    std::partial_sum(starts_.begin(), starts_.end(), starts_.begin());
    pieces_ = std::make_unique_for_overwrite<Piece[]>(starts_.back());
    std::vector<int64_t> next(starts_.begin(), starts_.end() - 1);
    for (size_t holder = 0; holder < placement.holders.size(); ++holder) {
      for (const Range& range : placement.holders[holder]) {
        pieces_[next[range.parameter]++] = {range.begin, range.end, static_cast<int64_t>(holder),
                                            range.offset};
      }
    }
    for (int64_t parameter = 0; parameter < parameters(); ++parameter) {
      Piece* const begin = pieces_.get() + starts_[parameter];
      Piece* const end = pieces_.get() + starts_[parameter + 1];
      if (!std::is_sorted(begin, end, ByBegin)) std::sort(begin, end, ByBegin);
    }
  }

  int64_t parameters() const { return static_cast<int64_t>(starts_.size()) - 1; }
  const Piece* begin(int64_t parameter) const { return pieces_.get() + starts_[parameter]; }
  const Piece* end(int64_t parameter) const { return pieces_.get() + starts_[parameter + 1]; }
  Piece* begin(int64_t parameter) { return pieces_.get() + starts_[parameter]; }
  Piece* end(int64_t parameter) { return pieces_.get() + starts_[parameter + 1]; }

 private:
  std::vector<int64_t> starts_;  // of each parameter in pieces_; one more at the end
  std::unique_ptr<Piece[]> pieces_;
};

// Appends disjoint pieces, by rising begin, which cover the elements of [begin, end), each from its
// lowest holder. `begin`, `end`: pieces of one parameter, by (begin, holder).
void AppendLowest(const Piece* begin, const Piece* end, std::vector<Piece>& cover) {
  const size_t first = cover.size();
  auto higher = [](const Piece* a, const Piece* b) { return a->holder > b->holder; };
  // The ranges that cover `at` or end before it, the lowest holder first.
  std::priority_queue<const Piece*, std::vector<const Piece*>, decltype(higher)> open(higher);
  int64_t at = 0;
  for (const Piece* next = begin;;) {
    while (!open.empty() && open.top()->end <= at) open.pop();
    if (open.empty()) {
      if (next == end) return;
      at = std::max(at, next->begin);
    }
    for (; next != end && next->begin <= at; ++next) {
      if (next->end > at) open.push(next);
    }
    if (open.empty()) continue;
    const Piece& lowest = *open.top();
    const int64_t until = next == end ? lowest.end : std::min(lowest.end, next->begin);
    const int64_t offset = lowest.offset + at - lowest.begin;
    if (cover.size() > first && cover.back().end == at && cover.back().holder == lowest.holder &&
        cover.back().offset + at - cover.back().begin == offset) {
      cover.back().end = until;
    } else {
      cover.push_back({at, until, lowest.holder, offset});
    }
    at = until;
  }
}

// Finds holders of elements for one holder, which prefers its own elements.
class Sources {
 public:
  explicit Sources(const Placement& placement) : pieces_(placement) {
    for (int64_t parameter = 0; parameter < pieces_.parameters(); ++parameter) {
      Piece* const begin = pieces_.begin(parameter);
      Piece* const end = pieces_.end(parameter);
      if (AreDisjoint(begin, end)) continue;
      if (cover_ranges_.empty()) cover_ranges_.resize(pieces_.parameters() + 1, {0, 0});
      const int64_t first = cover_.size();
      AppendLowest(begin, end, cover_);
      cover_ranges_[parameter] = {first, static_cast<int64_t>(cover_.size())};
      std::sort(begin, end, [](const Piece& a, const Piece& b) {
        return std::pair(a.holder, a.begin) < std::pair(b.holder, b.begin);
      });
    }
  }

  // Calls take(piece, begin, end) for the parts of `range` that a holder has, and miss(begin, end)
  // for the other parts.
  template <typename Take, typename Miss>
  void Find(int64_t holder, const Range& range, const Take& take, const Miss& miss) const {
    const Piece* const begin = pieces_.begin(range.parameter);
    const Piece* const end = pieces_.end(range.parameter);
    const std::pair<int64_t, int64_t> cover =
        cover_ranges_.empty() ? std::pair<int64_t, int64_t>() : cover_ranges_[range.parameter];
    if (cover.first == cover.second) {  // at most one holder for each element
      Walk(begin, end, range.begin, range.end, take, miss);
      return;
    }
    const auto lowest = [&](int64_t from, int64_t to) {
      Walk(cover_.data() + cover.first, cover_.data() + cover.second, from, to, take, miss);
    };
    const Piece* own = std::partition_point(
        begin, end, [holder](const Piece& piece) { return piece.holder < holder; });
    const Piece* const own_end = std::partition_point(
        own, end, [holder](const Piece& piece) { return piece.holder == holder; });
    Walk(own, own_end, range.begin, range.end, take, lowest);
  }

 private:
  // Works as Find, with the pieces [begin, end), which are sorted by begin.
  template <typename Take, typename Miss>
  static void Walk(const Piece* begin, const Piece* end, int64_t from, int64_t to, const Take& take,
                   const Miss& miss) {
    const Piece* piece = std::partition_point(
        begin, end, [from](const Piece& before) { return before.end <= from; });
    while (from < to) {
      if (piece == end || piece->begin >= to) {
        miss(from, to);
        return;
      }
      if (piece->begin > from) {
        miss(from, piece->begin);
        from = piece->begin;
      }
      if (const int64_t until = std::min(piece->end, to); until > from) {
        take(*piece, from, until);
        from = until;
      }
      ++piece;
    }
  }

  // The pieces by (begin, holder); of a parameter with several holders for an element by (holder,
  // begin), with the lowest holders in cover_.
  PieceTable pieces_;
  std::vector<Piece> cover_;
  // The begin and the end of each parameter's lowest holders in cover_. Both are equal for a
  // parameter that is not in cover_. Empty if no parameter is.
  std::vector<std::pair<int64_t, int64_t>> cover_ranges_;
};

// Appends the moves to one holder by (from, to_offset).
class MoveOrder {
 public:
  void Append(std::vector<Move>& moves, std::vector<Move>& ordered) {
    if (moves.empty()) return;
    const auto by_place = [](const Move& a, const Move& b) { return a.to_offset < b.to_offset; };
    if (!std::is_sorted(moves.begin(), moves.end(), by_place)) {
      std::sort(moves.begin(), moves.end(), by_place);
    }
    int64_t lowest = INT64_MAX, highest = -1;
    for (const Move& move : moves) {
      lowest = std::min(lowest, move.from);
      highest = std::max(highest, move.from);
    }
    if (highest - lowest > 4 * static_cast<int64_t>(moves.size())) {
      std::stable_sort(moves.begin(), moves.end(),
                       [](const Move& a, const Move& b) { return a.from < b.from; });
      ordered.insert(ordered.end(), moves.begin(), moves.end());
      return;
    }
    // Counting sort, for few holders close to each other, as between two world sizes.
    const int64_t base = ordered.size();
    next_.assign(highest - lowest + 2, 0);
    for (const Move& move : moves) ++next_[move.from - lowest + 1];
    std::partial_sum(next_.begin(), next_.end(), next_.begin());
    ordered.resize(base + moves.size());
    for (const Move& move : moves) ordered[base + next_[move.from - lowest]++] = move;
  }

 private:
  std::vector<int64_t> next_;
};

size_t CountRanges(const Placement& placement) {
  size_t count = 0;
  for (const auto& ranges : placement.holders) count += ranges.size();
  return count;
}

absl::Status CheckSameParameters(const Placement& from, const Placement& to,
                                 const std::vector<std::string>& names) {
  if (from.elements.size() != to.elements.size()) {
    return absl::InvalidArgumentError(absl::StrCat("redistribution from ", from.elements.size(),
                                                   " parameters to ", to.elements.size()));
  }
  Problems problems;
  for (size_t parameter = 0; parameter < from.elements.size(); ++parameter) {
    if (from.elements[parameter] == to.elements[parameter]) continue;
    AddProblem(problems, [&] {
      return absl::StrCat(NameOf(parameter, names), " has ", from.elements[parameter],
                          " elements on one side and ", to.elements[parameter], " on the other");
    });
  }
  return problems.ToStatus(absl::StatusCode::kInvalidArgument,
                           "redistribution between different parameters");
}

}  // namespace

Placement Replicated(const std::vector<int64_t>& elements, int holders) {
  std::vector<Range> all;
  int64_t offset = 0;
  for (size_t parameter = 0; parameter < elements.size(); ++parameter) {
    if (elements[parameter] == 0) continue;
    all.push_back({static_cast<int64_t>(parameter), 0, elements[parameter], offset});
    offset += elements[parameter];
  }
  return {elements, std::vector<std::vector<Range>>(holders, all)};
}

Placement CutEvenly(const std::vector<int64_t>& elements, int holders, int64_t alignment) {
  Placement placement{elements, std::vector<std::vector<Range>>(holders)};
  const int64_t total = std::accumulate(elements.begin(), elements.end(), int64_t{0});
  const int64_t grains = (total + alignment - 1) / alignment;
  // The end of a holder's part in the concatenation.
  const auto part_end = [&](int64_t holder) {
    const int64_t end = grains / holders * (holder + 1) + grains % holders * (holder + 1) / holders;
    return std::min(total, end * alignment);
  };
  int64_t holder = 0;
  int64_t part_begin = 0;
  int64_t at = 0;  // in the concatenation
  for (size_t parameter = 0; parameter < elements.size(); ++parameter) {
    for (int64_t begin = 0; begin < elements[parameter];) {
      for (; part_end(holder) <= at; ++holder) part_begin = part_end(holder);
      const int64_t end = std::min(elements[parameter], begin + part_end(holder) - at);
      placement.holders[holder].push_back(
          {static_cast<int64_t>(parameter), begin, end, at - part_begin});
      at += end - begin;
      begin = end;
    }
  }
  return placement;
}

Placement Only(Placement placement, const std::vector<bool>& chosen) {
  for (std::vector<Range>& ranges : placement.holders) {
    std::erase_if(ranges, [&](const Range& range) { return !chosen[range.parameter]; });
  }
  return placement;
}

absl::Status CheckComplete(const Placement& placement, const std::vector<std::string>& names) {
  RETURN_IF_ERROR(CheckRanges(placement, names));
  const PieceTable pieces(placement);
  Problems problems;
  for (int64_t parameter = 0; parameter < pieces.parameters(); ++parameter) {
    const auto nobody = [&](int64_t begin, int64_t end) {
      AddProblem(problems, [&] {
        return absl::StrCat(NameOf(parameter, names), ": ", Interval(begin, end),
                            " have no holder");
      });
    };
    int64_t covered = 0;  // the end of the elements seen so far
    int64_t last = 0;     // the holder with this end
    for (const Piece* piece = pieces.begin(parameter); piece != pieces.end(parameter); ++piece) {
      if (piece->begin > covered) nobody(covered, piece->begin);
      if (piece->begin < covered) {
        AddProblem(problems, [&] {
          return absl::StrCat(NameOf(parameter, names), ": ",
                              Interval(piece->begin, std::min(piece->end, covered)),
                              " have the holders ", last, " and ", piece->holder);
        });
      }
      if (piece->end > covered) {
        covered = piece->end;
        last = piece->holder;
      }
    }
    if (covered < placement.elements[parameter]) nobody(covered, placement.elements[parameter]);
  }
  return problems.ToStatus(absl::StatusCode::kDataLoss,
                           absl::StrCat("incomplete placement of ", placement.elements.size(),
                                        " parameters on ", placement.holders.size(), " holders"));
}

absl::StatusOr<std::vector<Move>> Redistribute(const Placement& from, const Placement& to,
                                               const std::vector<std::string>& names) {
  RETURN_IF_ERROR(CheckSameParameters(from, to, names));
  RETURN_IF_ERROR(Annotate(CheckRanges(from, names), "redistribution from"));
  RETURN_IF_ERROR(Annotate(CheckRanges(to, names), "redistribution to"));
  const Sources sources(from);
  Problems problems;
  std::vector<Move> moves;
  // The number of ranges: every move begins at the begin of a range of one of the two. Exact if no
  // element has several holders.
  moves.reserve(CountRanges(from) + CountRanges(to));
  std::vector<Move> received;  // by one holder
  MoveOrder order;
  for (size_t holder = 0; holder < to.holders.size(); ++holder) {
    received.clear();
    for (const Range& range : to.holders[holder]) {
      sources.Find(
          holder, range,
          [&](const Piece& piece, int64_t begin, int64_t end) {
            received.push_back({.from = piece.holder,
                                .to = static_cast<int64_t>(holder),
                                .parameter = range.parameter,
                                .begin = begin,
                                .end = end,
                                .from_offset = piece.offset + begin - piece.begin,
                                .to_offset = range.offset + begin - range.begin});
          },
          [&](int64_t begin, int64_t end) {
            AddProblem(problems, [&] {
              return absl::StrCat(NameOf(range.parameter, names), ": ", Interval(begin, end),
                                  " for holder ", holder, " have no holder");
            });
          });
    }
    order.Append(received, moves);
  }
  RETURN_IF_ERROR(problems.ToStatus(absl::StatusCode::kDataLoss, "redistribution"));
  return moves;
}

}  // namespace muster::sharding
