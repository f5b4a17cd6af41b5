#include "worker/parallel/sharded_ddp/gathered_buckets.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "c10/core/GradMode.h"
#include "worker/memory/memory_scope.h"
#include "worker/parallel/in_place.h"
#include "worker/parallel/model_tensors.h"

namespace muster::parallel {

// Waits for the parameters of a unit before the unit runs, and for all parameters after the root. A
// loss that is computed from the root's output may read any parameter.
class GatheredBuckets::AwaitingContext : public models::ForwardContext {
 public:
  AwaitingContext(models::Mode mode, at::Generator generator, GatheredBuckets* buckets)
      : models::ForwardContext(mode, std::move(generator)), buckets_(buckets) {}
  models::Tensors CallMany(models::Unit& unit, const models::Tensors& inputs) override {
    buckets_->AwaitUnit(unit);
    models::Tensors outputs = models::ForwardContext::CallMany(unit, inputs);
    if (&unit == buckets_->root_) buckets_->AwaitAll();
    return outputs;
  }

 private:
  GatheredBuckets* const buckets_;
};

GatheredBuckets::GatheredBuckets(const std::vector<models::Parameter>& parameters,
                                 const std::vector<size_t>& trainable,
                                 const std::vector<layout::Group>& groups, const models::Unit* root,
                                 comm::Communicator* communicator, KeptMemory kept)
    : communicator_(communicator), root_(root) {
  for (at::Tensor& flat : PlaceParameters(parameters, trainable, groups, std::move(kept))) {
    const int64_t slice = flat.numel() / communicator->world_size();
    const at::Tensor own = flat.narrow(0, communicator->rank() * slice, slice);
    buckets_.push_back(
        {std::move(flat), own, nullptr, absl::StrCat("parameters of bucket ", buckets_.size())});
  }
  PlanGathers(parameters, trainable, groups);
}

GatheredBuckets::~GatheredBuckets() {
  for (Bucket& bucket : buckets_) bucket.gather.reset();
}

std::vector<at::Tensor> GatheredBuckets::PlaceParameters(
    const std::vector<models::Parameter>& parameters, const std::vector<size_t>& trainable,
    const std::vector<layout::Group>& groups, KeptMemory kept) {
  const c10::NoGradGuard no_grad;
  const memory::MemoryScope scope(memory::Purpose::kParameters);
  std::vector<at::Tensor> tensors;
  for (const auto& [name, tensor] : parameters) tensors.push_back(tensor);
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
  kept = {};  // so that a flat is freed when the last parameter has left it
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

void GatheredBuckets::PlanGathers(const std::vector<models::Parameter>& parameters,
                                  const std::vector<size_t>& trainable,
                                  const std::vector<layout::Group>& groups) {
  std::unordered_map<const void*, size_t> bucket_of;  // by parameter
  for (size_t i = 0; i < groups.size(); ++i) {
    for (const layout::Group::Member& member : groups[i].members) {
      bucket_of[parameters[trainable[member.parameter]].tensor.unsafeGetTensorImpl()] = i;
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
  if (root_ != nullptr) visit(*root_);
  for (size_t i = groups.size(); i-- > 0;) plan(i);
}

std::unique_ptr<models::ForwardContext> GatheredBuckets::MakeContext(models::Mode mode,
                                                                     at::Generator generator) {
  return std::make_unique<AwaitingContext>(mode, std::move(generator), this);
}

void GatheredBuckets::Start(int64_t step) {
  if (communicator_->world_size() == 1) return;
  for (const size_t index : gather_order_) {
    Bucket& bucket = buckets_[index];
    bucket.gather = communicator_->AllGather(bucket.parameters, bucket.own_parameters,
                                             {bucket.gather_label.c_str(), step});
    ++gathering_;
  }
}

void GatheredBuckets::AwaitGather(Bucket& bucket) {
  if (bucket.gather == nullptr) return;
  error_.Update(bucket.gather->Wait());
  bucket.gather.reset();
  --gathering_;
}

void GatheredBuckets::AwaitUnit(const models::Unit& unit) {
  if (gathering_ == 0) return;
  const auto found = buckets_of_unit_.find(&unit);
  if (found == buckets_of_unit_.end()) return AwaitAll();
  for (const size_t bucket : found->second) AwaitGather(buckets_[bucket]);
  if (!error_.ok()) throw models::ContextError(error_);
}

void GatheredBuckets::AwaitAll() {
  if (gathering_ == 0) return;
  if (const absl::Status status = Await(); !status.ok()) throw models::ContextError(status);
}

absl::Status GatheredBuckets::Await() {
  for (const size_t bucket : gather_order_) AwaitGather(buckets_[bucket]);
  return error_;
}

absl::Status GatheredBuckets::Finish() {
  for (Bucket& bucket : buckets_) AwaitGather(bucket);
  return std::exchange(error_, absl::OkStatus());
}

KeptMemory GatheredBuckets::ReleaseModel() {
  for (Bucket& bucket : buckets_) AwaitGather(bucket);
  buckets_.clear();
  return {.flats = std::move(flats_), .held = {}};
}

}  // namespace muster::parallel
