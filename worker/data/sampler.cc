#include "worker/data/sampler.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/status/status.h"
#include "worker/data/permutation.h"

namespace muster::data {
namespace {

int64_t EpochSize(const SamplerOptions& options) {
  if (!options.own.has_value()) return options.size;
  const bool to_the_end = options.last == Last::kUneven;
  return options.world_size * (to_the_end ? options.own->longest : options.own->shortest);
}

}  // namespace

absl::StatusOr<Sampler> Sampler::Create(const SamplerOptions& options) {
  const auto check = [](int64_t samples) {
    if (samples >= 1) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("sampler: samples: expected at least 1, found ", samples));
  };
  const bool own = options.own.has_value();
  if (!own || options.last != Last::kUneven) RETURN_IF_ERROR(check(options.size));
  if (own) {
    RETURN_IF_ERROR(
        check(options.last == Last::kUneven ? options.own->longest : options.own->shortest));
  }
  Sampler sampler(options);
  if (sampler.pace_.steps_per_epoch() == 0) {
    if (own) {
      return absl::InvalidArgumentError(absl::StrCat(
          "sampler: the shortest of the ranks' files has ", options.own->shortest,
          " samples, less than one step takes of it: ", options.accumulate, " micro-batches x ",
          options.per_rank, " samples, so that `last: drop` would drop everything"));
    }
    return absl::InvalidArgumentError(absl::StrCat(
        "sampler: the data has ", options.size, " samples, less than one step takes: ",
        options.world_size, " ranks x ", options.accumulate, " micro-batches x ", options.per_rank,
        " samples = ", sampler.pace_.global_batch, ", so that `last: drop` would drop everything"));
  }
  return sampler;
}

Sampler::Sampler(const SamplerOptions& options)
    : options_(options),
      pace_{.epoch_size = EpochSize(options),
            .global_batch = options.world_size * options.accumulate * options.per_rank,
            .last = options.last} {}

std::vector<int64_t> Sampler::Samples(Position position, int64_t rank, int64_t micro_batch) {
  const Position begin = Begin(position);
  PrepareOrder(begin.epoch);
  const int64_t first = Place(begin, rank, micro_batch);
  int64_t count = options_.per_rank;
  if (options_.last == Last::kUneven) {
    count = std::clamp<int64_t>(options_.size - first, 0, count);
  }
  std::vector<int64_t> samples(count);
  for (int64_t i = 0; i < count; ++i) {
    samples[i] = SampleAt((first + i) % options_.size);  // past the end only when padding
  }
  return samples;
}

void Sampler::PrepareOrder(int64_t epoch) {
  if (cached_epoch_ == epoch) return;
  cached_epoch_ = epoch;
  const auto rank = options_.own.has_value() ? std::optional(options_.own->rank) : std::nullopt;
  switch (options_.order) {
    case Order::kSequential:
      return;
    case Order::kShuffled:
      permutation_ = Permutation(options_.seed, epoch, options_.size, rank);
      return;
    case Order::kShuffledV2:
      keyed_.emplace(options_.seed, epoch, options_.size, rank);
      return;
  }
}

int64_t Sampler::SampleAt(int64_t place) const {
  switch (options_.order) {
    case Order::kSequential:
      return place;
    case Order::kShuffled:
      return permutation_[place];
    case Order::kShuffledV2:
      return keyed_->At(place);
  }
  return place;
}

int64_t Sampler::Place(const Position& begin, int64_t rank, int64_t micro_batch) const {
  if (options_.own.has_value()) {
    return begin.cursor / options_.world_size + micro_batch * options_.per_rank;
  }
  return begin.cursor + (rank * options_.accumulate + micro_batch) * options_.per_rank;
}

Sampler::Share Sampler::ShareOf(Position position, int64_t rank) const {
  const int64_t whole = options_.accumulate * options_.per_rank;
  if (options_.last != Last::kUneven) {
    return {.micro_batches = options_.accumulate, .samples = whole};
  }
  const int64_t first = Place(Begin(position), rank, 0);
  const int64_t left = options_.size - first;
  if (left > 0) {
    const int64_t samples = std::min(left, whole);
    return {.micro_batches = (samples + options_.per_rank - 1) / options_.per_rank,
            .samples = samples};
  }
  // The rank has no input. With a common data set, only the last step may lack input. With an own
  // file, the file has input for this many steps.
  if (!options_.own.has_value()) return {};
  const int64_t steps_with_input = (options_.size + whole - 1) / whole;
  return {.idle_steps = first / whole - steps_with_input};
}

}  // namespace muster::data
