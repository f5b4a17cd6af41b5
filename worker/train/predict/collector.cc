#include "worker/train/predict/collector.h"

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <utility>

#include "common/activity/activity.h"
#include "common/status/status.h"
#include "worker/device/host_values.h"
#include "worker/device/memory.h"

namespace muster::train {
namespace {

// Bytes are sent as the words that every communicator takes.
constexpr uint64_t kWord = sizeof(int64_t);
int64_t WordsOf(uint64_t bytes) { return static_cast<int64_t>((bytes + kWord - 1) / kWord); }

uint64_t PortionOf(int world_size, uint64_t most_bytes) {
  const auto senders = static_cast<uint64_t>(std::max(world_size - 1, 1));
  return std::max(most_bytes / senders / kWord, uint64_t{1}) * kWord;
}

}  // namespace

Collector::Collector(comm::Communicator* communicator, int64_t step, Write write,
                     uint64_t most_bytes)
    : communicator_(communicator),
      step_(step),
      write_(std::move(write)),
      portion_(PortionOf(communicator->world_size(), most_bytes)) {}

void Collector::WriteOne(uint64_t begin, std::string_view bytes) {
  if (written_.ok() && !bytes.empty()) written_ = write_(begin, bytes);
}

absl::StatusOr<bool> Collector::Add(const std::vector<FileRange>& ranges, const at::Tensor& own) {
  if (leader()) WriteOne(ranges[0].begin, device::TextOf(own));
  if (communicator_->world_size() == 1) return written_.ok();
  uint64_t longest = 0;
  for (size_t rank = 1; rank < ranges.size(); ++rank) {
    longest = std::max(longest, ranges[rank].bytes);
  }
  // Also if there is nothing to send, because rank 0 says how it is going.
  for (uint64_t from = 0; from == 0 || from < longest; from += portion_) {
    ASSIGN_OR_RETURN(const bool goes_on, Exchange(ranges, own, from));
    if (!goes_on) return false;
  }
  return true;
}

absl::StatusOr<bool> Collector::Exchange(const std::vector<FileRange>& ranges,
                                         const at::Tensor& own, uint64_t from) {
  const auto size_of = [&](int rank) -> uint64_t {
    return ranges[rank].bytes <= from ? 0 : std::min(portion_, ranges[rank].bytes - from);
  };
  const int ranks = communicator_->world_size();
  const int rank = communicator_->rank();
  // To each other rank goes a word: whether rank 0 could write everything so far.
  std::vector<int64_t> in_sizes(ranks, 0), out_sizes(ranks, 0);
  at::Tensor in;
  int64_t received = 1;
  if (leader()) {
    std::fill(in_sizes.begin() + 1, in_sizes.end(), 1);
    in = at::full({ranks - 1}, static_cast<int64_t>(written_.ok()), at::kLong);
    received = 0;
    for (int other = 1; other < ranks; ++other) {
      received += out_sizes[other] = WordsOf(size_of(other));
    }
  } else {
    const auto bytes = static_cast<int64_t>(size_of(rank));
    in_sizes[0] = WordsOf(size_of(rank));
    out_sizes[0] = 1;
    in = at::zeros({in_sizes[0]}, at::kLong);
    if (bytes > 0) device::CopyBytes(in, 0, own, static_cast<int64_t>(from), bytes);
  }
  const at::Tensor out = at::zeros({received}, at::kLong);
  const bool could_write = written_.ok();
  RETURN_IF_ERROR(
      communicator_->AllToAll(out, out_sizes, in, in_sizes, {"predictions", step_})->Wait());
  activity::Moved();
  const auto words = device::HostValues<int64_t>(out);
  if (!leader()) return words[0] != 0;
  const char* next = reinterpret_cast<const char*>(words.data());
  for (int other = 1; other < ranks; ++other) {
    WriteOne(ranges[other].begin + from, {next, size_of(other)});
    next += out_sizes[other] * kWord;
  }
  return could_write;
}

}  // namespace muster::train
