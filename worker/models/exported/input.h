// The data that an exported model takes, found from its manifest.
#ifndef MUSTER_WORKER_MODELS_EXPORTED_INPUT_H_
#define MUSTER_WORKER_MODELS_EXPORTED_INPUT_H_

#include "absl/status/statusor.h"
#include "worker/models/batch.h"
#include "worker/models/exported/manifest.h"

namespace muster::models::exported {

// - One input int64 [batch, context] with logits [batch, context, vocabulary]: tokens.
// - One input float32 [batch, ...] with logits [batch, classes]: rows.
// - Any other inputs: arrays by name. With logits [batch, ..., classes] the targets are classes of
//   the shape [batch, ...]. A loss has its targets among the inputs. Tokens can fill the inputs of
//   a loss if these are `labels`, whose values the loss counts, and one more, both int64 [batch,
//   context].
// INVALID_ARGUMENT: inputs or an output that no data set fits.
absl::StatusOr<InputSpec> InputOf(const Manifest& manifest);

}  // namespace muster::models::exported

#endif  // MUSTER_WORKER_MODELS_EXPORTED_INPUT_H_
