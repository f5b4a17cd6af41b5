#include "worker/comm/nccl/nccl_communicator.h"

#include <nccl.h>

#include <atomic>
#include <deque>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "ATen/ops/empty.h"
#include "ATen/ops/full.h"
#include "ATen/ops/ones.h"
#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "c10/core/DeviceGuard.h"
#include "c10/core/GradMode.h"
#include "c10/core/StreamGuard.h"
#include "c10/core/impl/VirtualGuardImpl.h"
#include "c10/cuda/CUDAStream.h"
#include "common/status/status.h"
#include "common/steady/now.h"
#include "worker/comm/gloo/exceptions.h"
#include "worker/comm/nccl/nccl_group.h"
#include "worker/comm/operation.h"
#include "worker/comm/slices.h"
#include "worker/device/event.h"
#include "worker/device/memory.h"

namespace muster::comm {
namespace {

// The time between two checks of the operations in flight.
constexpr absl::Duration kLook = absl::Milliseconds(20);

ncclDataType_t TypeOf(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kDouble:
      return ncclFloat64;
    case at::kLong:
      return ncclInt64;
    default:  // CheckArguments refuses all other types of sums
      return ncclFloat32;
  }
}

char* Bytes(const at::Tensor& tensor) { return static_cast<char*>(tensor.mutable_data_ptr()); }

// Returns a part of a flat tensor, with its own version counter.
at::Tensor PartOf(const at::Tensor& tensor, int64_t begin, int64_t elements) {
  return tensor.variable_data().view({-1}).narrow(0, begin, elements);
}

// Sends to a peer and receives from it. Must be called within a group of NCCL calls.
void SendAndReceive(ncclComm_t comm, cudaStream_t stream, const char* from, int64_t sent, char* to,
                    int64_t received, int peer, ncclResult_t* result) {
  const auto note = [result](ncclResult_t one) {
    if (one != ncclSuccess && one != ncclInProgress) *result = one;
  };
  if (sent > 0) note(ncclSend(from, sent, ncclInt8, peer, comm, stream));
  if (received > 0) note(ncclRecv(to, received, ncclInt8, peer, comm, stream));
}

// Divides by a tensor on the device. With a number of the host, CUDA would multiply by its
// reciprocal, which gives other bits.
void Divide(at::Tensor sum, double divide_by) {
  if (divide_by != 1.0) sum.div_(at::full({}, divide_by, sum.options()));
}

// An operation that is on the communicator's stream.
struct Flight {
  std::string what;  // "all_gather 'layers.1' at step 3"
  device::Event done;
  absl::Time begun;
};

class NcclCommunicator;

class NcclWork : public Work {
 public:
  NcclWork(NcclCommunicator* communicator, OperationSpec spec, device::Event done)
      : communicator_(communicator), spec_(std::move(spec)), done_(std::move(done)) {}
  ~NcclWork() override { Wait().IgnoreError(); }
  absl::Status Wait() override;

 private:
  NcclCommunicator* const communicator_;
  absl::Mutex mutex_;
  OperationSpec spec_ ABSL_GUARDED_BY(mutex_);
  const device::Event done_;
  bool waited_ ABSL_GUARDED_BY(mutex_) = false;
};

class NcclCommunicator : public Communicator {
 public:
  NcclCommunicator(const NcclOptions& options, std::unique_ptr<NcclGroup> group)
      : options_(options),
        group_(std::move(group)),
        stream_(c10::impl::VirtualGuardImpl(at::kCUDA).getStreamFromGlobalPool(
            options.device, /*isHighPriority=*/true)),
        watch_([this] { Watch(); }) {}
  ~NcclCommunicator() override {
    // Wait only orders streams, so the last operations may still run.
    AwaitFlights();
    {
      absl::MutexLock lock(&mutex_);
      closing_ = true;
    }
    watch_.join();
    if (failure().ok()) Note(group_->Finish(options_.timeout));
  }

  int rank() const override { return options_.rank; }
  int world_size() const override { return options_.world_size; }
  c10::Device device() const override { return options_.device; }

  std::unique_ptr<Work> AllGather(const at::Tensor& out, const at::Tensor& in,
                                  OpLabel label) override {
    return Start({OperationKind::kAllGather, label, rank(), out, in}, [&] {
      return Run([&](ncclComm_t comm) {
        return ncclAllGather(Bytes(in), Bytes(out), in.nbytes(), ncclInt8, comm, raw_stream());
      });
    });
  }

  std::unique_ptr<Work> AllReduceSum(const at::Tensor& flat, OpLabel label,
                                     double divide_by) override {
    OperationSpec spec{OperationKind::kAllReduceSum, label, rank(), flat};
    spec.divide_by = divide_by;
    return Start(std::move(spec), [&]() -> absl::Status {
      if (options_.order == SumOrder::kRank) return AllReduceInRankOrder(flat, divide_by);
      RETURN_IF_ERROR(Run([&](ncclComm_t comm) {
        return ncclAllReduce(Bytes(flat), Bytes(flat), flat.numel(), TypeOf(flat), ncclSum, comm,
                             raw_stream());
      }));
      Divide(PartOf(flat, 0, flat.numel()), divide_by);
      return absl::OkStatus();
    });
  }

  std::unique_ptr<Work> ReduceScatterSum(const at::Tensor& out, const at::Tensor& in, OpLabel label,
                                         double divide_by) override {
    OperationSpec spec{OperationKind::kReduceScatterSum, label, rank(), out, in};
    spec.divide_by = divide_by;
    return Start(std::move(spec), [&]() -> absl::Status {
      // NCCL would add bfloat16 numbers in bfloat16.
      const bool converts = in.scalar_type() != out.scalar_type();
      if (converts || options_.order == SumOrder::kRank) {
        std::vector<Slice> parts;
        for (int peer = 0; peer < world_size(); ++peer) {
          parts.push_back({peer * out.numel(), (peer + 1) * out.numel()});
        }
        return ReduceInRankOrder(in, parts, PartOf(out, 0, out.numel()), divide_by);
      }
      RETURN_IF_ERROR(Run([&](ncclComm_t comm) {
        return ncclReduceScatter(Bytes(in), Bytes(out), out.numel(), TypeOf(out), ncclSum, comm,
                                 raw_stream());
      }));
      Divide(PartOf(out, 0, out.numel()), divide_by);
      return absl::OkStatus();
    });
  }

  std::unique_ptr<Work> AllToAll(const at::Tensor& out, const std::vector<int64_t>& out_sizes,
                                 const at::Tensor& in, const std::vector<int64_t>& in_sizes,
                                 OpLabel label) override {
    OperationSpec spec{OperationKind::kAllToAll, label, rank(), out, in};
    spec.out_sizes = out_sizes;
    spec.in_sizes = in_sizes;
    return Start(std::move(spec), [&] {
      const int64_t element = in.element_size();
      return Run([&](ncclComm_t comm) {
        ncclResult_t result = ncclSuccess;
        int64_t from = 0, to = 0;
        for (int peer = 0; peer < world_size(); ++peer) {
          SendAndReceive(comm, raw_stream(), Bytes(in) + from, in_sizes[peer] * element,
                         Bytes(out) + to, out_sizes[peer] * element, peer, &result);
          from += in_sizes[peer] * element;
          to += out_sizes[peer] * element;
        }
        return result;
      });
    });
  }

  std::unique_ptr<Work> Broadcast(const at::Tensor& flat, int root, OpLabel label) override {
    OperationSpec spec{OperationKind::kBroadcast, label, rank(), flat};
    spec.root = root;
    return Start(std::move(spec), [&] {
      return Run([&](ncclComm_t comm) {
        return ncclBroadcast(Bytes(flat), Bytes(flat), flat.nbytes(), ncclInt8, root, comm,
                             raw_stream());
      });
    });
  }

  int64_t bytes_sent() const override { return bytes_sent_; }

  void Abort(const absl::Status& why) override {
    {
      absl::MutexLock lock(&mutex_);
      if (!failure_.ok()) return;
      failure_ = why;
      flights_.clear();
    }
    group_->Abort();
  }

  // Keeps the tensors of an operation until this object is destroyed. After a failure, kernels may
  // use the tensors until NCCL has ended the kernels.
  void Keep(const OperationSpec& spec) {
    absl::MutexLock lock(&mutex_);
    kept_.push_back(spec);
  }

  absl::Status failure() override {
    absl::MutexLock lock(&mutex_);
    return failure_;
  }
  void Sent(int64_t bytes) { bytes_sent_ += bytes; }

 private:
  absl::Status Run(const std::function<ncclResult_t(ncclComm_t)>& calls) {
    return group_->Run(calls, options_.timeout);
  }
  cudaStream_t raw_stream() const { return c10::cuda::CUDAStream(stream_).stream(); }

  // Waits until all operations have ended, or have failed.
  void AwaitFlights() {
    absl::MutexLock lock(&mutex_);
    const auto over = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return flights_.empty() || !failure_.ok();
    };
    mutex_.Await(absl::Condition(&over));  // Watch() ends late operations
  }

  void Note(const absl::Status& status) {
    if (!status.ok()) Abort(status);
  }

  // Issues the operation on the communicator's stream: `issue` runs with this stream as the current
  // one.
  template <typename Issue>
  std::unique_ptr<Work> Start(OperationSpec spec, const Issue& issue) {
    std::unique_ptr<Work> work;
    const absl::Status thrown = CatchExceptions([&] { work = StartIt(spec, issue); });
    if (thrown.ok()) return work;
    Abort(thrown);
    Keep(spec);
    return DoneWork(WithOperation(spec, failure()));
  }

  template <typename Issue>
  std::unique_ptr<Work> StartIt(OperationSpec spec, const Issue& issue) {
    spec.device = options_.device;
    if (absl::Status wrong = CheckArguments(spec, world_size()); !wrong.ok()) {
      return DoneWork(std::move(wrong));
    }
    if (const absl::Status failed = failure(); !failed.ok()) {
      return DoneWork(WithOperation(spec, failed));
    }
    const c10::NoGradGuard no_grad;
    const auto ready = device::Event::Now(options_.device);
    const c10::StreamGuard guard(stream_);
    ready.Precede(options_.device);
    if (const absl::Status failed = issue(); !failed.ok()) {
      Abort(failed);
      Keep(spec);
      return DoneWork(WithOperation(spec, failure()));
    }
    auto done = device::Event::Now(options_.device);
    {
      absl::MutexLock lock(&mutex_);
      flights_.push_back({Describe(spec), done, SteadyNow()});
    }
    return std::make_unique<NcclWork>(this, std::move(spec), std::move(done));
  }

  // sum = (rank-ordered sum of the ranks' part `rank()` of `in`) / divide_by. `sum` may be this
  // rank's own part of `in`.
  absl::Status ReduceInRankOrder(const at::Tensor& in, const std::vector<Slice>& parts,
                                 at::Tensor sum, double divide_by) {
    const int64_t own = parts[rank()].size();
    const at::Tensor others = at::empty({world_size(), own}, in.options());
    const int64_t element = in.element_size();
    RETURN_IF_ERROR(Run([&](ncclComm_t comm) {
      ncclResult_t result = ncclSuccess;
      for (int peer = 0; peer < world_size(); ++peer) {
        if (peer == rank()) continue;
        SendAndReceive(comm, raw_stream(), Bytes(in) + parts[peer].begin * element,
                       parts[peer].size() * element, Bytes(others) + peer * own * element,
                       own * element, peer, &result);
      }
      return result;
    }));
    if (own == 0) return absl::OkStatus();
    const auto contribution = [&](int peer) {
      return peer == rank() ? PartOf(in, parts[peer].begin, own) : others.select(0, peer);
    };
    at::Tensor total = contribution(0).to(sum.scalar_type(), /*non_blocking=*/true, /*copy=*/true);
    for (int peer = 1; peer < world_size(); ++peer) {
      total.add_(contribution(peer).to(sum.scalar_type()));
    }
    Divide(total, divide_by);
    sum.copy_(total, /*non_blocking=*/true);
    return absl::OkStatus();
  }

  absl::Status AllReduceInRankOrder(const at::Tensor& flat, double divide_by) {
    std::vector<Slice> parts;
    for (int peer = 0; peer < world_size(); ++peer) {
      parts.push_back(SliceOf(flat.numel(), peer, world_size()));
    }
    const Slice own = parts[rank()];
    RETURN_IF_ERROR(ReduceInRankOrder(flat, parts, PartOf(flat, own.begin, own.size()), divide_by));
    const int64_t element = flat.element_size();
    return Run([&](ncclComm_t comm) {
      ncclResult_t result = ncclSuccess;
      for (int peer = 0; peer < world_size(); ++peer) {
        if (peer == rank()) continue;
        SendAndReceive(comm, raw_stream(), Bytes(flat) + own.begin * element, own.size() * element,
                       Bytes(flat) + parts[peer].begin * element, parts[peer].size() * element,
                       peer, &result);
      }
      return result;
    });
  }

  void Watch() {
    const c10::DeviceGuard guard(options_.device);
    while (true) {
      {
        absl::MutexLock lock(&mutex_);
        mutex_.AwaitWithTimeout(absl::Condition(&closing_), kLook);
        if (closing_) return;
      }
      absl::Status found = group_->Poll();
      if (found.ok()) {
        // The device reports an error by an exception.
        const absl::Status thrown = CatchExceptions([&] { found = FindLate(); });
        found.Update(thrown);
      }
      Note(found);
    }
  }

  // Removes operations that have ended. DEADLINE_EXCEEDED if the oldest operation takes too long.
  absl::Status FindLate() {
    while (true) {
      Flight oldest;
      {
        absl::MutexLock lock(&mutex_);
        if (flights_.empty()) return absl::OkStatus();
        oldest = flights_.front();
      }
      const bool reached = oldest.done.Reached();
      if (!reached && SteadyNow() - oldest.begun < absl::FromChrono(options_.timeout)) {
        return absl::OkStatus();
      }
      const bool watched = !reached && options_.watched && options_.watched();
      absl::MutexLock lock(&mutex_);
      if (flights_.empty()) return absl::OkStatus();  // Abort was called
      if (reached) {
        flights_.pop_front();
        if (!flights_.empty()) flights_.front().begun = SteadyNow();
        continue;
      }
      if (watched) {
        flights_.front().begun = SteadyNow();
        return absl::OkStatus();
      }
      return absl::DeadlineExceededError(
          absl::StrCat(oldest.what, " did not end within ",
                       absl::FormatDuration(absl::FromChrono(options_.timeout)),
                       ": a rank did not take part, or a GPU hangs"));
    }
  }

  const NcclOptions options_;
  const std::unique_ptr<NcclGroup> group_;
  const c10::Stream stream_;
  std::atomic<int64_t> bytes_sent_ = 0;
  absl::Mutex mutex_;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);  // the first failure
  std::deque<Flight> flights_ ABSL_GUARDED_BY(mutex_);
  std::vector<OperationSpec> kept_ ABSL_GUARDED_BY(mutex_);
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread watch_;
};

absl::Status NcclWork::Wait() {
  absl::MutexLock lock(&mutex_);
  absl::Status failed = communicator_->failure();
  if (failed.ok()) {
    failed = CatchExceptions([this] { done_.Precede(communicator_->device()); });
    if (!failed.ok()) communicator_->Abort(failed);
  }
  if (!failed.ok()) {
    communicator_->Keep(spec_);
    ReleaseTensors(spec_);
    return WithOperation(spec_, failed);
  }
  if (!std::exchange(waited_, true)) {
    communicator_->Sent(BytesToSend(spec_, communicator_->world_size()));
    ReleaseTensors(spec_);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Communicator>> CreateNcclCommunicator(const NcclOptions& options,
                                                                     RendezvousStore& store) {
  const c10::DeviceGuard guard(options.device);
  const std::string key = absl::StrCat("nccl/", options.name);
  if (options.rank == 0) {
    ASSIGN_OR_RETURN(const std::string id, NcclGroup::NewId());
    RETURN_IF_ERROR(store.Put(key, id));
  }
  ASSIGN_OR_RETURN(const std::string id, store.Await(key, options.connect_timeout));
  auto group = NcclGroup::Create(id, options.rank, options.world_size, options.connect_timeout);
  RETURN_IF_ERROR(Annotate(
      group.status(), absl::StrCat("rank ", options.rank, ": communicator '", options.name, "'")));
  auto communicator = std::make_unique<NcclCommunicator>(options, *std::move(group));
  // The ranks connect in their first operation.
  const at::Tensor one = at::ones({1}, at::TensorOptions(at::kFloat).device(options.device));
  RETURN_IF_ERROR(communicator->AllReduceSum(one, {"connecting", 0}, 1.0)->Wait());
  return communicator;
}

}  // namespace muster::comm
