#include "worker/comm/flight/recorded_communicator.h"

#include <utility>

#include "ATen/core/Tensor.h"

namespace muster::comm {
namespace {

class RecordedWork : public Work {
 public:
  RecordedWork(std::unique_ptr<Work> work, FlightRecorder* recorder, uint64_t number)
      : work_(std::move(work)), recorder_(recorder), number_(number) {}
  ~RecordedWork() override {
    work_.reset();  // waits
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
  FlightRecorder* recorder_;  // null once it has ended
  const uint64_t number_;
};

class RecordedCommunicator : public Communicator {
 public:
  RecordedCommunicator(Communicator* communicator, FlightRecorder* recorder, size_t channel)
      : communicator_(communicator), recorder_(recorder), channel_(channel) {}

  int rank() const override { return communicator_->rank(); }
  int world_size() const override { return communicator_->world_size(); }
  c10::Device device() const override { return communicator_->device(); }

  std::unique_ptr<Work> AllGather(const at::Tensor& out, const at::Tensor& in,
                                  OpLabel label) override {
    return Record("all_gather", label, [&] { return communicator_->AllGather(out, in, label); });
  }
  std::unique_ptr<Work> AllReduceSum(const at::Tensor& flat, OpLabel label,
                                     double divide_by) override {
    return Record("all_reduce", label,
                  [&] { return communicator_->AllReduceSum(flat, label, divide_by); });
  }
  std::unique_ptr<Work> ReduceScatterSum(const at::Tensor& out, const at::Tensor& in, OpLabel label,
                                         double divide_by) override {
    return Record("reduce_scatter", label,
                  [&] { return communicator_->ReduceScatterSum(out, in, label, divide_by); });
  }
  std::unique_ptr<Work> AllToAll(const at::Tensor& out, const std::vector<int64_t>& out_sizes,
                                 const at::Tensor& in, const std::vector<int64_t>& in_sizes,
                                 OpLabel label) override {
    return Record("all_to_all", label,
                  [&] { return communicator_->AllToAll(out, out_sizes, in, in_sizes, label); });
  }
  std::unique_ptr<Work> Broadcast(const at::Tensor& flat, int root, OpLabel label) override {
    return Record("broadcast", label, [&] { return communicator_->Broadcast(flat, root, label); });
  }

  int64_t bytes_sent() const override { return communicator_->bytes_sent(); }
  absl::Status failure() override { return communicator_->failure(); }
  void Abort(const absl::Status& why) override { communicator_->Abort(why); }

 private:
  template <typename Issue>
  std::unique_ptr<Work> Record(const char* operation, OpLabel label, const Issue& issue) {
    const uint64_t number = recorder_->Begin(channel_, operation, label);
    return std::make_unique<RecordedWork>(issue(), recorder_, number);
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
