#include "worker/comm/staged/staged_communicator.h"

#include <deque>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/status/status.h"
#include "common/steady/now.h"
#include "worker/comm/gloo/exceptions.h"
#include "worker/comm/operation.h"
#include "worker/device/event.h"
#include "worker/device/memory.h"

namespace muster::comm {
namespace {

// The time between two checks of a device that has not reached an operation yet.
constexpr absl::Duration kPoll = absl::Microseconds(50);

// An operation that is shared by the issuing thread and the threads that wait for the operation.
class Issued {
 public:
  void Set(std::unique_ptr<Work> work) {
    absl::MutexLock lock(&mutex_);
    work_ = std::move(work);
  }

  // Waits until the operation is issued and done on the host.
  absl::Status Wait() {
    Work* work = nullptr;
    {
      absl::MutexLock lock(&mutex_, absl::Condition(this, &Issued::IsSet));
      work = work_.get();
    }
    return work->Wait();
  }

 private:
  bool IsSet() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return work_ != nullptr; }

  absl::Mutex mutex_;
  std::unique_ptr<Work> work_ ABSL_GUARDED_BY(mutex_);
};

class StagedWork : public Work {
 public:
  StagedWork(std::shared_ptr<Issued> issued, at::Tensor output, at::Tensor host)
      : issued_(std::move(issued)), output_(std::move(output)), host_(std::move(host)) {}
  ~StagedWork() override { Wait().IgnoreError(); }

  absl::Status Wait() override {
    absl::Status status = issued_->Wait();
    absl::MutexLock lock(&mutex_);
    if (status.ok() && output_.defined()) {
      // Gives the copy to the current stream. LibTorch keeps pinned memory until the copy is done.
      const at::Tensor to = output_, from = host_;
      copied_ = CatchExceptions([&] { device::CopyAll(to, from); });
    }
    output_.reset();
    host_.reset();
    status.Update(copied_);
    return status;
  }

 private:
  const std::shared_ptr<Issued> issued_;
  absl::Mutex mutex_;
  at::Tensor output_ ABSL_GUARDED_BY(mutex_);  // undefined after the copy
  at::Tensor host_ ABSL_GUARDED_BY(mutex_);
  absl::Status copied_ ABSL_GUARDED_BY(mutex_);
};

class StagedCommunicator : public IssuingCommunicator {
 public:
  StagedCommunicator(std::unique_ptr<Communicator> host, const StagedOptions& options)
      : host_(std::move(host)), options_(options), thread_([this] { IssueInOrder(); }) {}
  ~StagedCommunicator() override {
    {
      absl::MutexLock lock(&mutex_);
      closing_ = true;
    }
    thread_.join();
  }

  int rank() const override { return host_->rank(); }
  int world_size() const override { return host_->world_size(); }
  c10::Device device() const override { return options_.device; }

  int64_t bytes_sent() const override { return host_->bytes_sent(); }

  void Abort(const absl::Status& why) override {
    // First on the host: later operations then fail, so no peer gets an input that the device has
    // not copied yet.
    host_->Abort(why);
    absl::MutexLock lock(&mutex_);
    aborted_ = true;  // nothing waits for the device from here
  }

 private:
  struct Request {
    device::Event ready;    // behind the copy of the input
    OperationSpec on_host;  // with tensors in host memory
    std::shared_ptr<Issued> issued;
  };

  std::unique_ptr<Work> Issue(OperationSpec spec) override {
    spec.device = options_.device;
    if (absl::Status wrong = CheckArguments(spec, world_size()); !wrong.ok()) {
      return DoneWork(std::move(wrong));
    }
    const bool in_place = !spec.input.defined();
    const at::Tensor& given = in_place ? spec.output : spec.input;
    const at::Tensor host_in = device::HostLike(given);
    device::CopyAll(host_in, given);
    const at::Tensor host_out = in_place ? host_in : device::HostLike(spec.output);
    auto issued = std::make_shared<Issued>();
    auto ready = device::Event::Now(options_.device);
    const at::Tensor output = std::exchange(spec.output, host_out);
    if (!in_place) spec.input = host_in;
    {
      absl::MutexLock lock(&mutex_);
      requests_.push_back(
          {.ready = std::move(ready), .on_host = std::move(spec), .issued = issued});
    }
    return std::make_unique<StagedWork>(std::move(issued), output, host_out);
  }

  void IssueInOrder() {
    while (true) {
      Request request;
      {
        absl::MutexLock lock(&mutex_, absl::Condition(this, &StagedCommunicator::HasToAct));
        if (requests_.empty()) return;  // closing
        request = std::move(requests_.front());
        requests_.pop_front();
      }
      if (const absl::Status late = AwaitDevice(request); !late.ok()) Abort(late);
      request.issued->Set(IssueOn(*host_, request.on_host));
    }
  }

  absl::Status AwaitDevice(const Request& request) {
    const absl::Time end = SteadyNow() + absl::FromChrono(options_.timeout);
    bool reached = false;
    const auto look = [&] { reached = request.ready.Reached(); };
    while (true) {
      RETURN_IF_ERROR(CatchExceptions(look));  // the device has failed
      if (reached) return absl::OkStatus();
      if (Aborted()) return absl::OkStatus();  // the operation fails on the host
      if (SteadyNow() >= end) {
        return absl::DeadlineExceededError(
            absl::StrCat("the device ", options_.device.str(), " has not come to ",
                         Describe(request.on_host), " within ",
                         absl::FormatDuration(absl::FromChrono(options_.timeout))));
      }
      absl::SleepFor(kPoll);
    }
  }

  bool Aborted() {
    absl::MutexLock lock(&mutex_);
    return aborted_;
  }
  bool HasToAct() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return closing_ || !requests_.empty();
  }

  const std::unique_ptr<Communicator> host_;
  const StagedOptions options_;
  absl::Mutex mutex_;
  std::deque<Request> requests_ ABSL_GUARDED_BY(mutex_);
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  bool aborted_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace

std::unique_ptr<Communicator> Staged(std::unique_ptr<Communicator> host,
                                     const StagedOptions& options) {
  return std::make_unique<StagedCommunicator>(std::move(host), options);
}

}  // namespace muster::comm
