#include "worker/parallel/sharded_ddp/sharded_ddp.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <string>
#include <unordered_map>
#include <utility>

#include "ATen/ops/empty.h"
#include "ATen/ops/zeros.h"
#include "absl/strings/str_cat.h"
#include "c10/core/GradMode.h"
#include "common/status/status.h"
#include "worker/layout/groups.h"
#include "worker/memory/memory_scope.h"
#include "worker/models/context_error.h"
#include "worker/parallel/buffer_sync.h"
#include "worker/parallel/gradient_buckets.h"
#include "worker/parallel/model_tensors.h"
#include "worker/parallel/parameter_hash.h"

namespace muster::parallel {
namespace {

using memory::MemoryScope;
using memory::Purpose;

// Buckets whose reduction is under way. Two keep the connection busy; each holds its full-size gradients.
constexpr size_t kMostReducing = 2;

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

  void BeginStep(int64_t step, double divisor) override;
  void BeginMicroBatch(bool last) override;
  absl::Status FinishBackward() override;
  absl::StatusOr<std::vector<PartialSum>> GatherSums(const PartialSum& mine) override;
  void FinishUpdate() override;
  absl::Status AwaitParameters() override;
  void RestoreBuffers() override { buffer_sync_.Restore(); }
  absl::Status VerifyParametersEqual(int64_t step) override;

  // What the unit reads itself, or everything, is there when these return. Throw models::ContextError where it did not
  // arrive: a forward must not go on with anything.
  void AwaitUnit(const models::Unit& unit);
  void AwaitAll();

 private:
  struct Bucket {
    at::Tensor parameters;      // all of them, flat, on every rank
    at::Tensor own_parameters;  // this rank's slice
    at::Tensor own_gradients;   // the reduced gradients of that slice
    std::unique_ptr<comm::Work> gather;
    std::string label;
    std::string gather_label;
  };
  struct Reduction {
    size_t bucket = 0;
    at::Tensor sum;  // where it is to be added to what earlier micro-batches gave; else undefined
    std::unique_ptr<comm::Work> work;
  };

  void MoveParameters(const std::vector<size_t>& trainable, const layout::Group& group,
                      Bucket* bucket);
  void MakePieces(const std::vector<layout::ParameterSpec>& specs,
                  const std::vector<layout::Group>& groups, const std::vector<size_t>& trainable);
  void PlanGathers(const models::Unit* root, const std::vector<layout::Group>& groups,
                   const std::vector<size_t>& trainable);

  void Reduce(size_t bucket, at::Tensor flat);
  void AwaitOldestReduction();
  void AwaitGather(Bucket& bucket);
  void SendBuffers();
  void Note(const absl::Status& status) {
    if (error_.ok()) error_ = status;
  }

  comm::Communicator* const communicator_;
  const models::Unit* const root_;
  const std::vector<models::Parameter> parameters_;
  const std::vector<models::Buffer> buffers_;
  const ShardedDdpOptions options_;
  std::vector<Bucket> buckets_;
  std::vector<Piece> pieces_;
  layout::Placement owners_;
  uint64_t layout_fingerprint_ = 0;
  std::vector<size_t> gather_order_;  // of the buckets: as forward wants them
  std::unordered_map<const models::Unit*, std::vector<size_t>> buckets_of_unit_;
  BufferSync buffer_sync_;
  std::unique_ptr<GradientBuckets> gradients_;

  // This step's.
  int64_t step_ = 0;
  double divisor_ = 1.0;
  int64_t micro_batches_ = 0;  // begun
  bool last_ = false;          // in the last of them
  bool buffers_launched_ = false;
  std::deque<Reduction> reducing_;
  int64_t gathering_ = 0;  // buckets
  absl::Status error_;     // the first, of anything that was waited for
};

// Waits for the parameters of a unit before it runs, and for all of them after the root: a loss on top may read any.
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
    : communicator_(communicator),
      root_(root),
      parameters_(parameters),
      buffers_(buffers),
      options_(options),
      buffer_sync_(TensorsOf(buffers), communicator) {
  std::vector<size_t> trainable;
  const auto specs = TrainableSpecs(parameters, &trainable);
  auto groups = layout::AssignBuckets(
      specs, communicator->world_size(),
      {.first_bytes = options.first_bucket_bytes, .bytes = options.bucket_bytes});
  layout_fingerprint_ = layout::Fingerprint(groups, specs, communicator->world_size());
  for (const layout::Group& group : groups) {
    Bucket bucket;
    bucket.label = absl::StrCat("bucket ", buckets_.size());
    bucket.gather_label = absl::StrCat("parameters of bucket ", buckets_.size());
    MoveParameters(trainable, group, &bucket);
    buckets_.push_back(std::move(bucket));
  }
  MakePieces(specs, groups, trainable);
  PlanGathers(root, groups, trainable);
  std::vector<models::Parameter> reduced;
  for (const size_t index : trainable) reduced.push_back(parameters[index]);
  gradients_ = std::make_unique<GradientBuckets>(
      std::move(reduced), std::move(groups), GradientBuckets::Memory::kHandedOver,
      [this](size_t bucket, at::Tensor flat) { Reduce(bucket, std::move(flat)); },
      absl::StrCat("rank ", communicator->rank()));
}

ShardedDdp::~ShardedDdp() {
  reducing_.clear();  // waits
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
  bucket->own_parameters =
      bucket->parameters.narrow(0, communicator_->rank() * slice, slice);
  {
    const MemoryScope scope(Purpose::kGradients);
    bucket->own_gradients = at::zeros({slice}, options);
  }
  for (const layout::Group::Member& member : group.members) {
    at::Tensor tensor = parameters_[trainable[member.parameter]].tensor;
    const at::Tensor place =
        bucket->parameters.narrow(0, member.offset, tensor.numel()).view(tensor.sizes());
    if (tensor.numel() > 0) {
      std::memcpy(place.mutable_data_ptr(), tensor.const_data_ptr(), tensor.nbytes());
    }
    tensor.set_data(place);
  }
}

void ShardedDdp::MakePieces(const std::vector<layout::ParameterSpec>& specs,
                            const std::vector<layout::Group>& groups,
                            const std::vector<size_t>& trainable) {
  const auto add = [this](size_t parameter, int64_t begin, const Bucket& bucket, int64_t offset,
                          int64_t elements) {
    pieces_.push_back({.parameter = parameter,
                       .begin = begin,
                       .tensor = bucket.own_parameters.narrow(0, offset, elements)});
    pieces_.back().tensor.mutable_grad() = bucket.own_gradients.narrow(0, offset, elements);
  };
  for (size_t i = 0; i < groups.size(); ++i) {
    for (const layout::Range& range : layout::RangesOf(groups[i], specs, communicator_->rank(),
                                                       communicator_->world_size())) {
      add(trainable[range.parameter], range.begin, buckets_[i], range.offset,
          range.end - range.begin);
    }
    if (communicator_->rank() != 0) continue;
    for (const layout::Group::Member& member : groups[i].members) {
      if (specs[member.parameter].elements == 0) add(trainable[member.parameter], 0, buckets_[i], 0, 0);
    }
  }
  std::sort(pieces_.begin(), pieces_.end(),
            [](const Piece& a, const Piece& b) { return a.parameter < b.parameter; });
  owners_ = layout::Sharded(groups, specs, communicator_->world_size());
  for (auto& ranges : owners_.holders) {
    for (layout::Range& range : ranges) {
      range.parameter = static_cast<int64_t>(trainable[range.parameter]);
    }
  }
  owners_.elements.clear();
  for (const auto& [name, tensor] : parameters_) owners_.elements.push_back(tensor.numel());
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
  return std::make_unique<AwaitingContext>(mode, std::move(generator), root_, this);
}

void ShardedDdp::BeginStep(int64_t step, double divisor) {
  reducing_.clear();  // of a step that failed; waits
  step_ = step;
  divisor_ = divisor;
  micro_batches_ = 0;
  last_ = false;
  buffers_launched_ = false;
  gradients_->BeginStep(step);
  buffer_sync_.BeginStep();
}

void ShardedDdp::BeginMicroBatch(bool last) {
  const bool each = options_.reduce_every == ShardedDdpOptions::ReduceEvery::kMicroBatch;
  if (each && micro_batches_ > 0) Note(gradients_->Finish());
  ++micro_batches_;
  last_ = last;
  gradients_->BeginPass(/*completes=*/each || last);
}

void ShardedDdp::Reduce(size_t bucket, at::Tensor flat) {
  if (last_) SendBuffers();  // the forwards of this step are done
  while (reducing_.size() >= kMostReducing) AwaitOldestReduction();
  const MemoryScope scope(Purpose::kBuckets);
  if (options_.reduce_in_bfloat16 && flat.scalar_type() == at::kFloat) {
    c10::NoGradGuard no_grad;
    flat = flat.to(at::kBFloat16);
  }
  Reduction reduction{.bucket = bucket};
  at::Tensor out = buckets_[bucket].own_gradients;
  if (options_.reduce_every == ShardedDdpOptions::ReduceEvery::kMicroBatch && micro_batches_ > 1) {
    out = reduction.sum = at::empty(out.sizes(), out.options());
  }
  // The work alone keeps the full-size gradients, no longer than they are sent.
  reduction.work = communicator_->ReduceScatterSum(
      out, flat, {buckets_[bucket].label.c_str(), step_}, divisor_);
  reducing_.push_back(std::move(reduction));
}

void ShardedDdp::AwaitOldestReduction() {
  const Reduction reduction = std::move(reducing_.front());
  reducing_.pop_front();
  const absl::Status status = reduction.work->Wait();
  Note(status);
  if (!status.ok() || !reduction.sum.defined()) return;
  c10::NoGradGuard no_grad;
  buckets_[reduction.bucket].own_gradients.add_(reduction.sum);
}

void ShardedDdp::SendBuffers() {
  if (std::exchange(buffers_launched_, true)) return;
  // Every rank is active in every step: the highest is the last.
  buffer_sync_.Launch(communicator_->world_size() - 1, step_);
}

absl::Status ShardedDdp::FinishBackward() {
  const absl::Status collected = gradients_->Finish();
  // What went wrong before tells more.
  Note(collected);
  if (collected.ok()) SendBuffers();
  while (!reducing_.empty()) AwaitOldestReduction();
  Note(buffer_sync_.Finish());
  // What no forward has asked for: it is about to change.
  for (Bucket& bucket : buckets_) AwaitGather(bucket);
  return std::exchange(error_, absl::OkStatus());
}

absl::StatusOr<std::vector<PartialSum>> ShardedDdp::GatherSums(const PartialSum& mine) {
  const at::TensorOptions options(at::kDouble);
  const at::Tensor in = at::empty({2}, options);
  const at::Tensor out = at::empty({2 * communicator_->world_size()}, options);
  std::memcpy(in.mutable_data_ptr(), mine.data(), sizeof(mine));
  RETURN_IF_ERROR(communicator_->AllGather(out, in, {"gradient sums", step_})->Wait());
  std::vector<PartialSum> sums(communicator_->world_size());
  std::memcpy(sums.data(), out.const_data_ptr(), sums.size() * sizeof(mine));
  return sums;
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
  if (const absl::Status status = AwaitParameters(); !status.ok()) throw models::ContextError(status);
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
    const models::Unit* root, comm::Communicator* communicator, const ShardedDdpOptions& options) {
  RETURN_IF_ERROR(CheckParameters(parameters));
  RETURN_IF_ERROR(CheckBuffers(buffers));
  if (options.bucket_bytes <= 0 || options.first_bucket_bytes <= 0) {
    return absl::InvalidArgumentError("bucket sizes must be above 0 bytes");
  }
  return std::make_unique<ShardedDdp>(parameters, buffers, root, communicator, options);
}

}  // namespace muster::parallel
