#include "worker/parallel/ddp/ddp.h"

#include <cmath>
#include <cstring>
#include <unordered_set>
#include <utility>

#include "ATen/ops/zeros.h"
#include "absl/strings/str_cat.h"
#include "c10/core/GradMode.h"
#include "common/status/status.h"
#include "torch/csrc/autograd/function_hook.h"
#include "torch/csrc/autograd/variable.h"
#include "worker/memory/memory_scope.h"
#include "worker/parallel/ddp/buckets.h"
#include "worker/parallel/ddp/buffer_sync.h"
#include "worker/parallel/ddp/parameter_hash.h"

namespace muster::parallel {
namespace {

absl::Status CheckParameters(const std::vector<DdpParameter>& parameters) {
  std::unordered_set<std::string> names;
  std::unordered_set<const void*> tensors;
  for (const auto& [name, tensor] : parameters) {
    const auto refuse = [&name = name](const std::string& why) {
      return absl::InvalidArgumentError(absl::StrCat("parameter '", name, "' ", why));
    };
    if (!tensor.defined()) return refuse("is undefined");
    if (!tensor.device().is_cpu()) return refuse("is not on the CPU");
    if (!tensor.is_leaf() || !tensor.requires_grad()) return refuse("is no trainable leaf");
    if (!tensor.is_contiguous()) return refuse("is not contiguous");
    if (tensor.scalar_type() != at::kFloat && tensor.scalar_type() != at::kDouble) {
      return refuse(absl::StrCat("is ", c10::toString(tensor.scalar_type()),
                                 ", not float32 or float64"));
    }
    if (tensor.scalar_type() != parameters[0].tensor.scalar_type()) {
      return refuse(absl::StrCat("has another type than '", parameters[0].name, "'"));
    }
    if (!names.insert(name).second) return refuse("is there twice");
    if (!tensors.insert(tensor.unsafeGetTensorImpl()).second) {
      return refuse("is the same tensor as another one");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckBuffers(const std::vector<DdpBuffer>& buffers) {
  std::unordered_set<std::string> names;
  for (const auto& [name, tensor] : buffers) {
    const auto refuse = [&name = name](const std::string& why) {
      return absl::InvalidArgumentError(absl::StrCat("buffer '", name, "' ", why));
    };
    if (!tensor.defined()) return refuse("is undefined");
    if (!tensor.device().is_cpu()) return refuse("is not on the CPU");
    if (tensor.requires_grad()) return refuse("requires a gradient");
    if (!tensor.is_contiguous()) return refuse("is not contiguous");
    if (tensor.scalar_type() != at::kFloat && tensor.scalar_type() != at::kLong) {
      return refuse(absl::StrCat("is ", c10::toString(tensor.scalar_type()),
                                 ", not float32 or int64"));
    }
    if (!names.insert(name).second) return refuse("is there twice");
  }
  return absl::OkStatus();
}

std::vector<at::Tensor> TensorsOf(const std::vector<DdpBuffer>& buffers) {
  std::vector<at::Tensor> tensors;
  for (const DdpBuffer& buffer : buffers) tensors.push_back(buffer.tensor);
  return tensors;
}

class BucketedDdp : public Ddp {
 public:
  BucketedDdp(std::vector<DdpParameter> parameters, std::vector<DdpBuffer> buffers,
              comm::Communicator* communicator, const DdpOptions& options);
  ~BucketedDdp() override;

  void BeginStep(int64_t step, double divisor) override;
  void BeginMicroBatch(bool last) override { reducing_ = last; }
  absl::Status FinishBackward() override;
  void RestoreBuffers() override { buffer_sync_.Restore(); }
  absl::Status VerifyParametersEqual(int64_t step) override;
  int64_t bucket_count() const override { return buckets_.size(); }

 private:
  struct ParameterState {
    DdpParameter parameter;
    at::Tensor view;  // its place in the bucket, with the parameter's shape
    int bucket = 0;
    bool in_bucket = false;  // the gradient of this step lies in `view`
    bool ready = false;      // and is complete
  };
  struct BucketState {
    at::Tensor flat;
    std::string label;
    int pending = 0;  // gradients that are not ready
    int size = 0;
  };

  // What autograd calls once a parameter's gradient is accumulated.
  struct Hook : torch::autograd::PostAccumulateGradHook {
    Hook(BucketedDdp* ddp, int index) : ddp(ddp), index(index) {}
    void operator()(const at::Tensor&) override { ddp->GradientAccumulated(index); }
    BucketedDdp* const ddp;
    const int index;
  };

  void GradientAccumulated(int index);
  void MoveIntoBucket(ParameterState& state);
  void MarkReady(ParameterState& state);
  // The forwards of this step are done: the buffers first, then buckets in order.
  void Launch();

  comm::Communicator* const communicator_;
  std::vector<ParameterState> parameters_;
  std::vector<BucketState> buckets_;
  const std::vector<DdpBuffer> buffers_;
  BufferSync buffer_sync_;

  // This step's.
  int64_t step_ = 0;
  double divisor_ = 1.0;
  bool reducing_ = false;  // in the last micro-batch
  absl::Status error_;
  bool buffers_launched_ = false;
  size_t next_to_launch_ = 0;  // buckets are launched in order: the same order on every rank
  std::vector<std::unique_ptr<comm::Work>> works_;
};

BucketedDdp::BucketedDdp(std::vector<DdpParameter> parameters, std::vector<DdpBuffer> buffers,
                         comm::Communicator* communicator, const DdpOptions& options)
    : communicator_(communicator),
      buffers_(std::move(buffers)),
      buffer_sync_(TensorsOf(buffers_), communicator) {
  std::vector<int64_t> elements;
  for (DdpParameter& parameter : parameters) {
    elements.push_back(parameter.tensor.numel());
    parameters_.push_back({.parameter = std::move(parameter)});
  }
  if (parameters_.empty()) return;
  const at::ScalarType type = parameters_[0].parameter.tensor.scalar_type();
  const auto assigned =
      AssignBuckets(elements, c10::elementSize(type), communicator->world_size(),
                    {.first_bytes = options.first_bucket_bytes, .bytes = options.bucket_bytes});
  const memory::MemoryScope scope(memory::Purpose::kBuckets);
  for (const Bucket& bucket : assigned) {
    // Padding is zero now, and a sum of zeros ever after.
    at::Tensor flat = at::zeros({bucket.elements}, at::TensorOptions(type));
    for (const Bucket::Piece& piece : bucket.pieces) {
      ParameterState& state = parameters_[piece.parameter];
      state.bucket = buckets_.size();
      state.view = flat.narrow(0, piece.offset, elements[piece.parameter])
                       .view(state.parameter.tensor.sizes());
    }
    buckets_.push_back({.flat = flat,
                        .label = absl::StrCat("bucket ", buckets_.size()),
                        .size = static_cast<int>(bucket.pieces.size())});
  }
  for (size_t i = 0; i < parameters_.size(); ++i) {
    torch::autograd::impl::set_post_acc_grad_hooks(
        parameters_[i].parameter.tensor, std::make_unique<Hook>(this, static_cast<int>(i)));
  }
}

BucketedDdp::~BucketedDdp() {
  works_.clear();  // waits
  for (ParameterState& state : parameters_) {
    torch::autograd::impl::set_post_acc_grad_hooks(state.parameter.tensor, nullptr);
    state.parameter.tensor.mutable_grad().reset();
  }
}

void BucketedDdp::BeginStep(int64_t step, double divisor) {
  step_ = step;
  divisor_ = divisor;
  reducing_ = false;
  error_ = absl::OkStatus();
  next_to_launch_ = 0;
  works_.clear();
  for (ParameterState& state : parameters_) {
    // Without a gradient, autograd hands over the new one instead of adding to zeros.
    state.parameter.tensor.mutable_grad().reset();
    state.in_bucket = state.ready = false;
  }
  for (BucketState& bucket : buckets_) bucket.pending = bucket.size;
  buffers_launched_ = false;
  buffer_sync_.BeginStep();
}

void BucketedDdp::GradientAccumulated(int index) {
  if (!error_.ok()) return;
  ParameterState& state = parameters_[index];
  if (state.ready) {
    error_ = absl::FailedPreconditionError(
        absl::StrCat("rank ", communicator_->rank(), ": step ", step_, ": parameter '",
                     state.parameter.name,
                     "' got a second gradient in one backward, after its bucket was counted ready"));
    return;
  }
  try {
    MoveIntoBucket(state);
  } catch (const std::exception& exception) {
    error_ = absl::InternalError(absl::StrCat("rank ", communicator_->rank(), ": step ", step_,
                                              ": gradient of '", state.parameter.name,
                                              "': ", exception.what()));
    return;
  }
  if (reducing_) {
    MarkReady(state);
    Launch();
  }
}

void BucketedDdp::MoveIntoBucket(ParameterState& state) {
  at::Tensor& gradient = state.parameter.tensor.mutable_grad();
  if (gradient.is_same(state.view)) return;  // accumulated in place
  if (gradient.is_contiguous() && gradient.scalar_type() == state.view.scalar_type() &&
      gradient.numel() == state.view.numel()) {
    // The same as copy_, without its dispatch: models have hundreds of small parameters.
    if (gradient.nbytes() > 0) {
      std::memcpy(state.view.mutable_data_ptr(), gradient.const_data_ptr(), gradient.nbytes());
    }
  } else {
    c10::NoGradGuard no_grad;
    state.view.copy_(gradient);
  }
  gradient = state.view;
  state.in_bucket = true;
}

void BucketedDdp::MarkReady(ParameterState& state) {
  state.ready = true;
  --buckets_[state.bucket].pending;
}

void BucketedDdp::Launch() {
  if (!std::exchange(buffers_launched_, true)) {
    // Every rank is active in every step: the highest is the last.
    buffer_sync_.Launch(communicator_->world_size() - 1, step_);
  }
  while (next_to_launch_ < buckets_.size() && buckets_[next_to_launch_].pending == 0) {
    const BucketState& bucket = buckets_[next_to_launch_++];
    works_.push_back(
        communicator_->AllReduceSum(bucket.flat, {bucket.label.c_str(), step_}, divisor_));
  }
}

absl::Status BucketedDdp::FinishBackward() {
  if (error_.ok()) {
    for (ParameterState& state : parameters_) {
      if (state.ready) continue;
      if (!state.in_bucket) {  // used by no micro-batch
        if (state.view.numel() > 0) {
          std::memset(state.view.mutable_data_ptr(), 0, state.view.nbytes());
        }
        state.parameter.tensor.mutable_grad() = state.view;
      }
      MarkReady(state);
    }
    Launch();
  }
  absl::Status status = error_;
  for (auto& work : works_) {
    const absl::Status reduced = work->Wait();
    if (status.ok()) status = reduced;
  }
  works_.clear();
  const absl::Status synchronized = buffer_sync_.Finish();
  if (status.ok()) status = synchronized;
  return status;
}

absl::Status BucketedDdp::VerifyParametersEqual(int64_t step) {
  std::vector<std::string> names;
  std::vector<at::Tensor> tensors;
  for (const ParameterState& state : parameters_) {
    names.push_back(absl::StrCat("parameter '", state.parameter.name, "'"));
    tensors.push_back(state.parameter.tensor);
  }
  for (const DdpBuffer& buffer : buffers_) {
    names.push_back(absl::StrCat("buffer '", buffer.name, "'"));
    tensors.push_back(buffer.tensor);
  }
  return CheckEqualOnAllRanks(names, tensors, step, communicator_);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Ddp>> Ddp::Create(std::vector<DdpParameter> parameters,
                                                 std::vector<DdpBuffer> buffers,
                                                 comm::Communicator* communicator,
                                                 const DdpOptions& options) {
  RETURN_IF_ERROR(CheckParameters(parameters));
  RETURN_IF_ERROR(CheckBuffers(buffers));
  if (options.bucket_bytes <= 0 || options.first_bucket_bytes <= 0) {
    return absl::InvalidArgumentError("bucket sizes must be above 0 bytes");
  }
  return std::make_unique<BucketedDdp>(std::move(parameters), std::move(buffers), communicator,
                                       options);
}

}  // namespace muster::parallel
