#include "worker/parallel/gradients/sliced_gradients.h"

#include <utility>

#include "ATen/ops/empty.h"
#include "absl/strings/str_cat.h"
#include "c10/core/GradMode.h"
#include "worker/memory/memory_scope.h"
#include "worker/parallel/model_tensors.h"

namespace muster::parallel {
namespace {

using memory::MemoryScope;
using memory::Purpose;

// Two reductions keep the connection busy. More would need more memory, because each reduction
// holds the memory of a full group.
constexpr size_t kMostReducing = 2;

}  // namespace

SlicedGradients::SlicedGradients(std::vector<models::Parameter> parameters,
                                 std::vector<layout::Group> groups, std::vector<std::string> labels,
                                 const std::vector<models::Buffer>& buffers,
                                 comm::Communicator* communicator, const Options& options)
    : communicator_(communicator),
      options_(options),
      labels_(std::move(labels)),
      buffer_sync_(TensorsOf(buffers), communicator),
      paths_(
          parameters, [this](size_t parameter) { buckets_->Expect(parameter); },
          [this] {
            if (last_) SendBuffers();
          }) {
  {
    const MemoryScope scope(Purpose::kGradients);
    for (const layout::Group& group : groups) {
      slices_.push_back(
          at::empty({layout::SliceElements(group, communicator->world_size())},
                    at::TensorOptions(ScalarTypeOf(group.type)).device(communicator->device())));
    }
  }
  buckets_ = std::make_unique<GradientBuckets>(
      std::move(parameters), std::move(groups), GradientBuckets::Memory::kHandedOver,
      [this](size_t group, at::Tensor flat) { Reduce(group, std::move(flat)); },
      absl::StrCat("rank ", communicator->rank()));
}

SlicedGradients::~SlicedGradients() { reducing_.clear(); }

void SlicedGradients::BeginStep(const StepStart& start) {
  reducing_.clear();  // waits for the reductions of a step that failed
  start_ = start;
  micro_batches_ = 0;
  last_ = false;
  buffers_sent_ = false;
  buckets_->BeginStep(start.step);
  buffer_sync_.BeginStep(start);
}

void SlicedGradients::BeginJoinedMicroBatch(bool last) {
  buffer_sync_.Settle();
  BeginPass(last, GradientBuckets::Gradients::kDropped);
}

void SlicedGradients::BeginPass(bool last, GradientBuckets::Gradients gradients) {
  const bool each = options_.reduce_every == ReduceEvery::kMicroBatch;
  if (each && micro_batches_ > 0) Note(buckets_->Finish());
  ++micro_batches_;
  last_ = last;
  buckets_->BeginPass(/*completes=*/each || last, gradients);
  paths_.BeginPass();
}

void SlicedGradients::Reduce(size_t group, at::Tensor flat) {
  if (last_) SendBuffers();  // the forwards of this step are done
  while (reducing_.size() >= kMostReducing) AwaitOldestReduction();
  const MemoryScope scope(Purpose::kBuckets);
  if (options_.in_bfloat16 && flat.scalar_type() == at::kFloat) {
    c10::NoGradGuard no_grad;
    flat = flat.to(at::kBFloat16);
  }
  Reduction reduction{.group = group};
  at::Tensor out = slices_[group];
  if (options_.reduce_every == ReduceEvery::kMicroBatch && micro_batches_ > 1) {
    out = reduction.sum = at::empty(out.sizes(), out.options());
  }
  // Only the work holds the memory of the full group, and frees the memory when the group is sent.
  reduction.work = communicator_->ReduceScatterSum(out, flat, {labels_[group].c_str(), start_.step},
                                                   start_.divisor);
  reducing_.push_back(std::move(reduction));
}

void SlicedGradients::AwaitOldestReduction() {
  const Reduction reduction = std::move(reducing_.front());
  reducing_.pop_front();
  const absl::Status status = reduction.work->Wait();
  Note(status);
  if (!status.ok() || !reduction.sum.defined()) return;
  c10::NoGradGuard no_grad;
  slices_[reduction.group].add_(reduction.sum);
}

void SlicedGradients::SendBuffers() {
  if (!std::exchange(buffers_sent_, true)) buffer_sync_.Launch();
}

absl::Status SlicedGradients::Finish(const Strategy::BucketReduced& reduced) {
  const absl::Status collected = buckets_->Finish();
  // An earlier error of the step stays, because it is nearer to the cause.
  Note(collected);
  if (collected.ok()) SendBuffers();
  size_t next = 0;  // the first group that `reduced` was not called for
  const auto tell_up_to = [&](size_t end) {
    for (; reduced && next < end && error_.ok(); ++next) Note(reduced(next));
  };
  while (!reducing_.empty()) {
    tell_up_to(reducing_.front().group);
    AwaitOldestReduction();
  }
  tell_up_to(slices_.size());
  Note(buffer_sync_.Finish());
  return std::exchange(error_, absl::OkStatus());
}

}  // namespace muster::parallel
