#include "worker/parallel/sharded_ddp/sharded_ddp.h"

#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status.h"
#include "worker/layout/groups.h"
#include "worker/parallel/gradients/sliced_gradients.h"
#include "worker/parallel/gradients/unused_pieces.h"
#include "worker/parallel/model_tensors.h"
#include "worker/parallel/parameter_store.h"
#include "worker/parallel/sharded_ddp/gathered_buckets.h"
#include "worker/parallel/slice_pieces.h"

namespace muster::parallel {
namespace {

std::vector<layout::Group> Buckets(const std::vector<layout::ParameterSpec>& specs, int world_size,
                                   const ShardedDdpOptions& options) {
  return layout::AssignBuckets(
      specs, world_size,
      {.first_bytes = options.first_bucket_bytes, .bytes = options.bucket_bytes});
}

class ShardedDdp : public Strategy {
 public:
  ShardedDdp(const std::vector<models::Parameter>& parameters,
             const std::vector<models::Buffer>& buffers, const models::Unit* root,
             comm::Communicator* communicator, const ShardedDdpOptions& options, KeptMemory kept);

  const std::vector<Piece>& pieces() const override { return pieces_; }
  const std::vector<at::Tensor>& unused() const override { return unused_->flags(); }
  const Plan& plan() const override { return plan_; }
  const ParameterStore& store() const override { return store_; }
  ParameterStore& store() override { return store_; }
  Placements PlacementsFor(const std::vector<bool>& trained) const override {
    const int world_size = communicator_->world_size();
    std::vector<size_t> indices;
    const auto specs = SpecsOf(parameters_, trained, /*trainable=*/true, &indices);
    return {OwnersOf(Buckets(specs, world_size, options_), specs, indices, ElementsOf(parameters_),
                     world_size),
            std::nullopt};
  }
  std::unique_ptr<models::ForwardContext> MakeContext(models::Mode mode,
                                                      at::Generator generator) override {
    auto context = buckets_->MakeContext(mode, std::move(generator));
    context->set_use_observer(gradients_->use_observer());
    return context;
  }

  void BeginStep(const StepStart& start) override {
    step_ = start.step;
    gradients_->BeginStep(start);
    unused_->BeginStep();
  }
  void BeginMicroBatch(bool last) override { gradients_->BeginMicroBatch(last); }
  // No forward follows: FinishBackward sends the gradients of this rank's earlier micro-batches of
  // the step, or zeros.
  void BeginJoinedMicroBatch(bool last) override { gradients_->BeginJoinedMicroBatch(last); }
  absl::Status FinishBackward(const BucketReduced& reduced) override {
    // Waits also for buckets that no forward has waited for: their parameters are about to change.
    absl::Status status = buckets_->Finish();
    // An error of a gather comes first: gathers began earlier, so their error is nearer to the
    // cause.
    status.Update(gradients_->Finish(status.ok() ? unused_->LookBefore(reduced) : nullptr));
    return status;
  }
  absl::StatusOr<at::Tensor> GatherSums(const at::Tensor& mine) override {
    return GatherPieceSums(mine, step_, communicator_);
  }
  void FinishUpdate() override { buckets_->Start(step_); }
  absl::Status AwaitParameters() override { return buckets_->Await(); }
  void RestoreBuffers() override { gradients_->RestoreBuffers(); }
  void RestoreBuffersIf(const at::Tensor& skip) override { gradients_->RestoreBuffersIf(skip); }
  absl::Status VerifyParametersEqual(int64_t step) override {
    RETURN_IF_ERROR(AwaitParameters());
    return CheckModelEqualOnAllRanks(parameters_, buffers_, step, communicator_);
  }
  KeptMemory ReleaseModel() override {
    KeptMemory kept = buckets_->ReleaseModel();
    gradients_.reset();
    pieces_.clear();
    return kept;
  }

 private:
  comm::Communicator* const communicator_;
  const std::vector<models::Parameter> parameters_;
  const std::vector<models::Buffer> buffers_;
  const ShardedDdpOptions options_;
  Plan plan_;
  ReplicatedParameters store_;
  std::optional<GatheredBuckets> buckets_;
  std::unique_ptr<SlicedGradients> gradients_;
  std::vector<Piece> pieces_;
  std::optional<UnusedPieces> unused_;
  int64_t step_ = 0;
};

ShardedDdp::ShardedDdp(const std::vector<models::Parameter>& parameters,
                       const std::vector<models::Buffer>& buffers, const models::Unit* root,
                       comm::Communicator* communicator, const ShardedDdpOptions& options,
                       KeptMemory kept)
    : communicator_(communicator), parameters_(parameters), buffers_(buffers), options_(options) {
  const int world_size = communicator->world_size();
  std::vector<size_t> trainable;
  const std::vector<bool> trained = TrainedOf(parameters);
  const auto specs = SpecsOf(parameters, trained, /*trainable=*/true, &trainable);
  const auto groups = Buckets(specs, world_size, options);
  plan_ = {.sharded = true,
           .owners = PlacementsFor(trained).owners,
           .fingerprint = layout::Fingerprint(groups, specs, world_size),
           .buckets = static_cast<int64_t>(groups.size())};
  buckets_.emplace(parameters, trainable, groups, root, communicator, std::move(kept));
  std::vector<models::Parameter> reduced;
  for (const size_t index : trainable) reduced.push_back(parameters[index]);
  std::vector<std::string> labels;
  while (labels.size() < groups.size()) labels.push_back(absl::StrCat("bucket ", labels.size()));
  gradients_ = std::make_unique<SlicedGradients>(
      std::move(reduced), groups, std::move(labels), buffers, communicator,
      SlicedGradients::Options{options.reduce_every, options.reduce_in_bfloat16});
  std::vector<Slice> slices;
  for (size_t i = 0; i < groups.size(); ++i) {
    slices.push_back({buckets_->own_slice(i), gradients_->slice(i)});
  }
  pieces_ = PiecesOf(groups, specs, trainable, slices, communicator->rank(), world_size);
  unused_.emplace(pieces_, trainable,
                  [this](size_t parameter) { return gradients_->used(parameter); });
}

}  // namespace

absl::StatusOr<std::unique_ptr<Strategy>> CreateShardedDdp(
    const std::vector<models::Parameter>& parameters, const std::vector<models::Buffer>& buffers,
    const models::Unit* root, comm::Communicator* communicator, const ShardedDdpOptions& options,
    KeptMemory kept) {
  RETURN_IF_ERROR(CheckParameters(parameters, communicator->device()));
  RETURN_IF_ERROR(CheckBuffers(buffers, communicator->device()));
  return std::make_unique<ShardedDdp>(parameters, buffers, root, communicator, options,
                                      std::move(kept));
}

}  // namespace muster::parallel
