// What a model gives for each sample of a data set, without effect on training: no gradients, no
// buckets, no randomness, no sampler position. Each sample is computed once, and rank 0 writes the
// results in the order of the data.
//
// Batches are those of EvaluationPlan: `per_rank` samples that follow one another, dealt out to the
// ranks, batch i of a common data set to rank i modulo the world size. What is computed together
// does not depend on the world size, so the results are the same bits for every world size and
// strategy with the same bits in their parameters. With files of the ranks' own each file has
// batches of its own.
#ifndef MUSTER_WORKER_TRAIN_PREDICT_PREDICT_H_
#define MUSTER_WORKER_TRAIN_PREDICT_PREDICT_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/safetensors/safetensors.h"
#include "worker/comm/communicator.h"
#include "worker/models/model.h"
#include "worker/train/data/rank_data.h"
#include "worker/train/job/job.h"
#include "worker/train/predict/collector.h"

namespace muster::train {

// The results of all samples as one array, in C order.
struct PredictionArray {
  safetensors::DType dtype = safetensors::DType::kF32;
  std::vector<int64_t> shape;  // [N, ...]

  // Of all samples together, and of one.
  uint64_t bytes() const { return static_cast<uint64_t>(shape[0]) * row_bytes(); }
  uint64_t row_bytes() const;
};

// logits: float32, [N, classes], or of tokens [N, context, vocab_size]. classes: int64, [N], or
// [N, context]. Samples are those of all ranks.
PredictionArray PredictionArrayOf(const RankData& data, const models::InputSpec& input,
                                  PredictStage::What what);

struct PredictionPass {
  const RankData* source;
  const char* data;  // the name of the data set, for errors: "data.predict"
  PredictStage::What what;
  int64_t per_rank;      // samples of a batch, at most
  int64_t step;          // optimizer steps done
  models::Model* model;  // on `device`
  models::ForwardContext* context;
  c10::Device device;
  comm::Communicator* communicator;  // for tensors on the CPU
  // Writes bytes of the array; called on rank 0 only, each byte once, in any order.
  Collector::Write write;
  // A collective, called between two rounds: true ends the pass.
  std::function<absl::StatusOr<bool>()> interrupted;
};

struct PredictionEnd {
  bool interrupted = false;  // the same on all ranks
  absl::Status written;      // on rank 0, `write`'s first error
};

// A collective: all ranks call it at the same point. Leaves the context in evaluation mode. Calls
// activity::Moved() for each batch.
// Memory, beside that of a forward of one batch: its results on this rank's host, and
// Collector::kMostBytes; no more, however many samples and ranks there are.
// Errors: the communicator's, the data set's, those of `interrupted`; INVALID_ARGUMENT if the model
// gives another shape.
absl::StatusOr<PredictionEnd> Predict(const PredictionPass& pass);

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_PREDICT_PREDICT_H_
