// Collectives between the ranks of one generation.
//
// Life cycle: created once per generation and never changed. After an error a communicator cannot
// be used any more: every operation in flight and every later one fails at once with the same root
// cause. The next generation creates another one. The destructor never hangs, not even after an
// error.
//
// Order: all ranks issue the same operations, with the same shapes, in the same order. Several
// operations may be in flight; they may be waited for in any order.
//
// Threading: one thread issues operations; any thread may Wait or Abort.
//
// Devices: all tensors of a communicator are on one device. On the CPU, Wait blocks until the
// operation is done. On CUDA an operation begins behind what the current stream was given before
// the call, and Wait puts it in front of what the current stream is given afterwards; comm/nccl
// never blocks the host for that. An error that is found later fails the operations and Waits that
// follow.
//
// Sums are rank-ordered, except on CUDA with SumOrder::kFast: element i of the result is ((r0[i] +
// r1[i]) + r2[i]) + ..., divided once, in the result's own type. So the bits of the result depend
// neither on where a buffer begins nor on the implementation, and a reduce-scatter gives the same
// bits as an all-reduce.
//
// Errors (absl::Status of Work::Wait):
//   INVALID_ARGUMENT    this rank's own call is wrong (shape, type, root, overlap); nothing was
//                       sent, the communicator stays usable on this rank, but the ranks are out of
//                       step.
//   UNAVAILABLE         a peer is gone or aborted, or its communicator was destroyed early.
//                       "rank 1: all_reduce 'bucket 3' at step 17: rank 0 is gone: <why>"
//   DEADLINE_EXCEEDED   a peer is alive but did not take part within the timeout.
//   FAILED_PRECONDITION the ranks issued different operations (found by comm/local). With Gloo such
//                       ranks wait for each other, until the watchdog or the timeout ends them.
//   what Abort was given on this rank.
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

// Names an operation, in errors and in its messages: equal on all ranks. `what` must live as long
// as the operation.
struct OpLabel {
  const char* what = "";
  int64_t step = 0;
};

// One operation in flight. Buffers must stay untouched until Wait has returned OK; after an error
// their contents are undefined and may change until the communicator is destroyed. The operation
// keeps its tensors alive until it is done (after an error, as long as they are needed), and no
// longer: the caller may drop an input at once. Destroying a Work without Wait waits first. A
// communicator outlives its works.
class Work {
 public:
  virtual ~Work() = default;

  // Blocks until the operation is done on this rank (on CUDA: see above). May be called again, and
  // then returns the same status, or an error that was found since.
  virtual absl::Status Wait() = 0;
};

// How sums are computed on CUDA: in NCCL's own order, which depends on the number of ranks and on
// how they are connected; or in the order of the ranks, with the same bits as on the CPU.
enum class SumOrder { kFast, kRank };

// Tensors are dense and contiguous; "flat" means that their shape does not matter.
class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int world_size() const = 0;
  // Of all its tensors.
  virtual c10::Device device() const = 0;

  // out = the ranks' `in` in rank order; out has world_size times the elements of in. Any type.
  virtual std::unique_ptr<Work> AllGather(const at::Tensor& out, const at::Tensor& in,
                                          OpLabel label) = 0;

  // In place: flat = (rank-ordered sum of the ranks' flat) / divide_by. float32, float64, and int64
  // (which cannot be divided). Every rank gives the same divide_by.
  virtual std::unique_ptr<Work> AllReduceSum(const at::Tensor& flat, OpLabel label,
                                             double divide_by = 1.0) = 0;

  // out = (rank-ordered sum over the ranks of part `rank()` of their `in`) / divide_by; in has
  // world_size times the elements of out, part r of it for rank r. float32, float64, and int64
  // (which cannot be divided); or `in` bfloat16 with `out` float32: the contributions are
  // converted, then summed in float32, so half the bytes are sent. out may be this rank's own part
  // of in (in place); it must not overlap in otherwise. in is not changed elsewhere. Every rank
  // gives the same divide_by.
  virtual std::unique_ptr<Work> ReduceScatterSum(const at::Tensor& out, const at::Tensor& in,
                                                 OpLabel label, double divide_by = 1.0) = 0;

  // in_sizes[j] elements of in, in order, go to rank j; out_sizes[j] elements of out, in order,
  // come from rank j: the same number as rank j's in_sizes[rank()]. Sizes may be 0; one per rank,
  // and they add up to the tensor's elements. Any type. in and out must not overlap.
  virtual std::unique_ptr<Work> AllToAll(const at::Tensor& out,
                                         const std::vector<int64_t>& out_sizes,
                                         const at::Tensor& in, const std::vector<int64_t>& in_sizes,
                                         OpLabel label) = 0;

  // In place: flat = root's flat. Any type.
  virtual std::unique_ptr<Work> Broadcast(const at::Tensor& flat, int root, OpLabel label) = 0;

  // Bytes of tensors that this rank has sent to other ranks since the communicator was made, in all
  // operations that are done without an error: an operation counts once its Wait returns.
  // comm/local returns the number of bytes that an exchange over the network would send. May be
  // called from any thread.
  virtual int64_t bytes_sent() const = 0;

  // The error that has ended the communicator, if it was found after the Wait of the operation that
  // failed, as on CUDA it may be; otherwise OK.
  virtual absl::Status failure() { return absl::OkStatus(); }

  // Fails all operations in flight and all later ones with `why` on this rank, and tells the peers,
  // whose operations fail, too. Idempotent: the first cause stays. Never waits long for a peer.
  virtual void Abort(const absl::Status& why) = 0;
};

}  // namespace muster::comm

#endif  // MUSTER_WORKER_COMM_COMMUNICATOR_H_
