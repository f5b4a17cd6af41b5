// Continues prompts with the model that the ranks train, between two steps and without effect on
// training: no gradients, no buckets, no randomness of the ranks' generators, no buffer changes,
// and the context's mode is what it was.
#ifndef MUSTER_WORKER_TRAIN_EVALUATE_GENERATE_H_
#define MUSTER_WORKER_TRAIN_EVALUATE_GENERATE_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "c10/core/Device.h"
#include "worker/comm/communicator.h"
#include "worker/models/generate.h"
#include "worker/models/model.h"

namespace muster::train {

// A collective: all ranks call it at the same point with the same request, after AwaitParameters of
// the strategy, and each gets the new tokens of all prompts. The batches of prompts
// (models::BatchesOf) are dealt out to the ranks, batch i to rank i modulo the world size; where a
// forward needs all ranks (fsdp), those without a batch run forwards of one token. So the tokens
// are the same bits as those of one rank, for every strategy and world size, as long as the
// parameters are.
// `step`: of the training, in errors of the communicator. The communicator is for tensors on the
// CPU; the model is on `device`. Precision: the caller's autocast scope.
// Memory: models::GenerateBatch, and 8 bytes for each new token of all prompts; freed when it
// returns. Errors: models::CheckGeneration's, before anything runs; FAILED_PRECONDITION on all
// ranks, with the prompt's number, if logits are not finite; the communicator's. Exceptions: those
// of forwards (unit.h).
absl::StatusOr<std::vector<std::vector<int64_t>>> Generate(const models::GenerationRequest& request,
                                                           int64_t step, models::Model& model,
                                                           models::ForwardContext& context,
                                                           c10::Device device,
                                                           comm::Communicator& communicator);

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_EVALUATE_GENERATE_H_
