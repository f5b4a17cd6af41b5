// Continues prompts with the model in training, between two steps and without effect on training.
// There are no gradients, no buckets and no buffer changes. The ranks' generators do not advance,
// and the context gets its former mode back.
#ifndef MUSTER_WORKER_TRAIN_EVALUATE_GENERATE_H_
#define MUSTER_WORKER_TRAIN_EVALUATE_GENERATE_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "c10/core/Device.h"
#include "worker/comm/communicator.h"
#include "worker/models/language/generate.h"
#include "worker/models/model.h"
#include "worker/train/evaluate/evaluation_scope.h"
#include "worker/train/evaluate/text_coder.h"
#include "worker/train/reports/coordinator_interface.h"

namespace muster::train {

// Returns the new tokens of all prompts, on every rank. A collective after AwaitParameters of the
// strategy: all ranks make the same call at the same point. Batch i of prompts (models::BatchesOf)
// runs on rank i modulo the world size. If forwards need all ranks (fsdp), a rank without a batch
// runs forwards of one token. With equal parameters, the tokens are bitwise those of one rank, for
// every strategy and world size.
// - `step`: the training's step, for errors of the communicator.
// - `device`: the model's. The communicator is for tensors on the CPU.
// - Precision: the caller's autocast scope.
// - Memory: that of models::GenerateBatch, and 8 bytes for each new token of all prompts until
//   Generate returns.
// - Errors: models::CheckGeneration's, before anything runs; FAILED_PRECONDITION on all ranks, with
//   the prompt's number, if logits are not finite; the communicator's.
// - Exceptions: those of forwards (unit.h).
absl::StatusOr<std::vector<std::vector<int64_t>>> Generate(const models::GenerationRequest& request,
                                                           int64_t step, models::Model& model,
                                                           models::ForwardContext& context,
                                                           c10::Device device,
                                                           comm::Communicator& communicator);

// The interface through which commands ask the model to continue a prompt.
class Generator {
 public:
  virtual ~Generator() = default;

  // The request of a command, or an error that all ranks have: those of TextCoder if the prompt is
  // a text, FAILED_PRECONDITION if the model cannot generate, INVALID_ARGUMENT if the request does
  // not fit. A collective.
  using Prepared = absl::StatusOr<models::GenerationRequest>;
  virtual absl::StatusOr<Prepared> Prepare(const v1::SampleCommand& sample) = 0;
  // The new tokens, or an error that all ranks have. Such an error need not end the session.
  using SampleMade = absl::StatusOr<Sampled>;
  // Continues the prompt of a prepared request. A collective.
  virtual absl::StatusOr<SampleMade> Sample(const models::GenerationRequest& request) = 0;
};

// Continues prompts for stages `predict` and for commands. Threading: the session's thread.
class SessionGenerator : public Generator {
 public:
  explicit SessionGenerator(const ForwardDependencies& deps)
      : deps_(deps), texts_(deps.job->spec.model()) {}

  // Calls train::Generate. A collective.
  absl::StatusOr<std::vector<std::vector<int64_t>>> Generate(
      const models::GenerationRequest& request);

  // The text of tokens, on rank 0; nullopt if the model has no tokenizer that Muster reads.
  std::optional<std::string> TextOf(const std::vector<int64_t>& tokens) {
    return texts_.TextOf(tokens);
  }

  absl::StatusOr<Prepared> Prepare(const v1::SampleCommand& sample) override;
  // The request for the prompt of a fit stage. Besides the errors of the other Prepare, those of
  // the file with the document. A collective.
  absl::StatusOr<Prepared> Prepare(const FitSample& sample);
  absl::StatusOr<SampleMade> Sample(const models::GenerationRequest& request) override;

 private:
  // Returns the tokens that rank 0 has found on all ranks, or an error that all ranks have. A
  // collective.
  using Tokens = absl::StatusOr<std::vector<int64_t>>;
  absl::StatusOr<Tokens> OfRankZero(const std::function<Tokens()>& find);
  Prepared Checked(models::GenerationRequest request) const;

  const ForwardDependencies deps_;
  TextCoder texts_;  // used by rank 0 alone
};

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_EVALUATE_GENERATE_H_
