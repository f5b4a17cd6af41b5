#include "worker/parallel/sharded_ddp/sharded_ddp.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <string>
#include <unordered_map>
#include <utility>

#include "ATen/ops/zeros.h"
#include "absl/strings/str_cat.h"
#include "c10/core/GradMode.h"
#include "common/status/status.h"
#include "worker/layout/groups.h"
#include "worker/memory/memory_scope.h"
#include "worker/models/context_error.h"
#include "worker/parallel/model_tensors.h"
#include "worker/parallel/parameter_hash.h"
#include "worker/parallel/partial_sums.h"
#include "worker/parallel/slice_pieces.h"
#include "worker/parallel/sliced_gradients.h"

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
             comm::Communicator* communicator, const ShardedDdpOptions& options);
  ~ShardedDdp() override;

  const std::vector<Piece>& pieces() const override { return pieces_; }
  bool sharded() const override { return true; }
  layout::Placement owners() const override { return owners_; }
  uint64_t layout_fingerprint() const override { return layout_fingerprint_; }
  int64_t bucket_count() const override { return buckets_.size(); }
  std::unique_ptr<models::ForwardContext> MakeContext(models::Mode mode,
                                                      at::Generator generator) override;

  void BeginStep(const StepStart& start) override;
  void BeginMicroBatch(bool last) override;
  // No forward follows: FinishBackward sends what the rank has brought, or zeros.
  void BeginJoinedMicroBatch(bool last) override { gradients_->BeginJoinedMicroBatch(last); }
  absl::Status FinishBackward() override;
  absl::StatusOr<std::vector<PartialSum>> GatherSums(const PartialSum& mine) override {
    return GatherPartialSums(mine, step_, communicator_);
  }
  void FinishUpdate() override;
  absl::Status AwaitParameters() override;
  void RestoreBuffers() override { gradients_->RestoreBuffers(); }
  absl::Status VerifyParametersEqual(int64_t step) override;
  void ReleaseModel() override;

  // What the unit reads itself, or everything, is there when these return. Throw
  // models::ContextError where it did not arrive: a forward must not go on with anything.
  void AwaitUnit(const models::Unit& unit);
  void AwaitAll();

 private:
  struct Bucket {
    std::vector<size_t> members;  // indices of the model's parameters
    at::Tensor parameters;        // all of them, flat, on every rank
    at::Tensor own_parameters;    // this rank's slice
    std::unique_ptr<comm::Work> gather;
    std::string gather_label;
  };

  void MoveParameters(const std::vector<size_t>& trainable, const layout::Group& group,
                      Bucket* bucket);
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
  std::vector<Bucket> buckets_;
  std::vector<Piece> pieces_;
  layout::Placement owners_;
  uint64_t layout_fingerprint_ = 0;
  std::vector<size_t> gather_order_;  // of the buckets: as forward wants them
  std::unordered_map<const models::Unit*, std::vector<size_t>> buckets_of_unit_;
  std::unique_ptr<SlicedGradients> gradients_;

  int64_t step_ = 0;
  int64_t gathering_ = 0;  // buckets
  absl::Status error_;     // the first, of gathers
};

// Waits for the parameters of a unit before it runs, and for all of them after the root: a loss on
// top may read any.
class AwaitingContext : public models::ForwardContext {
 public:
  AwaitingContext(models::Mode mode, at::Generator generator, const models::Unit* root,
                  ShardedDdp* strategy)
      : models::ForwardContext(mode, std::move(generator)), root_(root), strategy_(strategy) {}
  at::Tensor Call(models::Unit& unit, const at::Tensor& x) override {
    strategy_->AwaitUnit(unit);
    at::Tensor y = models::ForwardContext::Call(unit, x);
    if (&unit == root_) strategy_->AwaitAll();
    return y;
  }

 private:
  const models::Unit* const root_;
  ShardedDdp* const strategy_;
};

ShardedDdp::ShardedDdp(const std::vector<models::Parameter>& parameters,
                       const std::vector<models::Buffer>& buffers, const models::Unit* root,
                       comm::Communicator* communicator, const ShardedDdpOptions& options)
    : communicator_(communicator), root_(root), parameters_(parameters), buffers_(buffers) {
  std::vector<size_t> trainable;
  const auto specs = TrainableSpecs(parameters, &trainable);
  auto groups = Buckets(specs, communicator->world_size(), options);
  layout_fingerprint_ = layout::Fingerprint(groups, specs, communicator->world_size());
  std::vector<std::string> labels;
  for (const layout::Group& group : groups) {
    labels.push_back(absl::StrCat("bucket ", labels.size()));
    Bucket bucket;
    bucket.gather_label = absl::StrCat("parameters of ", labels.back());
    MoveParameters(trainable, group, &bucket);
    buckets_.push_back(std::move(bucket));
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
  std::vector<int64_t> elements;
  for (const auto& [name, tensor] : parameters) elements.push_back(tensor.numel());
  pieces_ =
      PiecesOf(groups, specs, trainable, slices, communicator->rank(), communicator->world_size());
  owners_ = OwnersOf(groups, specs, trainable, std::move(elements), communicator->world_size());
}

ShardedDdp::~ShardedDdp() {
  gradients_.reset();  // waits
  for (Bucket& bucket : buckets_) bucket.gather.reset();
}

void ShardedDdp::MoveParameters(const std::vector<size_t>& trainable, const layout::Group& group,
                                Bucket* bucket) {
  c10::NoGradGuard no_grad;
  const at::TensorOptions options(ScalarTypeOf(group.type));
  const int64_t slice = layout::SliceElements(group, communicator_->world_size());
  {
    const MemoryScope scope(Purpose::kParameters);
    bucket->parameters = at::zeros({group.elements}, options);
  }
  bucket->own_parameters = bucket->parameters.narrow(0, communicator_->rank() * slice, slice);
  for (const layout::Group::Member& member : group.members) {
    at::Tensor tensor = parameters_[trainable[member.parameter]].tensor;
    const at::Tensor place =
        bucket->parameters.narrow(0, member.offset, tensor.numel()).view(tensor.sizes());
    if (tensor.numel() > 0) {
      std::memcpy(place.mutable_data_ptr(), tensor.const_data_ptr(), tensor.nbytes());
    }
    tensor.set_data(place);
    bucket->members.push_back(trainable[member.parameter]);
  }
}

void ShardedDdp::ReleaseModel() {
  const c10::NoGradGuard no_grad;
  gradients_.reset();
  pieces_.clear();
  for (Bucket& bucket : buckets_) {
    AwaitGather(bucket);
    // One bucket's parameters are there twice at a time.
    const MemoryScope scope(Purpose::kParameters);
    for (const size_t index : bucket.members) {
      at::Tensor tensor = parameters_[index].tensor;
      tensor.set_data(tensor.detach().clone());
    }
    bucket.parameters.reset();
    bucket.own_parameters.reset();
  }
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
}

void ShardedDdp::BeginMicroBatch(bool last) { gradients_->BeginMicroBatch(last); }

absl::Status ShardedDdp::FinishBackward() {
  // A gather was begun before, and tells more.
  const absl::Status reduced = gradients_->Finish();
  // What no forward has asked for: it is about to change.
  for (Bucket& bucket : buckets_) AwaitGather(bucket);
  Note(reduced);
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

layout::Placement OwnersUnderShardedDdp(const std::vector<models::Parameter>& parameters,
                                        int world_size, const ShardedDdpOptions& options) {
  std::vector<size_t> trainable;
  const auto specs = TrainableSpecs(parameters, &trainable);
  std::vector<int64_t> elements;
  for (const auto& [name, tensor] : parameters) elements.push_back(tensor.numel());
  return OwnersOf(Buckets(specs, world_size, options), specs, trainable, std::move(elements),
                  world_size);
}

absl::StatusOr<std::unique_ptr<Strategy>> CreateShardedDdp(
    const std::vector<models::Parameter>& parameters, const std::vector<models::Buffer>& buffers,
    const models::Unit* root, comm::Communicator* communicator, const ShardedDdpOptions& options) {
  RETURN_IF_ERROR(CheckParameters(parameters));
  RETURN_IF_ERROR(CheckBuffers(buffers));
  return std::make_unique<ShardedDdp>(parameters, buffers, root, communicator, options);
}

}  // namespace muster::parallel
