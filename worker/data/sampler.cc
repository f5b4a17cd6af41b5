#include "worker/data/sampler.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/status/status.h"
#include "worker/data/permutation.h"

namespace muster::data {

absl::StatusOr<Sampler> Sampler::Create(const SamplerOptions& options) {
  const auto check = [](const char* name, int64_t value) {
    if (value >= 1) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("sampler: ", name, ": expected at least 1, found ", value));
  };
  RETURN_IF_ERROR(check("samples", options.size));
  RETURN_IF_ERROR(check("world_size", options.world_size));
  RETURN_IF_ERROR(check("per_rank", options.per_rank));
  RETURN_IF_ERROR(check("accumulate", options.accumulate));
  if (options.own.has_value()) RETURN_IF_ERROR(check("samples", options.own->shortest));
  Sampler sampler(options);
  if (options.last == Last::kDrop && sampler.epoch_size_ < sampler.global_batch_) {
    if (options.own.has_value()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "sampler: the shortest of the ranks' files has ", options.own->shortest,
          " samples, less than one step takes of it: ", options.accumulate, " micro-batches x ",
          options.per_rank, " samples, so that `last: drop` would drop everything"));
    }
    return absl::InvalidArgumentError(absl::StrCat(
        "sampler: the data has ", options.size, " samples, less than one step takes: ",
        options.world_size, " ranks x ", options.accumulate, " micro-batches x ", options.per_rank,
        " samples = ", sampler.global_batch_, ", so that `last: drop` would drop everything"));
  }
  return sampler;
}

Sampler::Sampler(const SamplerOptions& options)
    : options_(options),
      global_batch_(options.world_size * options.accumulate * options.per_rank),
      epoch_size_(options.own.has_value() ? options.world_size * options.own->shortest
                                          : options.size) {}

int64_t Sampler::steps_per_epoch() const {
  if (options_.last == Last::kDrop) return epoch_size_ / global_batch_;
  return (epoch_size_ + global_batch_ - 1) / global_batch_;
}

Position Sampler::Begin(Position position) const {
  const int64_t rest = epoch_size_ - position.cursor;
  const int64_t needed = options_.last == Last::kDrop ? global_batch_ : 1;
  return rest >= needed ? position : Position{position.epoch + 1, 0};
}

Position Sampler::After(Position position) const {
  const Position begin = Begin(position);
  return {begin.epoch, std::min(begin.cursor + global_batch_, epoch_size_)};
}

std::vector<int64_t> Sampler::Samples(Position position, int64_t rank, int64_t micro_batch) {
  const Position begin = Begin(position);
  if (options_.order == Order::kShuffled && cached_epoch_ != begin.epoch) {
    permutation_ = Permutation(
        options_.seed, begin.epoch, options_.size,
        options_.own.has_value() ? std::optional(options_.own->rank) : std::nullopt);
    cached_epoch_ = begin.epoch;
  }
  const int64_t first =
      options_.own.has_value()
          ? begin.cursor / options_.world_size + micro_batch * options_.per_rank
          : begin.cursor + (rank * options_.accumulate + micro_batch) * options_.per_rank;
  std::vector<int64_t> samples(options_.per_rank);
  for (int64_t i = 0; i < options_.per_rank; ++i) {
    const int64_t place = (first + i) % options_.size;  // past the end only when padding
    samples[i] = options_.order == Order::kShuffled ? permutation_[place] : place;
  }
  return samples;
}

}  // namespace muster::data
