#include "worker/comm/flight/recorded_communicator.h"

#include <utility>

#include "worker/comm/operation.h"

namespace muster::comm {
namespace {

class RecordedWork : public Work {
 public:
  RecordedWork(std::unique_ptr<Work> work, FlightRecorder* recorder, uint64_t number)
      : work_(std::move(work)), recorder_(recorder), number_(number) {}
  ~RecordedWork() override {
    work_.reset();  // waits for the end of the operation
    End();
  }

  absl::Status Wait() override {
    const absl::Status status = work_->Wait();
    End();
    return status;
  }

 private:
  void End() {
    if (recorder_ != nullptr) std::exchange(recorder_, nullptr)->End(number_);
  }

  std::unique_ptr<Work> work_;
  FlightRecorder* recorder_;  // null when the end is recorded
  const uint64_t number_;
};

class RecordedCommunicator : public IssuingCommunicator {
 public:
  RecordedCommunicator(Communicator* communicator, FlightRecorder* recorder, size_t channel)
      : communicator_(communicator), recorder_(recorder), channel_(channel) {}

  int rank() const override { return communicator_->rank(); }
  int world_size() const override { return communicator_->world_size(); }
  c10::Device device() const override { return communicator_->device(); }

  int64_t bytes_sent() const override { return communicator_->bytes_sent(); }
  absl::Status failure() override { return communicator_->failure(); }
  void Abort(const absl::Status& why) override { communicator_->Abort(why); }

 private:
  std::unique_ptr<Work> Issue(OperationSpec spec) override {
    const uint64_t number = recorder_->Begin(channel_, Name(spec.kind), spec.label);
    return std::make_unique<RecordedWork>(IssueOn(*communicator_, spec), recorder_, number);
  }

  Communicator* const communicator_;
  FlightRecorder* const recorder_;
  const size_t channel_;
};

}  // namespace

std::unique_ptr<Communicator> Recorded(Communicator* communicator, FlightRecorder* recorder,
                                       size_t channel) {
  return std::make_unique<RecordedCommunicator>(communicator, recorder, channel);
}

}  // namespace muster::comm
