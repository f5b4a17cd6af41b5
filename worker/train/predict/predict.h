// Computes a result of the model for each sample of a data set, without effect on training: no
// gradients, no buckets, no randomness, no sampler position. Each sample is computed once. Rank 0
// writes the results in the order of the data.
//
// The batches are those of EvaluationPlan: `per_rank` consecutive samples each. Batch i of a shared
// data set runs on rank i modulo the world size. The composition of a batch does not depend on the
// world size. So with bitwise equal parameters, the results are bitwise equal for every world size
// and strategy. If ranks have files of their own, each file has its own batches.
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

// A range of consecutive bytes of a file; may be empty.
struct FileRange {
  uint64_t begin = 0;
  uint64_t bytes = 0;
};

// Sends the results of all ranks to rank 0, which writes each part of the file as it arrives. The
// whole file is never in memory. Threading: one thread.
class Collector {
 public:
  // Writes bytes at offset `begin` of the file.
  using Write = std::function<absl::Status(uint64_t begin, std::string_view bytes)>;
  // The most bytes that rank 0 receives at a time from all ranks together. Rank 0 needs this amount
  // of memory; another rank needs at most as much for sending. Each rank has a share of at least 8
  // bytes, so with very many ranks the total is larger.
  static constexpr uint64_t kMostBytes = uint64_t{16} << 20;

  // The communicator is for tensors on the CPU. `write`: called on rank 0 only. `step`: the
  // training's step, for errors of the communicator.
  Collector(comm::Communicator* communicator, int64_t step, Write write,
            uint64_t most_bytes = kMostBytes);

  // Sends the bytes of one round. A collective. `ranges`: each rank's range of the file, the same
  // argument on all ranks. `own`: this rank's bytes, a flat tensor of bytes on the CPU. Returns
  // false after a failed write of rank 0: on all ranks in the same call, which may be later than
  // the call of the failed write. Errors: the communicator's.
  absl::StatusOr<bool> Add(const std::vector<FileRange>& ranges, const at::Tensor& own);

  // Returns rank 0's first error of `write`; OK on all other ranks.
  const absl::Status& written() const { return written_; }

 private:
  bool leader() const { return communicator_->rank() == 0; }
  void WriteOne(uint64_t begin, std::string_view bytes);
  // Sends, from each rank except 0, at most portion_ bytes of its range to rank 0. `from`: the
  // offset in the range.
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

  // The bytes of all samples, and of one sample.
  uint64_t bytes() const { return static_cast<uint64_t>(shape[0]) * row_bytes(); }
  uint64_t row_bytes() const;
};

// Returns the array for the samples of all ranks:
// - logits: float32, [N, classes]; for tokens [N, context, vocab_size];
// - classes: int64, [N]; for tokens [N, context].
PredictionArray PredictionArrayOf(const RankData& data, const models::InputSpec& input,
                                  PredictStage::What what);

struct PredictionPass {
  const RankData* source;
  const char* data;  // the name of the data set, for errors: "data.predict"
  PredictStage::What what;
  int64_t per_rank;      // the most samples of a batch
  int64_t step;          // optimizer steps done
  models::Model* model;  // on `device`
  models::ForwardContext* context;
  c10::Device device;
  comm::Communicator* communicator;  // for tensors on the CPU
  // Writes bytes of the array. Called on rank 0 only, once for each byte, in any order.
  Collector::Write write;
  // Asks, between two rounds, whether the pass must end. A collective.
  std::function<absl::StatusOr<bool>()> interrupted;
};

struct PredictionEnd {
  bool interrupted = false;  // the same on all ranks
  absl::Status written;      // the first error of `write` on rank 0
};

// Runs a pass. A collective: all ranks call it at the same point. Leaves the context in evaluation
// mode. Calls activity::Moved() for each batch.
// Memory, in addition to a forward of one batch: the results of the batch on this rank's host, and
// Collector::kMostBytes. The number of samples and ranks has no effect.
// Errors: the communicator's, the data set's, those of `interrupted`; INVALID_ARGUMENT if the
// model's results have another shape.
absl::StatusOr<PredictionEnd> Predict(const PredictionPass& pass);

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_PREDICT_PREDICT_H_
