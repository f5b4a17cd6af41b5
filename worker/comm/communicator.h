// Collectives between the ranks of one generation.
//
// Life cycle: a communicator is created for one generation and never changed. After an error, every
// operation in flight and every later operation fails at once with the same root cause. The next
// generation creates another communicator. The destructor never hangs, not even after an error.
//
// Order: all ranks issue the same operations, with the same shapes, in the same order. Several
// operations may be in flight. The caller may wait for them in any order.
//
// Threading: one thread issues operations; any thread may call Wait or Abort.
//
// Devices: all tensors of a communicator are on one device.
// - CPU: Wait blocks until the operation is done.
// - CUDA: an operation begins after the work that the current stream had before the call. Work that
//   the current stream gets after Wait begins after the operation. comm/nccl does not block the
//   host for either. An error that is found later fails the operations and Waits that follow.
//
// Sums are rank-ordered, except on CUDA with SumOrder::kFast: element i of the result is ((r0[i] +
// r1[i]) + r2[i]) + ..., divided once, in the type of the result. The bits of the result depend
// neither on where a buffer begins nor on the implementation. A reduce-scatter gives the same bits
// as an all-reduce.
//
// Errors (absl::Status of Work::Wait):
//   INVALID_ARGUMENT    this rank's own call is wrong (shape, type, root, overlap). Nothing was
//                       sent. The communicator stays usable on this rank, but the ranks are out of
//                       step.
//   UNAVAILABLE         a peer is gone or aborted, or destroyed its communicator early. "rank 1:
//                       all_reduce 'bucket 3' at step 17: rank 0 is gone: <why>"
//   DEADLINE_EXCEEDED   a peer is alive but did not take part within the timeout.
//   FAILED_PRECONDITION the ranks issued different operations (found by comm/local). With Gloo such
//                       ranks wait for each other, until the watchdog or the timeout ends the wait.
//   any code            the status that Abort was called with on this rank.
#ifndef MUSTER_WORKER_COMM_COMMUNICATOR_H_
#define MUSTER_WORKER_COMM_COMMUNICATOR_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "c10/core/Device.h"

namespace at {
class Tensor;
}

namespace muster::comm {

// The name of an operation, for errors and for its messages. The label is the same on all ranks.
// `what` must live as long as the operation.
struct OpLabel {
  const char* what = "";
  int64_t step = 0;
};

// One operation in flight. Its buffers must stay untouched until Wait has returned OK. After an
// error their contents are undefined and may change until the communicator is destroyed.
// The operation holds its tensors only until it is done (after an error, longer), so the caller may
// drop an input at once. Destroying a Work without Wait waits first. A communicator outlives its
// works.
class Work {
 public:
  virtual ~Work() = default;

  // Blocks until the operation is done on this rank (on CUDA: see above). A later call returns the
  // same status, or an error that was found in the meantime.
  virtual absl::Status Wait() = 0;
};

// The order of additions in sums on CUDA. kFast: NCCL's own order, which depends on the number and
// the connections of the ranks. kRank: the order of the ranks; the bits are those of the CPU.
enum class SumOrder { kFast, kRank };

// Tensors are dense and contiguous; "flat" means that their shape does not matter.
class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int world_size() const = 0;
  // The device of all tensors of this communicator.
  virtual c10::Device device() const = 0;

  // out = the ranks' `in` in rank order. out has world_size times the elements of in. Any type.
  virtual std::unique_ptr<Work> AllGather(const at::Tensor& out, const at::Tensor& in,
                                          OpLabel label) = 0;

  // In place: flat = (rank-ordered sum of the ranks' flat) / divide_by. float32, float64, and int64
  // (which cannot be divided). Every rank gives the same divide_by.
  virtual std::unique_ptr<Work> AllReduceSum(const at::Tensor& flat, OpLabel label,
                                             double divide_by = 1.0) = 0;

  // out = (rank-ordered sum over the ranks of part `rank()` of their `in`) / divide_by. Every rank
  // gives the same divide_by.
  // - Sizes: in has world_size times the elements of out; part r of in is for rank r.
  // - Types: float32, float64, int64 (which cannot be divided), or `in` bfloat16 with `out`
  //   float32. bfloat16 halves the bytes sent: contributions are converted, then summed in float32.
  // - Memory: out may be this rank's own part of in (in place), and must not overlap in otherwise.
  //   The other parts of in do not change.
  virtual std::unique_ptr<Work> ReduceScatterSum(const at::Tensor& out, const at::Tensor& in,
                                                 OpLabel label, double divide_by = 1.0) = 0;

  // in_sizes[j] elements of in, in order, go to rank j. out_sizes[j] elements of out, in order,
  // come from rank j: as many as rank j's in_sizes[rank()]. There is one size per rank; a size may
  // be 0. The sizes add up to the elements of the tensor. Any type. in and out must not overlap.
  virtual std::unique_ptr<Work> AllToAll(const at::Tensor& out,
                                         const std::vector<int64_t>& out_sizes,
                                         const at::Tensor& in, const std::vector<int64_t>& in_sizes,
                                         OpLabel label) = 0;

  // In place: flat = root's flat. Any type.
  virtual std::unique_ptr<Work> Broadcast(const at::Tensor& flat, int root, OpLabel label) = 0;

  // The bytes of tensors that this rank has sent to other ranks since the communicator was made.
  // Only operations without an error count, each once its Wait has returned. comm/local returns the
  // number of bytes that an exchange over the network would send. Thread-safe.
  virtual int64_t bytes_sent() const = 0;

  // The error that has ended the communicator, where the error may be found after the Wait of the
  // operation that failed (CUDA). Otherwise OK.
  virtual absl::Status failure() { return absl::OkStatus(); }

  // Fails all operations in flight and all later operations on this rank with `why`. The operations
  // of the peers fail, too. Idempotent: the first cause stays. Never waits long.
  virtual void Abort(const absl::Status& why) = 0;
};

}  // namespace muster::comm

#endif  // MUSTER_WORKER_COMM_COMMUNICATOR_H_
