// Continues prompts with the model that the ranks train, between two steps and without effect on
// training: no gradients, no buckets, no randomness of the ranks' generators, no buffer changes,
// and the context's mode is what it was.
#ifndef MUSTER_WORKER_TRAIN_EVALUATE_GENERATE_H_
#define MUSTER_WORKER_TRAIN_EVALUATE_GENERATE_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "c10/core/Device.h"
#include "worker/comm/communicator.h"
#include "worker/models/generate.h"
#include "worker/models/model.h"
#include "worker/train/evaluate/evaluation_scope.h"
#include "worker/train/reports/outside.h"

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

// How commands ask the model to continue a prompt.
class Generator {
 public:
  virtual ~Generator() = default;

  // FAILED_PRECONDITION: the model cannot generate. INVALID_ARGUMENT: the request does not fit it.
  virtual absl::Status CheckSample(const v1::SampleCommand& sample) const = 0;
  // The new tokens, or an error that all ranks have and that need not end the session.
  using SampleMade = absl::StatusOr<Sampled>;
  // A collective: continues a prompt that CheckSample allows.
  virtual absl::StatusOr<SampleMade> Sample(const v1::SampleCommand& sample) = 0;
};

// How a session continues prompts, for stages `predict` and for commands.
// Threading: the session's thread.
class SessionGenerator : public Generator {
 public:
  explicit SessionGenerator(const ForwardParts& parts) : parts_(parts) {}

  // A collective, as train::Generate.
  absl::StatusOr<std::vector<std::vector<int64_t>>> Generate(
      const models::GenerationRequest& request);

  absl::Status CheckSample(const v1::SampleCommand& sample) const override;
  absl::StatusOr<SampleMade> Sample(const v1::SampleCommand& sample) override;

 private:
  const ForwardParts parts_;
};

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_EVALUATE_GENERATE_H_
