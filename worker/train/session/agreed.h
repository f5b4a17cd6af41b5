// The second phase of a session: job, model and data, after the ranks have compared them
// (docs/internals/roll-call.md).
#ifndef MUSTER_WORKER_TRAIN_SESSION_AGREED_H_
#define MUSTER_WORKER_TRAIN_SESSION_AGREED_H_

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "common/tokenizer/source.h"
#include "worker/checkpoint/load_weights.h"
#include "worker/models/deferred_values.h"
#include "worker/models/model.h"
#include "worker/train/data/rank_data.h"
#include "worker/train/save/weights_export.h"
#include "worker/train/session/opened.h"
#include "worker/train/step/finite.h"
#include "worker/train/step/trained_parameters.h"

namespace muster::train {

// The data sets of the job.
struct DataSets {
  std::optional<RankData> train;  // only if there is a fit stage
  std::optional<RankData> validate;
  std::optional<RankData> test;
  std::optional<RankData> predict;
};

struct Agreed {
  std::unique_ptr<Opened> opened;
  // The number of ranks that share this rank's memory.
  uint64_t ranks_of_node = 1;
  std::unique_ptr<models::Model> model;
  // The values of the model's parameters, which have no memory until the model is sharded. Load
  // empties this object.
  models::DeferredValues deferred;
  std::optional<checkpoint::LoadedWeights> weights;  // absent: the job has no weights file
  std::unique_ptr<TrainedParameters> trained;
  std::unique_ptr<const FiniteCheck> finite;
  DataSets data;
  tokenizer::Source tokenizer;  // the tokenizer of the data
};

// Makes the model, opens the data, and compares both with the other ranks. A collective. Errors:
// FAILED_PRECONDITION: the ranks differ; the message names the difference; INVALID_ARGUMENT: job,
// model and data do not fit one another; those of files; the communicators'.
absl::StatusOr<std::unique_ptr<Agreed>> Agree(std::unique_ptr<Opened> opened);

// Returns the object that exports the weights, for a job with an export. `tokenizer`: that of
// WeightsExport::Dependencies.
WeightsExport ExportOf(const Opened& opened, const tokenizer::Source* tokenizer);

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_SESSION_AGREED_H_
