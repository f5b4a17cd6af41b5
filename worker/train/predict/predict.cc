#include "worker/train/predict/predict.h"

#include <ATen/ops/argmax.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/activity/activity.h"
#include "common/status/status.h"
#include "worker/data/evaluation.h"
#include "worker/device/host_values.h"
#include "worker/device/memory.h"
#include "worker/memory/memory_scope.h"
#include "worker/train/data/read_ahead.h"
#include "worker/train/job/numbered.h"

namespace muster::train {
namespace {

int64_t CountOf(const RankData& data) {
  if (data.own_sizes.empty()) return data.dataset->size();
  return std::accumulate(data.own_sizes.begin(), data.own_sizes.end(), int64_t{0});
}

// The ranges of the array that the ranks compute in each round.
class Rounds {
 public:
  Rounds(const RankData& data, const PredictionPass& pass, uint64_t row_bytes)
      : plan_(data.Evaluation(pass.communicator->world_size(), pass.per_rank)),
        row_bytes_(row_bytes) {
    int64_t before = 0;
    for (const int64_t size : plan_.own_sizes) {
      files_.push_back(before);
      before += size;
    }
  }

  int64_t count() const { return plan_.rounds(); }
  std::vector<int64_t> Samples(int rank, int64_t round) const { return plan_.Samples(rank, round); }
  std::vector<FileRange> Ranges(int64_t round) const {
    std::vector<FileRange> ranges;
    for (int64_t rank = 0; rank < plan_.world_size; ++rank) {
      FileRange& range = ranges.emplace_back();
      const std::vector<int64_t> samples = plan_.Samples(rank, round);
      if (samples.empty()) continue;
      const int64_t first = samples[0] + (files_.empty() ? 0 : files_[rank]);
      range = {static_cast<uint64_t>(first) * row_bytes_, samples.size() * row_bytes_};
    }
    return ranges;
  }

 private:
  const data::EvaluationPlan plan_;
  const uint64_t row_bytes_;
  std::vector<int64_t> files_;  // samples before those of each rank's file
};

// Returns the results of a batch as bytes on the host.
absl::StatusOr<at::Tensor> BytesOf(const at::Tensor& logits, PredictStage::What what,
                                   std::vector<int64_t> expected) {
  const at::Tensor rows =
      what == PredictStage::What::kClasses ? logits.argmax(-1) : logits.to(at::kFloat);
  if (rows.sizes() != at::IntArrayRef(expected)) {
    return absl::InvalidArgumentError(absl::StrCat("the model's output: expected [",
                                                   absl::StrJoin(expected, ", "), "], found [",
                                                   absl::StrJoin(rows.sizes(), ", "), "]"));
  }
  return device::On(at::kCPU, rows.contiguous()).flatten().view(at::kByte);
}

// Bytes are sent as int64 words, which every communicator takes.
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
  // There is at least one exchange, even without bytes, because rank 0 tells its state.
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
  // Each other rank receives one word: whether all writes of rank 0 have succeeded.
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

uint64_t PredictionArray::row_bytes() const {
  uint64_t bytes = safetensors::ElementSize(dtype);
  for (size_t i = 1; i < shape.size(); ++i) bytes *= static_cast<uint64_t>(shape[i]);
  return bytes;
}

PredictionArray PredictionArrayOf(const RankData& data, const models::InputSpec& input,
                                  PredictStage::What what) {
  const bool tokens = input.kind == models::InputSpec::Kind::kTokens;
  PredictionArray array{.shape = {CountOf(data)}};
  if (tokens) array.shape.push_back(input.context);
  array.shape.insert(array.shape.end(), input.target_shape.begin(), input.target_shape.end());
  if (what == PredictStage::What::kClasses) {
    array.dtype = safetensors::DType::kI64;
  } else {
    array.shape.push_back(tokens ? input.vocab_size : input.classes);
  }
  return array;
}

absl::StatusOr<PredictionEnd> Predict(const PredictionPass& pass) {
  const c10::AutoGradMode no_gradients(false);
  pass.context->set_mode(models::Mode::kEvaluate);
  const int rank = pass.communicator->rank();
  const PredictionArray array = PredictionArrayOf(*pass.source, pass.model->Input(), pass.what);
  const Rounds rounds(*pass.source, pass, array.row_bytes());
  ReadAhead reader(pass.source->dataset.get(), pass.device);
  Collector collector(pass.communicator, pass.step, pass.write);
  for (int64_t round = 0; round < rounds.count(); ++round) {
    if (round > 0) {
      ASSIGN_OR_RETURN(const bool interrupted, pass.interrupted());
      if (interrupted) return PredictionEnd{true, absl::OkStatus()};
    }
    const auto indices = rounds.Samples(rank, round);
    const bool idle = indices.empty();
    const memory::MemoryScope scope(memory::Purpose::kActivations);
    at::Tensor own = at::empty({0}, at::kByte);
    if (idle && pass.context->collective()) {  // only for other ranks' collectives
      pass.model->Logits(reader.Blank(1), *pass.context);
      activity::Moved();
    } else if (!idle) {
      const auto batch = reader.Read(indices);
      if (!batch.ok()) {
        return Annotate(batch.status(),
                        absl::StrCat("rank ", rank, ", ", SamplesOf(pass.data, indices)));
      }
      if (round + 1 < rounds.count()) reader.Begin(rounds.Samples(rank, round + 1));
      std::vector<int64_t> expected = array.shape;
      expected[0] = static_cast<int64_t>(indices.size());
      ASSIGN_OR_RETURN(
          own, BytesOf(pass.model->Logits(*batch, *pass.context), pass.what, std::move(expected)));
      activity::Moved();
    }
    ASSIGN_OR_RETURN(const bool goes_on, collector.Add(rounds.Ranges(round), own));
    if (!goes_on) break;
  }
  return PredictionEnd{false, collector.written()};
}

}  // namespace muster::train
