#include "worker/parallel/sharded_ddp/sharded_ddp.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "c10/core/GradMode.h"
#include "common/status/status.h"
#include "worker/layout/groups.h"
#include "worker/memory/memory_scope.h"
#include "worker/models/context_error.h"
#include "worker/parallel/in_place.h"
#include "worker/parallel/model_tensors.h"
#include "worker/parallel/parameter_hash.h"
#include "worker/parallel/gradients/partial_sums.h"
#include "worker/parallel/slice_pieces.h"
#include "worker/parallel/gradients/sliced_gradients.h"
#include "worker/parallel/gradients/unused_pieces.h"

namespace muster::parallel {
namespace {

using memory::MemoryScope;
using memory::Purpose;

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
  ~ShardedDdp() override;

  const std::vector<Piece>& pieces() const override { return pieces_; }
  const std::vector<at::Tensor>& unused() const override { return unused_->flags(); }
  bool sharded() const override { return true; }
  layout::Placement owners() const override { return owners_; }
  Placements PlacementsFor(const std::vector<bool>& trained) const override;
  uint64_t layout_fingerprint() const override { return layout_fingerprint_; }
  int64_t bucket_count() const override { return buckets_.size(); }
  std::unique_ptr<models::ForwardContext> MakeContext(models::Mode mode,
                                                      at::Generator generator) override;

  void BeginStep(const StepStart& start) override;
  void BeginMicroBatch(bool last) override;
  // No forward follows: FinishBackward sends the gradients of the rank's earlier micro-batches of
  // this step, or zeros.
  void BeginJoinedMicroBatch(bool last) override { gradients_->BeginJoinedMicroBatch(last); }
  absl::Status FinishBackward(const BucketReduced& reduced) override;
  absl::StatusOr<at::Tensor> GatherSums(const at::Tensor& mine) override {
    return GatherPartialSums(mine, step_, communicator_);
  }
  void FinishUpdate() override;
  absl::Status AwaitParameters() override;
  void RestoreBuffers() override { gradients_->RestoreBuffers(); }
  void RestoreBuffersIf(const at::Tensor& skip) override { gradients_->RestoreBuffersIf(skip); }
  absl::Status VerifyParametersEqual(int64_t step) override;
  KeptMemory ReleaseModel() override;

  // Wait until the unit's own parameters, or all of them, have arrived. They throw
  // models::ContextError if a parameter did not arrive, because the forward must not go on then.
  void AwaitUnit(const models::Unit& unit);
  void AwaitAll();

 private:
  struct Bucket {
    at::Tensor parameters;      // the whole bucket, on every rank
    at::Tensor own_parameters;  // this rank's slice of it
    std::unique_ptr<comm::Work> gather;
    std::string gather_label;
  };

  // Returns the memory of each group, with its parameters in it. A group whose parameters already
  // lie in `kept` as it wants them stays there.
  std::vector<at::Tensor> PlaceParameters(const std::vector<layout::Group>& groups,
                                          const std::vector<size_t>& trainable, KeptMemory kept);
  void PlanGathers(const models::Unit* root, const std::vector<layout::Group>& groups,
                   const std::vector<size_t>& trainable);

  void AwaitGather(Bucket& bucket);
  void Note(const absl::Status& status) {
    if (error_.ok()) error_ = status;
  }

  comm::Communicator* const communicator_;
  const models::Unit* const root_;
  const std::vector<models::Parameter> parameters_;
  const std::vector<models::Buffer> buffers_;
  const ShardedDdpOptions options_;
  // The memory of the parameters. A frozen parameter lies there only if it was in a bucket of an
  // earlier plan.
  std::vector<at::Tensor> flats_;
  std::vector<Bucket> buckets_;
  std::vector<Piece> pieces_;
  layout::Placement owners_;
  uint64_t layout_fingerprint_ = 0;
  std::vector<size_t> gather_order_;  // the buckets in the order in which forward needs them
  std::unordered_map<const models::Unit*, std::vector<size_t>> buckets_of_unit_;
  std::unique_ptr<SlicedGradients> gradients_;
  std::optional<UnusedPieces> unused_;

  int64_t step_ = 0;
  int64_t gathering_ = 0;  // number of buckets whose gather is in flight
  absl::Status error_;     // of the first gather that failed
};

// Waits for the parameters of a unit before it runs, and for all parameters after the root, because
// a loss that is computed from the root's output may read any of them.
class AwaitingContext : public models::ForwardContext {
 public:
  AwaitingContext(models::Mode mode, at::Generator generator, const models::Unit* root,
                  ShardedDdp* strategy)
      : models::ForwardContext(mode, std::move(generator)), root_(root), strategy_(strategy) {}
  models::Tensors CallMany(models::Unit& unit, const models::Tensors& inputs) override {
    strategy_->AwaitUnit(unit);
    models::Tensors outputs = models::ForwardContext::CallMany(unit, inputs);
    if (&unit == root_) strategy_->AwaitAll();
    return outputs;
  }

 private:
  const models::Unit* const root_;
  ShardedDdp* const strategy_;
};

ShardedDdp::ShardedDdp(const std::vector<models::Parameter>& parameters,
                       const std::vector<models::Buffer>& buffers, const models::Unit* root,
                       comm::Communicator* communicator, const ShardedDdpOptions& options,
                       KeptMemory kept)
    : communicator_(communicator),
      root_(root),
      parameters_(parameters),
      buffers_(buffers),
      options_(options) {
  std::vector<size_t> trainable;
  const std::vector<bool> trained = TrainedOf(parameters);
  owners_ = PlacementsFor(trained).owners;
  const auto specs = TrainableSpecs(parameters, trained, &trainable);
  auto groups = Buckets(specs, communicator->world_size(), options);
  layout_fingerprint_ = layout::Fingerprint(groups, specs, communicator->world_size());
  std::vector<std::string> labels;
  for (at::Tensor& flat : PlaceParameters(groups, trainable, std::move(kept))) {
    labels.push_back(absl::StrCat("bucket ", labels.size()));
    const int64_t slice = flat.numel() / communicator->world_size();
    const at::Tensor own = flat.narrow(0, communicator->rank() * slice, slice);
    buckets_.push_back(
        {std::move(flat), own, nullptr, absl::StrCat("parameters of ", labels.back())});
  }
  PlanGathers(root, groups, trainable);
  std::vector<models::Parameter> reduced;
  for (const size_t index : trainable) reduced.push_back(parameters[index]);
  gradients_ = std::make_unique<SlicedGradients>(
      std::move(reduced), groups, std::move(labels), buffers, communicator,
      SlicedGradients::Options{options.reduce_every, options.reduce_in_bfloat16});
  std::vector<Slice> slices;
  for (size_t i = 0; i < buckets_.size(); ++i) {
    slices.push_back({buckets_[i].own_parameters, gradients_->slice(i)});
  }
  pieces_ =
      PiecesOf(groups, specs, trainable, slices, communicator->rank(), communicator->world_size());
  unused_.emplace(pieces_, trainable,
                  [this](size_t parameter) { return gradients_->used(parameter); });
}

ShardedDdp::~ShardedDdp() {
  gradients_.reset();  // waits for reductions in flight
  for (Bucket& bucket : buckets_) bucket.gather.reset();
}

std::vector<at::Tensor> ShardedDdp::PlaceParameters(const std::vector<layout::Group>& groups,
                                                    const std::vector<size_t>& trainable,
                                                    KeptMemory kept) {
  const c10::NoGradGuard no_grad;
  const MemoryScope scope(Purpose::kParameters);
  std::vector<at::Tensor> tensors;
  for (const auto& [name, tensor] : parameters_) tensors.push_back(tensor);
  std::vector<WantedGroup> wanted;
  for (const layout::Group& group : groups) {
    wanted.push_back({.elements = group.elements,
                      .type = ScalarTypeOf(group.type),
                      .device = communicator_->device()});
    for (const layout::Group::Member& member : group.members) {
      const size_t index = trainable[member.parameter];
      wanted.back().members.push_back(
          {static_cast<int64_t>(index), member.offset, tensors[index].numel()});
    }
  }
  InPlace in_place = FindInPlace(kept.flats, tensors, wanted, Unwanted::kStays);
  kept = {};  // so that a flat is freed as soon as the last parameter has left it
  flats_ = std::move(in_place.flats);
  for (const size_t index : in_place.displaced) {
    tensors[index].set_data(tensors[index].detach().clone());
  }
  for (size_t i = 0; i < groups.size(); ++i) {
    at::Tensor& flat = in_place.groups[i];
    if (flat.defined()) continue;
    flat = NewFlat(wanted[i]);
    MoveInto(flat, wanted[i], tensors);
    flats_.push_back(flat);
  }
  return std::move(in_place.groups);
}

KeptMemory ShardedDdp::ReleaseModel() {
  for (Bucket& bucket : buckets_) AwaitGather(bucket);
  gradients_.reset();
  pieces_.clear();
  buckets_.clear();
  return {.flats = std::move(flats_), .held = {}};
}

Placements ShardedDdp::PlacementsFor(const std::vector<bool>& trained) const {
  const int world_size = communicator_->world_size();
  std::vector<size_t> indices;
  const auto specs = TrainableSpecs(parameters_, trained, &indices);
  return {OwnersOf(Buckets(specs, world_size, options_), specs, indices, ElementsOf(parameters_),
                   world_size),
          std::nullopt};
}

void ShardedDdp::PlanGathers(const models::Unit* root, const std::vector<layout::Group>& groups,
                             const std::vector<size_t>& trainable) {
  std::unordered_map<const void*, size_t> bucket_of;  // by parameter
  for (size_t i = 0; i < groups.size(); ++i) {
    for (const layout::Group::Member& member : groups[i].members) {
      bucket_of[parameters_[trainable[member.parameter]].tensor.unsafeGetTensorImpl()] = i;
    }
  }
  std::vector<bool> planned(groups.size());
  const auto plan = [&](size_t bucket) {
    if (!planned[bucket]) gather_order_.push_back(bucket);
    planned[bucket] = true;
  };
  const std::function<void(const models::Unit&)> visit = [&](const models::Unit& unit) {
    std::vector<size_t>& buckets = buckets_of_unit_[&unit];
    for (const auto& parameter : unit.own_parameters()) {
      const auto found = bucket_of.find(parameter.tensor.unsafeGetTensorImpl());
      if (found == bucket_of.end()) continue;  // frozen
      if (std::find(buckets.begin(), buckets.end(), found->second) != buckets.end()) continue;
      buckets.push_back(found->second);
      plan(found->second);
    }
    for (const auto& child : unit.children()) visit(*child);
  };
  if (root != nullptr) visit(*root);
  for (size_t i = groups.size(); i-- > 0;) plan(i);
}

std::unique_ptr<models::ForwardContext> ShardedDdp::MakeContext(models::Mode mode,
                                                                at::Generator generator) {
  auto context = std::make_unique<AwaitingContext>(mode, std::move(generator), root_, this);
  context->set_use_observer(gradients_->use_observer());
  return context;
}

void ShardedDdp::BeginStep(const StepStart& start) {
  step_ = start.step;
  gradients_->BeginStep(start);
  unused_->BeginStep();
}

void ShardedDdp::BeginMicroBatch(bool last) { gradients_->BeginMicroBatch(last); }

absl::Status ShardedDdp::FinishBackward(const BucketReduced& reduced) {
  // Also the buckets that no forward has waited for: their parameters are about to change.
  for (Bucket& bucket : buckets_) AwaitGather(bucket);
  // Noted after the gathers: they were begun earlier, so their error is nearer to the cause.
  Note(gradients_->Finish(error_.ok() ? unused_->LookBefore(reduced) : nullptr));
  return std::exchange(error_, absl::OkStatus());
}

void ShardedDdp::FinishUpdate() {
  if (communicator_->world_size() == 1) return;
  for (const size_t index : gather_order_) {
    Bucket& bucket = buckets_[index];
    bucket.gather = communicator_->AllGather(bucket.parameters, bucket.own_parameters,
                                             {bucket.gather_label.c_str(), step_});
    ++gathering_;
  }
}

void ShardedDdp::AwaitGather(Bucket& bucket) {
  if (bucket.gather == nullptr) return;
  Note(bucket.gather->Wait());
  bucket.gather.reset();
  --gathering_;
}

void ShardedDdp::AwaitUnit(const models::Unit& unit) {
  if (gathering_ == 0) return;
  const auto found = buckets_of_unit_.find(&unit);
  if (found == buckets_of_unit_.end()) return AwaitAll();
  for (const size_t bucket : found->second) AwaitGather(buckets_[bucket]);
  if (!error_.ok()) throw models::ContextError(error_);
}

void ShardedDdp::AwaitAll() {
  if (gathering_ == 0) return;
  if (const absl::Status status = AwaitParameters(); !status.ok())
    throw models::ContextError(status);
}

absl::Status ShardedDdp::AwaitParameters() {
  for (const size_t bucket : gather_order_) AwaitGather(buckets_[bucket]);
  return error_;
}

absl::Status ShardedDdp::VerifyParametersEqual(int64_t step) {
  RETURN_IF_ERROR(AwaitParameters());
  return CheckModelEqualOnAllRanks(parameters_, buffers_, step, communicator_);
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
