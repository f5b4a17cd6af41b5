#include "worker/train/rollcall/rank_differences.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/status/status.h"
#include "worker/device/host_values.h"

namespace muster::train {
namespace {

// The bytes of all ranks, in rank order. All ranks give equally many.
absl::StatusOr<std::string> Exchange(const std::string& mine, comm::OpLabel label,
                                     comm::Communicator* communicator) {
  const auto bytes = static_cast<int64_t>(mine.size());
  const at::Tensor all = at::empty({bytes * communicator->world_size()}, at::kByte);
  RETURN_IF_ERROR(communicator->AllGather(all, device::HostText(mine, bytes), label)->Wait());
  return std::string(device::TextOf(all));
}

// The text at the begin of some bytes, up to the first zero.
std::string TextAt(const std::string& bytes, int64_t begin) { return bytes.c_str() + begin; }

}  // namespace

absl::Status NameMaskDifference(const TrainedParameters& trained, int64_t step,
                                comm::Communicator* communicator) {
  const Mask& wanted = trained.wanted();
  const int64_t count = static_cast<int64_t>(wanted.size());
  ASSIGN_OR_RETURN(const std::string flags, Exchange({wanted.begin(), wanted.end()},
                                                     {"flags of parameters", step}, communicator));
  for (int64_t i = 0; i < count; ++i) {
    for (int rank = 1; rank < communicator->world_size(); ++rank) {
      if (flags[rank * count + i] == flags[i]) continue;
      return absl::FailedPreconditionError(absl::StrCat(
          "roll call of step ", step + 1, ": the ranks differ in which parameters are trained: '",
          trained.name(i), "' is ", flags[i] ? "trained" : "frozen", " on rank 0 and ",
          flags[i] ? "frozen" : "trained", " on rank ", rank));
    }
  }
  return absl::InternalError("the hashes of equal masks differ");
}

absl::Status NameCollectiveDifference(const comm::FlightRecorder& flight, int64_t step,
                                      comm::Communicator* communicator) {
  constexpr int64_t kNameBytes = 140;
  constexpr int64_t kKept = comm::FlightRecorder::kKept;
  const comm::FlightRecorder::Flight known = flight.Read();
  std::string mine(kKept * kNameBytes, '\0');
  // "COMMUNICATOR NUMBER<tab>NAME": ranks issue the same operations in the same order on each
  // communicator, but may interleave those of several communicators differently.
  for (size_t i = 0; i < known.newest.size(); ++i) {
    const auto& record = known.newest[i];
    absl::StrCat(record.channel, " ", record.of_channel, "\t", record.name)
        .copy(&mine[i * kNameBytes], kNameBytes - 1);
  }
  ASSIGN_OR_RETURN(const std::string all,
                   Exchange(mine, {"names of collectives", step}, communicator));
  const std::string where =
      absl::StrCat("roll call of step ", step + 1, ": the ranks call different collectives");
  using Names = std::vector<std::pair<std::string, std::string>>;  // number and name, oldest first
  std::vector<Names> ranks(communicator->world_size());
  for (int64_t slot = 0; slot < kKept * communicator->world_size(); ++slot) {
    ranks[slot / kKept].push_back(
        absl::StrSplit(TextAt(all, slot * kNameBytes), absl::MaxSplits('\t', 1)));
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
  return absl::FailedPreconditionError(
      absl::StrCat(where, ", before the last ", kKept, ", which are equal on all ranks"));
}

absl::Status WithOrigin(const absl::Status& error, const std::string& here, int64_t step,
                        comm::Communicator* communicator) {
  constexpr int64_t kBytes = 160;
  std::string mine(kBytes, '\0');
  here.copy(mine.data(), kBytes - 1);
  ASSIGN_OR_RETURN(const std::string all, Exchange(mine, {"origin of a loss", step}, communicator));
  std::vector<std::string> origins;
  for (int64_t rank = 0; rank < communicator->world_size(); ++rank) {
    const std::string text = TextAt(all, rank * kBytes);
    if (!text.empty()) origins.push_back(text);
  }
  if (origins.empty()) return error;
  const std::string more =
      origins.size() > 1 ? absl::StrCat(" and of ", origins.size() - 1, " more ranks") : "";
  return absl::Status(error.code(),
                      absl::StrCat(error.message(), "; the loss is that of ", origins[0], more));
}

}  // namespace muster::train
