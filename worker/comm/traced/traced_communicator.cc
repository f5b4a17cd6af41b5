#include "worker/comm/traced/traced_communicator.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/comm/operation.h"

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
  Recorder* recorder_;  // null when the span is recorded
  std::string name_;
  const int64_t bytes_;
  const int64_t begin_ = Recorder::Now();
};

class TracedCommunicator : public IssuingCommunicator {
 public:
  TracedCommunicator(Communicator* communicator, Recorder* recorder)
      : communicator_(communicator), recorder_(recorder) {}
  int rank() const override { return communicator_->rank(); }
  int world_size() const override { return communicator_->world_size(); }
  c10::Device device() const override { return communicator_->device(); }

  int64_t bytes_sent() const override { return communicator_->bytes_sent(); }
  absl::Status failure() override { return communicator_->failure(); }
  void Abort(const absl::Status& why) override { communicator_->Abort(why); }

 private:
  std::unique_ptr<Work> Issue(OperationSpec spec) override {
    auto work = IssueOn(*communicator_, spec);
    if (!recorder_->on()) return work;
    const at::Tensor& in = spec.input.defined() ? spec.input : spec.output;
    return std::make_unique<TracedWork>(std::move(work), recorder_,
                                        absl::StrCat(Name(spec.kind), " ", spec.label.what),
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
