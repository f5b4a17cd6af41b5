#include "worker/train/rollcall/rank_differences.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/status/status.h"
#include "worker/checkpoint/exchange.h"

namespace muster::train {

absl::Status NameMaskDifference(const TrainedParameters& trained, int64_t step,
                                comm::Communicator* communicator) {
  const Mask& wanted = trained.wanted();
  ASSIGN_OR_RETURN(const auto flags,
                   checkpoint::GatherTexts(*communicator, {wanted.begin(), wanted.end()},
                                           "flags of parameters", step));
  for (size_t i = 0; i < wanted.size(); ++i) {
    for (size_t rank = 1; rank < flags.size(); ++rank) {
      if (flags[rank][i] == flags[0][i]) continue;
      return absl::FailedPreconditionError(absl::StrCat(
          "roll call of step ", step + 1, ": the ranks differ in which parameters are trained: '",
          trained.name(i), "' is ", flags[0][i] ? "trained" : "frozen", " on rank 0 and ",
          flags[0][i] ? "frozen" : "trained", " on rank ", rank));
    }
  }
  return absl::InternalError("the hashes of equal masks differ");
}

absl::Status NameCollectiveDifference(const comm::FlightRecorder& flight, int64_t step,
                                      comm::Communicator* communicator) {
  // Entries "COMMUNICATOR NUMBER<tab>NAME". All ranks issue the operations of one communicator in
  // the same order. The order of operations of different communicators may differ between ranks.
  std::vector<std::string> mine;
  const comm::FlightRecorder::Flight known = flight.Read();
  for (const auto& record : known.newest) {
    mine.push_back(absl::StrCat(record.channel, " ", record.of_channel, "\t", record.name));
  }
  ASSIGN_OR_RETURN(const auto texts,
                   checkpoint::GatherTexts(*communicator, absl::StrJoin(mine, "\n"),
                                           "names of collectives", step));
  const std::string where =
      absl::StrCat("roll call of step ", step + 1, ": the ranks call different collectives");
  using Names = std::vector<std::pair<std::string, std::string>>;  // number and name, oldest first
  std::vector<Names> ranks(texts.size());
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    for (const auto line : absl::StrSplit(texts[rank], '\n', absl::SkipEmpty())) {
      ranks[rank].push_back(absl::StrSplit(line, absl::MaxSplits('\t', 1)));
    }
  }
  for (const auto& [number, first] : ranks[0]) {
    for (size_t rank = 1; rank < ranks.size(); ++rank) {
      const auto same = [&](const auto& other) { return other.first == number; };
      const auto other = std::find_if(ranks[rank].begin(), ranks[rank].end(), same);
      if (other == ranks[rank].end() || other->second == first) continue;
      return absl::FailedPreconditionError(
          absl::StrCat(where, ": number ", number.substr(number.find(' ') + 1), " is ", first,
                       " on rank 0 and ", other->second, " on rank ", rank));
    }
  }
  return absl::FailedPreconditionError(absl::StrCat(
      where, ", before the last ", comm::FlightRecorder::kKept, ", which are equal on all ranks"));
}

absl::Status WithOrigin(const absl::Status& error, const std::string& here, int64_t step,
                        comm::Communicator* communicator) {
  ASSIGN_OR_RETURN(auto origins,
                   checkpoint::GatherTexts(*communicator, here, "origin of a loss", step));
  std::erase(origins, std::string());
  if (origins.empty()) return error;
  const size_t others = origins.size() - 1;
  const std::string more =
      others > 0 ? absl::StrCat(", and from ", others, others == 1 ? " more rank" : " more ranks")
                 : "";
  return absl::Status(
      error.code(),
      absl::StrCat(error.message(), "; the loss that is not finite comes from ", origins[0], more));
}

}  // namespace muster::train
