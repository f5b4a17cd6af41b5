#include "worker/comm/operation.h"

#include <xxhash.h>

#include <cmath>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status.h"
#include "worker/comm/rank_sum.h"
#include "worker/comm/slices.h"

namespace muster::comm {
namespace {

std::string Elements(const at::Tensor& tensor) {
  return absl::StrCat(tensor.numel(), " ", c10::toString(tensor.scalar_type()));
}

absl::Status CheckBuffer(const OperationSpec& spec, const at::Tensor& tensor, const char* role) {
  if (!tensor.defined()) return absl::InvalidArgumentError(absl::StrCat(role, " is undefined"));
  if (tensor.device() != spec.device) {
    return absl::InvalidArgumentError(
        absl::StrCat(role, " is on ", tensor.device().str(), ", not on ",
                     spec.device.is_cpu() ? "the CPU" : spec.device.str()));
  }
  if (!tensor.is_contiguous()) {
    return absl::InvalidArgumentError(absl::StrCat(role, " is not contiguous"));
  }
  return absl::OkStatus();
}

bool Overlap(const at::Tensor& a, const at::Tensor& b) {
  const char* a_begin = static_cast<const char*>(a.const_data_ptr());
  const char* b_begin = static_cast<const char*>(b.const_data_ptr());
  return a.nbytes() > 0 && b.nbytes() > 0 && a_begin < b_begin + b.nbytes() &&
         b_begin < a_begin + a.nbytes();
}

absl::Status CheckDivisor(const OperationSpec& spec) {
  const at::ScalarType type = spec.output.scalar_type();
  if (!std::isfinite(spec.divide_by) || spec.divide_by <= 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("the divisor is ", spec.divide_by, ", not a positive number"));
  }
  if (type == at::kLong && spec.divide_by != 1.0) {
    return absl::InvalidArgumentError("an int64 sum cannot be divided");
  }
  return absl::OkStatus();
}

absl::Status CheckAllReduce(const OperationSpec& spec) {
  const at::ScalarType type = spec.output.scalar_type();
  if (type != at::kFloat && type != at::kDouble && type != at::kLong) {
    return absl::InvalidArgumentError(absl::StrCat("cannot sum ", c10::toString(type),
                                                   "; float32, float64 and int64 can be summed"));
  }
  return CheckDivisor(spec);
}

absl::Status CheckAllGather(const OperationSpec& spec, int world_size) {
  RETURN_IF_ERROR(CheckBuffer(spec, spec.input, "the input"));
  if (spec.output.scalar_type() != spec.input.scalar_type() ||
      spec.output.numel() != spec.input.numel() * world_size) {
    return absl::InvalidArgumentError(absl::StrCat("the output holds ", Elements(spec.output),
                                                   ", expected ", world_size, " times the input's ",
                                                   Elements(spec.input)));
  }
  return absl::OkStatus();
}

absl::Status CheckReduceScatter(const OperationSpec& spec, int world_size) {
  RETURN_IF_ERROR(CheckBuffer(spec, spec.input, "the input"));
  const at::ScalarType in = spec.input.scalar_type(), out = spec.output.scalar_type();
  const bool same = in == out && (in == at::kFloat || in == at::kDouble || in == at::kLong);
  if (!same && !(in == at::kBFloat16 && out == at::kFloat)) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot sum ", c10::toString(in), " into ", c10::toString(out),
                     "; float32, float64 and int64 can be summed, and bfloat16 into float32"));
  }
  if (spec.input.numel() != spec.output.numel() * world_size) {
    return absl::InvalidArgumentError(absl::StrCat("the input holds ", Elements(spec.input),
                                                   ", expected ", world_size,
                                                   " times the output's ", Elements(spec.output)));
  }
  const char* own_part = static_cast<const char*>(spec.input.const_data_ptr()) +
                         spec.rank * spec.output.numel() * spec.input.element_size();
  if (Overlap(spec.output, spec.input) && (!same || spec.output.const_data_ptr() != own_part)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the output overlaps the input without being part ", spec.rank, " of it"));
  }
  return CheckDivisor(spec);
}

absl::Status CheckSizes(const std::vector<int64_t>& sizes, const at::Tensor& tensor, int world_size,
                        const char* role) {
  if (sizes.size() != static_cast<size_t>(world_size)) {
    return absl::InvalidArgumentError(absl::StrCat(
        role, " has ", sizes.size(), " sizes, expected one for each of ", world_size, " ranks"));
  }
  int64_t sum = 0;
  for (int rank = 0; rank < world_size; ++rank) {
    // The upper limit keeps the sum from overflowing.
    if (sizes[rank] < 0 || sizes[rank] > tensor.numel()) {
      return absl::InvalidArgumentError(absl::StrCat(role, "'s size for rank ", rank, " is ",
                                                     sizes[rank], ", but ", role, " holds ",
                                                     Elements(tensor)));
    }
    sum += sizes[rank];
  }
  if (sum != tensor.numel()) {
    return absl::InvalidArgumentError(absl::StrCat(role, "'s sizes add up to ", sum, ", but ", role,
                                                   " holds ", Elements(tensor)));
  }
  return absl::OkStatus();
}

absl::Status CheckAllToAll(const OperationSpec& spec, int world_size) {
  RETURN_IF_ERROR(CheckBuffer(spec, spec.input, "the input"));
  if (spec.output.scalar_type() != spec.input.scalar_type()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the output is ", c10::toString(spec.output.scalar_type()), ", the input ",
                     c10::toString(spec.input.scalar_type())));
  }
  RETURN_IF_ERROR(CheckSizes(spec.out_sizes, spec.output, world_size, "the output"));
  RETURN_IF_ERROR(CheckSizes(spec.in_sizes, spec.input, world_size, "the input"));
  if (spec.in_sizes[spec.rank] != spec.out_sizes[spec.rank]) {
    return absl::InvalidArgumentError(absl::StrCat("it sends ", spec.in_sizes[spec.rank],
                                                   " elements to itself, but expects ",
                                                   spec.out_sizes[spec.rank]));
  }
  if (Overlap(spec.output, spec.input)) {
    return absl::InvalidArgumentError("the output overlaps the input");
  }
  return absl::OkStatus();
}

absl::Status CheckBroadcast(const OperationSpec& spec, int world_size) {
  if (spec.root < 0 || spec.root >= world_size) {
    return absl::InvalidArgumentError(
        absl::StrCat("root ", spec.root, " is not a rank of ", world_size));
  }
  return absl::OkStatus();
}

absl::Status Check(const OperationSpec& spec, int world_size) {
  RETURN_IF_ERROR(
      CheckBuffer(spec, spec.output, spec.input.defined() ? "the output" : "the buffer"));
  switch (spec.kind) {
    case OperationKind::kAllGather:
      return CheckAllGather(spec, world_size);
    case OperationKind::kAllReduceSum:
      return CheckAllReduce(spec);
    case OperationKind::kReduceScatterSum:
      return CheckReduceScatter(spec, world_size);
    case OperationKind::kAllToAll:
      return CheckAllToAll(spec, world_size);
    case OperationKind::kBroadcast:
      return CheckBroadcast(spec, world_size);
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

template <typename T>
std::vector<const T*> As(const std::vector<const void*>& sources) {
  std::vector<const T*> typed;
  for (const void* source : sources) typed.push_back(static_cast<const T*>(source));
  return typed;
}

template <typename T>
void Sum(const std::vector<const void*>& sources, void* destination, int64_t elements,
         double divide_by) {
  RankOrderedSum(As<T>(sources), static_cast<T*>(destination), elements, divide_by);
}

}  // namespace

const char* Name(OperationKind kind) {
  switch (kind) {
    case OperationKind::kAllGather:
      return "all_gather";
    case OperationKind::kAllReduceSum:
      return "all_reduce";
    case OperationKind::kReduceScatterSum:
      return "reduce_scatter";
    case OperationKind::kAllToAll:
      return "all_to_all";
    case OperationKind::kBroadcast:
      return "broadcast";
  }
  return "operation";
}

std::string Describe(const OperationSpec& spec) {
  return absl::StrCat(Name(spec.kind), " '", spec.label.what, "' at step ", spec.label.step);
}

std::string Shape(const OperationSpec& spec) {
  std::string shape = Name(spec.kind);
  if (spec.kind == OperationKind::kAllToAll) {
    return absl::StrCat(shape, " of ", c10::toString(spec.input.scalar_type()));
  }
  absl::StrAppend(&shape, " of ", Elements(spec.input.defined() ? spec.input : spec.output));
  if (spec.kind == OperationKind::kReduceScatterSum) {
    absl::StrAppend(&shape, " into ", c10::toString(spec.output.scalar_type()));
  }
  if (spec.kind == OperationKind::kBroadcast) absl::StrAppend(&shape, " from rank ", spec.root);
  if (spec.divide_by != 1.0) absl::StrAppend(&shape, " divided by ", spec.divide_by);
  return shape;
}

uint64_t Hash(const OperationSpec& spec) {
  const std::string text = absl::StrCat(Describe(spec), ": ", Shape(spec));
  return XXH3_64bits(text.data(), text.size());
}

absl::Status WithOperation(const OperationSpec& spec, const absl::Status& status) {
  return Annotate(status, absl::StrCat("rank ", spec.rank, ": ", Describe(spec)));
}

absl::Status CheckArguments(const OperationSpec& spec, int world_size) {
  return WithOperation(spec, Check(spec, world_size));
}

int64_t BytesToSend(const OperationSpec& spec, int world_size) {
  const int64_t others = world_size - 1;
  switch (spec.kind) {
    case OperationKind::kAllGather:
      return others * spec.input.nbytes();
    case OperationKind::kAllReduceSum: {
      const int64_t own = SliceOf(spec.output.numel(), spec.rank, world_size).size();
      return (spec.output.numel() - own + others * own) * spec.output.element_size();
    }
    case OperationKind::kReduceScatterSum:
      return others * spec.output.numel() * spec.input.element_size();
    case OperationKind::kAllToAll:
      return (spec.input.numel() - spec.in_sizes[spec.rank]) * spec.input.element_size();
    case OperationKind::kBroadcast:
      return spec.rank == spec.root ? others * spec.output.nbytes() : 0;
  }
  return 0;
}

void ReleaseTensors(OperationSpec& spec) {
  spec.output.reset();
  spec.input.reset();
}

std::unique_ptr<Work> DoneWork(absl::Status status) {
  return std::make_unique<DoneWorkImpl>(std::move(status));
}

void TypedSum(const OperationSpec& spec, const std::vector<const void*>& sources, void* destination,
              int64_t elements) {
  switch ((spec.input.defined() ? spec.input : spec.output).scalar_type()) {
    case at::kBFloat16:
      return RankOrderedSumOfBfloat16(As<uint16_t>(sources), static_cast<float*>(destination),
                                      elements, spec.divide_by);
    case at::kFloat:
      return Sum<float>(sources, destination, elements, spec.divide_by);
    case at::kDouble:
      return Sum<double>(sources, destination, elements, spec.divide_by);
    default:  // int64: CheckArguments refuses all other types
      return Sum<int64_t>(sources, destination, elements, spec.divide_by);
  }
}

std::unique_ptr<Work> IssuingCommunicator::AllGather(const at::Tensor& out, const at::Tensor& in,
                                                     OpLabel label) {
  return Issue({OperationKind::kAllGather, label, rank(), out, in});
}

std::unique_ptr<Work> IssuingCommunicator::AllReduceSum(const at::Tensor& flat, OpLabel label,
                                                        double divide_by) {
  return Issue({OperationKind::kAllReduceSum, label, rank(), flat, {}, 0, divide_by});
}

std::unique_ptr<Work> IssuingCommunicator::ReduceScatterSum(const at::Tensor& out,
                                                            const at::Tensor& in, OpLabel label,
                                                            double divide_by) {
  return Issue({OperationKind::kReduceScatterSum, label, rank(), out, in, 0, divide_by});
}

std::unique_ptr<Work> IssuingCommunicator::AllToAll(const at::Tensor& out,
                                                    const std::vector<int64_t>& out_sizes,
                                                    const at::Tensor& in,
                                                    const std::vector<int64_t>& in_sizes,
                                                    OpLabel label) {
  return Issue({OperationKind::kAllToAll, label, rank(), out, in, 0, 1.0, out_sizes, in_sizes});
}

std::unique_ptr<Work> IssuingCommunicator::Broadcast(const at::Tensor& flat, int root,
                                                     OpLabel label) {
  return Issue({OperationKind::kBroadcast, label, rank(), flat, {}, root});
}

std::unique_ptr<Work> IssueOn(Communicator& communicator, const OperationSpec& spec) {
  switch (spec.kind) {
    case OperationKind::kAllGather:
      return communicator.AllGather(spec.output, spec.input, spec.label);
    case OperationKind::kAllReduceSum:
      return communicator.AllReduceSum(spec.output, spec.label, spec.divide_by);
    case OperationKind::kReduceScatterSum:
      return communicator.ReduceScatterSum(spec.output, spec.input, spec.label, spec.divide_by);
    case OperationKind::kAllToAll:
      return communicator.AllToAll(spec.output, spec.out_sizes, spec.input, spec.in_sizes,
                                   spec.label);
    case OperationKind::kBroadcast:
      return communicator.Broadcast(spec.output, spec.root, spec.label);
  }
  return nullptr;
}

}  // namespace muster::comm
