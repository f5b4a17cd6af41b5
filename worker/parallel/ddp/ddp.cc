#include "worker/parallel/ddp/ddp.h"

#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status.h"
#include "worker/layout/groups.h"
#include "worker/parallel/buffer_sync.h"
#include "worker/parallel/gradients/gradient_buckets.h"
#include "worker/parallel/gradients/unused_pieces.h"
#include "worker/parallel/model_tensors.h"
#include "worker/parallel/parameter_store.h"

namespace muster::parallel {
namespace {

class Ddp : public Strategy {
 public:
  Ddp(const std::vector<models::Parameter>& parameters, const std::vector<models::Buffer>& buffers,
      comm::Communicator* communicator, const DdpOptions& options)
      : communicator_(communicator),
        parameters_(parameters),
        buffers_(buffers),
        buffer_sync_(TensorsOf(buffers), communicator) {
    const std::vector<bool> trained = TrainedOf(parameters);
    plan_.owners = PlacementsFor(trained).owners;
    std::vector<size_t> trainable;
    const auto specs = SpecsOf(parameters, trained, /*trainable=*/true, &trainable);
    std::vector<models::Parameter> reduced;
    for (const size_t index : trainable) {
      reduced.push_back(parameters[index]);
      pieces_.push_back({.parameter = index, .begin = 0, .tensor = parameters[index].tensor});
    }
    auto groups = layout::AssignBuckets(
        specs, communicator->world_size(),
        {.first_bytes = options.first_bucket_bytes, .bytes = options.bucket_bytes});
    plan_.fingerprint = layout::Fingerprint(groups, specs, communicator->world_size());
    plan_.buckets = static_cast<int64_t>(groups.size());
    for (size_t i = 0; i < groups.size(); ++i) {
      labels_.push_back(absl::StrCat("bucket ", i));
      for (const auto& member : groups[i].members) pieces_[member.parameter].bucket = i;
    }
    paths_.emplace(
        reduced, [this](size_t parameter) { gradients_->Expect(parameter); },
        [this] {
          if (last_) SendBuffers();
        });
    gradients_ = std::make_unique<GradientBuckets>(
        std::move(reduced), std::move(groups), GradientBuckets::Memory::kKept,
        [this](size_t bucket, const at::Tensor& flat) { Reduce(bucket, flat); },
        absl::StrCat("rank ", communicator->rank()));
    unused_.emplace(pieces_, trainable,
                    [this](size_t parameter) { return gradients_->used(parameter); });
  }

  ~Ddp() override { works_.clear(); }  // waits for reductions in flight

  const std::vector<Piece>& pieces() const override { return pieces_; }
  const std::vector<at::Tensor>& unused() const override { return unused_->flags(); }
  const Plan& plan() const override { return plan_; }
  const ParameterStore& store() const override { return store_; }
  ParameterStore& store() override { return store_; }
  Placements PlacementsFor(const std::vector<bool>& trained) const override {
    sharding::Placement all =
        sharding::Replicated(ElementsOf(parameters_), communicator_->world_size());
    return {sharding::Only(std::move(all), trained), std::nullopt};
  }

  std::unique_ptr<models::ForwardContext> MakeContext(models::Mode mode,
                                                      at::Generator generator) override {
    auto context = std::make_unique<models::ForwardContext>(mode, std::move(generator));
    context->set_use_observer(&*paths_);
    return context;
  }

  void BeginStep(const StepStart& start) override {
    works_.clear();
    start_ = start;
    buffers_launched_ = false;
    gradients_->BeginStep(start.step);
    unused_->BeginStep();
    buffer_sync_.BeginStep(start);
  }

  void BeginMicroBatch(bool last) override {
    last_ = last;
    gradients_->BeginPass(/*completes=*/last);
    paths_->BeginPass();
  }

  // No forward follows: FinishBackward sends the gradients of this rank's earlier micro-batches of
  // the step, or zeros.
  void BeginJoinedMicroBatch(bool last) override { BeginMicroBatch(last); }

  absl::Status FinishBackward(const BucketReduced& then) override {
    const BucketReduced reduced = unused_->LookBefore(then);
    absl::Status status = gradients_->Finish();
    if (status.ok()) SendBuffers();
    for (size_t bucket = 0; bucket < works_.size(); ++bucket) {
      const absl::Status arrived = works_[bucket]->Wait();
      if (status.ok()) status = arrived;
      if (status.ok()) status = reduced(bucket);
    }
    works_.clear();
    const absl::Status synchronized = buffer_sync_.Finish();
    if (status.ok()) status = synchronized;
    return status;
  }

  absl::StatusOr<at::Tensor> GatherSums(const at::Tensor& mine) override {
    return mine.view({1, -1});
  }

  void FinishUpdate() override {}
  absl::Status AwaitParameters() override { return absl::OkStatus(); }
  void RestoreBuffers() override { buffer_sync_.Restore(); }
  void RestoreBuffersIf(const at::Tensor& skip) override { buffer_sync_.RestoreIf(skip); }

  absl::Status VerifyParametersEqual(int64_t step) override {
    return CheckModelEqualOnAllRanks(parameters_, buffers_, step, communicator_);
  }
  KeptMemory ReleaseModel() override { return {}; }

 private:
  void Reduce(size_t bucket, const at::Tensor& flat) {
    SendBuffers();  // the forwards of this step are done
    works_.push_back(
        communicator_->AllReduceSum(flat, {labels_[bucket].c_str(), start_.step}, start_.divisor));
  }

  void SendBuffers() {
    if (!std::exchange(buffers_launched_, true)) buffer_sync_.Launch();
  }

  comm::Communicator* const communicator_;
  const std::vector<models::Parameter> parameters_;
  const std::vector<models::Buffer> buffers_;
  std::vector<Piece> pieces_;
  Plan plan_;
  ReplicatedParameters store_;
  std::vector<std::string> labels_;  // of the buckets
  BufferSync buffer_sync_;
  std::unique_ptr<GradientBuckets> gradients_;
  std::optional<GradientPaths> paths_;
  std::optional<UnusedPieces> unused_;

  // State of the current step.
  StepStart start_;
  bool last_ = false;  // whether the last micro-batch has begun
  bool buffers_launched_ = false;
  std::vector<std::unique_ptr<comm::Work>> works_;  // of the buckets, in their order
};

}  // namespace

absl::StatusOr<std::unique_ptr<Strategy>> CreateDdp(
    const std::vector<models::Parameter>& parameters, const std::vector<models::Buffer>& buffers,
    comm::Communicator* communicator, const DdpOptions& options) {
  RETURN_IF_ERROR(CheckParameters(parameters, communicator->device()));
  RETURN_IF_ERROR(CheckBuffers(buffers, communicator->device()));
  return std::make_unique<Ddp>(parameters, buffers, communicator, options);
}

}  // namespace muster::parallel
