#include "worker/comm/traced/traced_communicator.h"

#include <string>
#include <utility>

#include "ATen/core/Tensor.h"
#include "absl/strings/str_cat.h"

namespace muster::comm {
namespace {

using trace::Recorder;

class TracedWork : public Work {
 public:
  TracedWork(std::unique_ptr<Work> work, Recorder* recorder, std::string name, int64_t bytes)
      : work_(std::move(work)), recorder_(recorder), name_(std::move(name)), bytes_(bytes) {}
  ~TracedWork() override { Wait().IgnoreError(); }

  absl::Status Wait() override {
    const absl::Status status = work_->Wait();
    if (recorder_ == nullptr) return status;
    std::exchange(recorder_, nullptr)
        ->Span(trace::Lane::kCollectives, std::move(name_), begin_, bytes_);
    return status;
  }

 private:
  const std::unique_ptr<Work> work_;
  Recorder* recorder_;  // null once it is recorded
  std::string name_;
  const int64_t bytes_;
  const int64_t begin_ = Recorder::Now();
};

class TracedCommunicator : public Communicator {
 public:
  TracedCommunicator(Communicator* communicator, Recorder* recorder)
      : communicator_(communicator), recorder_(recorder) {}
  int rank() const override { return communicator_->rank(); }
  int world_size() const override { return communicator_->world_size(); }
  c10::Device device() const override { return communicator_->device(); }

  std::unique_ptr<Work> AllGather(const at::Tensor& out, const at::Tensor& in,
                                  OpLabel label) override {
    return Trace(communicator_->AllGather(out, in, label), "all_gather", label, in);
  }
  std::unique_ptr<Work> AllReduceSum(const at::Tensor& flat, OpLabel label,
                                     double divide_by) override {
    return Trace(communicator_->AllReduceSum(flat, label, divide_by), "all_reduce", label, flat);
  }
  std::unique_ptr<Work> ReduceScatterSum(const at::Tensor& out, const at::Tensor& in, OpLabel label,
                                         double divide_by) override {
    return Trace(communicator_->ReduceScatterSum(out, in, label, divide_by), "reduce_scatter",
                 label, in);
  }
  std::unique_ptr<Work> AllToAll(const at::Tensor& out, const std::vector<int64_t>& out_sizes,
                                 const at::Tensor& in, const std::vector<int64_t>& in_sizes,
                                 OpLabel label) override {
    return Trace(communicator_->AllToAll(out, out_sizes, in, in_sizes, label), "all_to_all", label,
                 in);
  }
  std::unique_ptr<Work> Broadcast(const at::Tensor& flat, int root, OpLabel label) override {
    return Trace(communicator_->Broadcast(flat, root, label), "broadcast", label, flat);
  }

  int64_t bytes_sent() const override { return communicator_->bytes_sent(); }
  absl::Status failure() override { return communicator_->failure(); }
  void Abort(const absl::Status& why) override { communicator_->Abort(why); }

 private:
  std::unique_ptr<Work> Trace(std::unique_ptr<Work> work, const char* operation, OpLabel label,
                              const at::Tensor& in) {
    if (!recorder_->on()) return work;
    return std::make_unique<TracedWork>(std::move(work), recorder_,
                                        absl::StrCat(operation, " ", label.what),
                                        static_cast<int64_t>(in.nbytes()));
  }

  Communicator* const communicator_;
  Recorder* const recorder_;
};

}  // namespace

std::unique_ptr<Communicator> Traced(Communicator* communicator, Recorder* recorder) {
  return std::make_unique<TracedCommunicator>(communicator, recorder);
}

}  // namespace muster::comm
