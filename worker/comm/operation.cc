#include "worker/comm/operation.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status.h"

namespace muster::comm {
namespace {

const char* Name(OperationKind kind) {
  switch (kind) {
    case OperationKind::kAllGather:
      return "all_gather";
    case OperationKind::kAllReduceSum:
      return "all_reduce";
    case OperationKind::kBroadcast:
      return "broadcast";
  }
  return "operation";
}

std::string Elements(const at::Tensor& tensor) {
  return absl::StrCat(tensor.numel(), " ", c10::toString(tensor.scalar_type()));
}

absl::Status CheckBuffer(const at::Tensor& tensor, const char* role) {
  if (!tensor.defined()) return absl::InvalidArgumentError(absl::StrCat(role, " is undefined"));
  if (!tensor.device().is_cpu()) {
    return absl::InvalidArgumentError(
        absl::StrCat(role, " is on ", tensor.device().str(), ", not on the CPU"));
  }
  if (!tensor.is_contiguous()) {
    return absl::InvalidArgumentError(absl::StrCat(role, " is not contiguous"));
  }
  return absl::OkStatus();
}

absl::Status CheckReduction(const OperationSpec& spec) {
  const at::ScalarType type = spec.output.scalar_type();
  if (type != at::kFloat && type != at::kDouble && type != at::kLong) {
    return absl::InvalidArgumentError(absl::StrCat(
        "cannot sum ", c10::toString(type), "; float32, float64 and int64 can be summed"));
  }
  if (!std::isfinite(spec.divide_by) || spec.divide_by <= 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("the divisor is ", spec.divide_by, ", not a positive number"));
  }
  if (type == at::kLong && spec.divide_by != 1.0) {
    return absl::InvalidArgumentError("an int64 sum cannot be divided");
  }
  return absl::OkStatus();
}

class DoneWorkImpl : public Work {
 public:
  explicit DoneWorkImpl(absl::Status status) : status_(std::move(status)) {}
  absl::Status Wait() override { return status_; }

 private:
  const absl::Status status_;
};

}  // namespace

std::string Describe(const OperationSpec& spec) {
  return absl::StrCat(Name(spec.kind), " '", spec.label.what, "' at step ", spec.label.step);
}

std::string Shape(const OperationSpec& spec) {
  std::string shape = absl::StrCat(
      Name(spec.kind), " of ",
      Elements(spec.kind == OperationKind::kAllGather ? spec.input : spec.output));
  if (spec.kind == OperationKind::kBroadcast) absl::StrAppend(&shape, " from rank ", spec.root);
  if (spec.divide_by != 1.0) absl::StrAppend(&shape, " divided by ", spec.divide_by);
  return shape;
}

absl::Status WithOperation(const OperationSpec& spec, const absl::Status& status) {
  return Annotate(status, absl::StrCat("rank ", spec.rank, ": ", Describe(spec)));
}

absl::Status CheckArguments(const OperationSpec& spec, int world_size) {
  absl::Status status = CheckBuffer(spec.output, "the buffer");
  if (status.ok() && spec.kind == OperationKind::kAllReduceSum) status = CheckReduction(spec);
  if (status.ok() && spec.kind == OperationKind::kAllGather) {
    status = CheckBuffer(spec.input, "the input");
    if (status.ok() && (spec.output.scalar_type() != spec.input.scalar_type() ||
                        spec.output.numel() != spec.input.numel() * world_size)) {
      status = absl::InvalidArgumentError(absl::StrCat(
          "the output holds ", Elements(spec.output), ", expected ", world_size, " times the input's ",
          Elements(spec.input)));
    }
  }
  if (status.ok() && spec.kind == OperationKind::kBroadcast &&
      (spec.root < 0 || spec.root >= world_size)) {
    status = absl::InvalidArgumentError(
        absl::StrCat("root ", spec.root, " is not a rank of ", world_size));
  }
  return WithOperation(spec, status);
}

std::unique_ptr<Work> DoneWork(absl::Status status) {
  return std::make_unique<DoneWorkImpl>(std::move(status));
}

}  // namespace muster::comm
