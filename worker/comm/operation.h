// The description of one collective call, for errors, for the checks of its arguments, and for its
// sum. Shared by the implementations of Communicator.
#ifndef MUSTER_WORKER_COMM_OPERATION_H_
#define MUSTER_WORKER_COMM_OPERATION_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/statusor.h"
#include "worker/comm/communicator.h"

namespace muster::comm {

enum class OperationKind { kAllGather, kAllReduceSum, kReduceScatterSum, kAllToAll, kBroadcast };

struct OperationSpec {
  OperationKind kind;
  OpLabel label;
  int rank = 0;
  at::Tensor output;               // also the input of in-place operations
  at::Tensor input;                // undefined for in-place operations
  int root = 0;                    // broadcast only
  double divide_by = 1.0;          // the sums only
  std::vector<int64_t> out_sizes;  // all-to-all only
  std::vector<int64_t> in_sizes;   // all-to-all only
  at::Device device = at::kCPU;    // where all tensors must be
};

// Returns for example "all_reduce".
const char* Name(OperationKind kind);

// Returns for example "all_reduce 'bucket 3' at step 17".
std::string Describe(const OperationSpec& spec);

// Returns for example "all_reduce of 1024 Float": the part that must be equal on all ranks. Leaves
// out the sizes of an all-to-all.
std::string Shape(const OperationSpec& spec);

// Returns a hash of Describe and Shape. Ranks that issue the same operation get the same hash.
uint64_t Hash(const OperationSpec& spec);

// Returns `status` with "rank 1: all_reduce 'bucket 3' at step 17: " in front; OK stays OK.
absl::Status WithOperation(const OperationSpec& spec, const absl::Status& status);

// INVALID_ARGUMENT if this rank's call is wrong, whatever the other ranks call.
absl::Status CheckArguments(const OperationSpec& spec, int world_size);

// Returns the number of bytes that this rank sends to other ranks in a direct exchange. An
// all-reduce counts as a reduce-scatter of the slices of SliceOf, followed by an all-gather.
int64_t BytesToSend(const OperationSpec& spec, int world_size);

// Releases the tensors. Afterwards the spec still describes the operation in errors.
void ReleaseTensors(OperationSpec& spec);

// Returns a Work that is done, with this status.
std::unique_ptr<Work> DoneWork(absl::Status status);

// Adds the ranks' contributions, in rank order. The sources have the type of the spec's input
// (all-reduce: of its output), and the destination has the type of its output. A source may be the
// destination if their types are the same.
void TypedSum(const OperationSpec& spec, const std::vector<const void*>& sources, void* destination,
              int64_t elements);

// A communicator whose collectives all begin in one function.
class IssuingCommunicator : public Communicator {
 public:
  std::unique_ptr<Work> AllGather(const at::Tensor& out, const at::Tensor& in,
                                  OpLabel label) override;
  std::unique_ptr<Work> AllReduceSum(const at::Tensor& flat, OpLabel label, double divide_by) final;
  std::unique_ptr<Work> ReduceScatterSum(const at::Tensor& out, const at::Tensor& in, OpLabel label,
                                         double divide_by) final;
  std::unique_ptr<Work> AllToAll(const at::Tensor& out, const std::vector<int64_t>& out_sizes,
                                 const at::Tensor& in, const std::vector<int64_t>& in_sizes,
                                 OpLabel label) final;
  std::unique_ptr<Work> Broadcast(const at::Tensor& flat, int root, OpLabel label) final;

 private:
  // Called by each collective, before the arguments are checked and before the spec has a device.
  virtual std::unique_ptr<Work> Issue(OperationSpec spec) = 0;
};

// Calls the collective of another communicator that the spec describes.
std::unique_ptr<Work> IssueOn(Communicator& communicator, const OperationSpec& spec);

}  // namespace muster::comm

#endif  // MUSTER_WORKER_COMM_OPERATION_H_
