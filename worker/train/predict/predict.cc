#include "worker/train/predict/predict.h"

#include <ATen/ops/argmax.h>
#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>

#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/activity/activity.h"
#include "common/status/status.h"
#include "worker/data/evaluation.h"
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

// What the ranks have of the array in each round.
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
  std::vector<int64_t> files_;  // samples before those of each rank's own file
};

// The results of a batch as bytes on the host.
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

}  // namespace

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
    if (idle && pass.context->collective()) {  // only for the collectives of the other ranks
      pass.model->Logits(reader.Blank(1).inputs, *pass.context);
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
      ASSIGN_OR_RETURN(own, BytesOf(pass.model->Logits(batch->inputs, *pass.context), pass.what,
                                    std::move(expected)));
      activity::Moved();
    }
    ASSIGN_OR_RETURN(const bool goes_on, collector.Add(rounds.Ranges(round), own));
    if (!goes_on) break;
  }
  return PredictionEnd{false, collector.written()};
}

}  // namespace muster::train
