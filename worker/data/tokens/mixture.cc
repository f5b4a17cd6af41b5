#include "worker/data/tokens/mixture.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include "ATen/core/IListRef.h"
#include "ATen/core/Tensor.h"
#include "ATen/ops/arange.h"
#include "ATen/ops/cat.h"
#include "ATen/ops/full.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status/status.h"
#include "common/tokenizer/sidecar.h"
#include "worker/data/notes.h"

namespace muster::data {

MixtureOrder::MixtureOrder(std::vector<Part> parts) : parts_(std::move(parts)) {
  for (size_t part = 0; part < parts_.size(); ++part) {
    weights_ += parts_[part].weight;
    const double time = Time(part, parts_[part].samples - 1);
    if (time >= last_time_) {
      last_time_ = time;
      last_part_ = part;
    }
  }
  for (size_t part = 0; part < parts_.size(); ++part) size_ += Used(part);
}

int64_t MixtureOrder::Before(size_t part, double time) const {
  // The product may be wrong by its rounding.
  int64_t count =
      std::max<int64_t>(0, static_cast<int64_t>(std::floor(time * parts_[part].weight + 0.5)) - 1);
  while (Time(part, count) < time) ++count;
  return count;
}

int64_t MixtureOrder::Used(size_t part) const {
  int64_t count = Before(part, last_time_);
  if (part <= last_part_ && Time(part, count) == last_time_) ++count;
  return count;
}

MixtureOrder::Place MixtureOrder::At(int64_t sample) const {
  // Before this time there are at most `sample` samples: a part has at most one more than its share
  // of the time.
  const double parts = static_cast<double>(parts_.size());
  const double time = std::max(0.0, (static_cast<double>(sample) - parts) / weights_);
  std::vector<int64_t> next(parts_.size());
  int64_t passed = 0;
  for (size_t part = 0; part < parts_.size(); ++part) {
    next[part] = Before(part, time);
    passed += next[part];
  }
  while (true) {
    size_t first = 0;
    for (size_t part = 1; part < parts_.size(); ++part) {
      if (Time(part, next[part]) < Time(first, next[first])) first = part;
    }
    if (passed == sample) return {first, next[first] % parts_[first].samples};
    ++next[first];
    ++passed;
  }
}

namespace {

// The largest number of samples in an epoch.
constexpr double kMostSamples = 2147483648.0;

// Returns rows of at least this length: fillers follow.
at::Tensor Filled(const at::Tensor& rows, int64_t length, int64_t filler) {
  const int64_t missing = length - rows.size(1);
  if (missing == 0) return rows;
  return at::cat({rows, at::full({rows.size(0), missing}, filler, rows.options())}, 1);
}

// The same for positions in documents: the fillers are a document of their own.
at::Tensor FilledPositions(const at::Tensor& rows, int64_t length) {
  const int64_t missing = length - rows.size(1);
  if (missing == 0) return rows;
  return at::cat({rows, at::arange(missing, rows.options()).expand({rows.size(0), missing})}, 1);
}

class Mixture : public Dataset {
 public:
  Mixture(std::vector<std::unique_ptr<Dataset>> parts, MixtureOrder order,
          tokenizer::Source tokenizer, std::optional<int64_t> ignored, Note note)
      : parts_(std::move(parts)),
        order_(std::move(order)),
        tokenizer_(std::move(tokenizer)),
        ignored_(ignored.value_or(0)),
        note_(std::move(note)) {}

  int64_t size() const override { return order_.size(); }
  std::optional<double> mean_tokens() const override {
    double tokens = 0;
    for (size_t part = 0; part < parts_.size(); ++part) {
      const std::optional<double> mean = parts_[part]->mean_tokens();
      if (!mean.has_value()) return std::nullopt;
      tokens += *mean * static_cast<double>(order_.Used(part));
    }
    return tokens / static_cast<double>(size());
  }
  tokenizer::Source tokenizer() const override { return tokenizer_; }
  Batch Blank(int64_t samples) const override { return parts_.front()->Blank(samples); }

  std::vector<Note> notes() const override {
    std::vector<Note> notes;
    for (const auto& part : parts_) {
      for (Note& note : part->notes()) notes.push_back(std::move(note));
    }
    notes.push_back(note_);
    return notes;
  }

  absl::Status Check(const Part& part) const override {
    for (const auto& one : parts_) RETURN_IF_ERROR(one->Check(part));
    return absl::OkStatus();
  }

  absl::StatusOr<Batch> Read(std::span<const int64_t> samples) const override {
    std::vector<Batch> rows;
    int64_t longest = 0;
    for (const int64_t sample : samples) {
      if (sample < 0 || sample >= size()) {
        return absl::OutOfRangeError(absl::StrCat("sample ", sample, ": expected one of ", size()));
      }
      const MixtureOrder::Place place = order_.At(sample);
      ASSIGN_OR_RETURN(Batch row, parts_[place.part]->Read(std::span(&place.sample, 1)));
      longest = std::max(longest, row.inputs.size(1));
      rows.push_back(std::move(row));
    }
    std::vector<at::Tensor> inputs, targets;
    std::vector<std::vector<at::Tensor>> further(rows.front().further.size());
    for (const Batch& row : rows) {
      inputs.push_back(Filled(row.inputs, longest, 0));
      targets.push_back(Filled(row.targets, longest, ignored_));
      for (size_t i = 0; i < further.size(); ++i) {
        further[i].push_back(FilledPositions(row.further[i], longest));
      }
    }
    Batch batch = {.inputs = at::cat(inputs), .targets = at::cat(targets)};
    for (const auto& one : further) batch.further.push_back(at::cat(one));
    return batch;
  }

 private:
  const std::vector<std::unique_ptr<Dataset>> parts_;
  const MixtureOrder order_;
  const tokenizer::Source tokenizer_;
  const int64_t ignored_;
  const Note note_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Dataset>> MakeMixture(std::vector<std::unique_ptr<Dataset>> parts,
                                                     const std::vector<double>& weights,
                                                     const InputSpec& spec) {
  std::vector<MixtureOrder::Part> of_order;
  tokenizer::Source tokenizer;
  double sum = 0, longest = 0;
  for (size_t part = 0; part < parts.size(); ++part) {
    sum += weights[part];
    longest = std::max(longest, static_cast<double>(parts[part]->size()) / weights[part]);
  }
  if (!(sum * longest <= kMostSamples)) {  // also if it is not a number
    return absl::InvalidArgumentError(absl::StrFormat(
        "mixture: an epoch, in which every sample of every part is used, would have %.3g samples; "
        "allowed: at most %.3g; give the parts with many samples a larger weight",
        sum * longest, kMostSamples));
  }
  for (size_t part = 0; part < parts.size(); ++part) {
    of_order.push_back({parts[part]->size(), weights[part]});
    const tokenizer::Source other = parts[part]->tokenizer();
    RETURN_IF_ERROR(tokenizer::CheckSameTokenizer(tokenizer, "an earlier part of the mixture",
                                                  other, absl::StrCat("mixture[", part, "]")));
    if (!tokenizer.known()) tokenizer = other;
  }
  MixtureOrder order(std::move(of_order));
  std::string text = absl::StrCat("an epoch has ", order.size(), " samples of the mixture");
  for (size_t part = 0; part < parts.size(); ++part) {
    const auto used = static_cast<double>(order.Used(part));
    absl::StrAppendFormat(&text, "%s %.2f times mixture[%d]", part == 0 ? ", which use" : ",",
                          used / static_cast<double>(parts[part]->size()), part);
  }
  return std::make_unique<Mixture>(std::move(parts), std::move(order), std::move(tokenizer),
                                   spec.ignored, Note{Note::Kind::kArranged, std::move(text)});
}

}  // namespace muster::data
