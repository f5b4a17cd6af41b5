// The description of one collective call, for errors, and the checks of its arguments. Shared by
// the implementations of Communicator.
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
  at::Tensor output;               // also the input of the operations in place
  at::Tensor input;                // undefined in the operations in place
  int root = 0;                    // broadcast only
  double divide_by = 1.0;          // the sums only
  std::vector<int64_t> out_sizes;  // all-to-all only
  std::vector<int64_t> in_sizes;   // all-to-all only
  at::Device device = at::kCPU;    // where all tensors must be
};

// "all_reduce 'bucket 3' at step 17".
std::string Describe(const OperationSpec& spec);

// "all_reduce of 1024 Float": the part that must be equal on all ranks. The sizes of an all-to-all
// are not part of it.
std::string Shape(const OperationSpec& spec);

// A hash of Describe and Shape: equal on ranks that issue the same operation.
uint64_t Hash(const OperationSpec& spec);

// status with "rank 1: all_reduce 'bucket 3' at step 17: " in front; OK stays OK.
absl::Status WithOperation(const OperationSpec& spec, const absl::Status& status);

// INVALID_ARGUMENT: this rank's call is wrong, whatever the other ranks call.
absl::Status CheckArguments(const OperationSpec& spec, int world_size);

// The number of bytes that this rank sends to other ranks in a direct exchange. An all-reduce is a
// reduce-scatter of the slices of SliceOf, followed by an all-gather.
int64_t BytesToSend(const OperationSpec& spec, int world_size);

// Releases the tensors; the spec still describes the operation in errors.
void ReleaseTensors(OperationSpec& spec);

// A Work that is done.
std::unique_ptr<Work> DoneWork(absl::Status status);

}  // namespace muster::comm

#endif  // MUSTER_WORKER_COMM_OPERATION_H_
