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
#include <string_view>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/safetensors/safetensors.h"
#include "worker/comm/communicator.h"
#include "worker/models/model.h"
#include "worker/train/data/rank_data.h"
#include "worker/train/job/job.h"

namespace muster::train {

// Bytes of a file that follow one another; there may be none.
struct FileRange {
  uint64_t begin = 0;
  uint64_t bytes = 0;
};

// Brings what all ranks have computed for a file to rank 0, which writes it, part by part as the
// parts arrive: the whole is never in memory. Threading: one thread.
class Collector {
 public:
  // Writes bytes at this place of the file.
  using Write = std::function<absl::Status(uint64_t begin, std::string_view bytes)>;
  // What rank 0 receives at a time from all ranks together, at most, in bytes: this is the memory
  // that it needs. Another rank needs memory for what it sends at a time, which is not more. With
  // so many ranks that less than 8 bytes would be a rank's share, 8 bytes for each of them.
  static constexpr uint64_t kMostBytes = uint64_t{16} << 20;

  // The communicator is for tensors on the CPU. `write`: called on rank 0 only. `step`: of the
  // training, for the communicator's errors.
  Collector(comm::Communicator* communicator, int64_t step, Write write,
            uint64_t most_bytes = kMostBytes);

  // A collective. `ranges`: what each rank has, by rank, the same on all ranks. `own`: this rank's
  // bytes, a flat tensor of bytes on the CPU. Returns false, on all ranks in the same call, once
  // rank 0 could not write, which may be a later call than that in which it failed. Errors: the
  // communicator's.
  absl::StatusOr<bool> Add(const std::vector<FileRange>& ranges, const at::Tensor& own);

  // Rank 0's first error of `write`; OK on all other ranks.
  const absl::Status& written() const { return written_; }

 private:
  bool leader() const { return communicator_->rank() == 0; }
  void WriteOne(uint64_t begin, std::string_view bytes);
  // Each other rank sends the bytes of its range from `from` on, at most portion_ of them.
  absl::StatusOr<bool> Exchange(const std::vector<FileRange>& ranges, const at::Tensor& own,
                                uint64_t from);

  comm::Communicator* const communicator_;
  const int64_t step_;
  const Write write_;
  const uint64_t portion_;  // a multiple of 8
  absl::Status written_;
};

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
