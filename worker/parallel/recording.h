// A communicator for tests. It records the operations that are issued, and writes the output of an
// all-gather as late as it may: in Wait.
#ifndef MUSTER_WORKER_PARALLEL_RECORDING_H_
#define MUSTER_WORKER_PARALLEL_RECORDING_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "ATen/ops/empty_like.h"
#include "absl/strings/str_cat.h"
#include "c10/core/GradMode.h"
#include "worker/comm/communicator.h"

namespace muster::parallel {

class Recording : public comm::Communicator {
 public:
  explicit Recording(comm::Communicator* communicator) : communicator_(communicator) {}
  int rank() const override { return communicator_->rank(); }
  int world_size() const override { return communicator_->world_size(); }
  c10::Device device() const override { return communicator_->device(); }
  std::unique_ptr<comm::Work> AllGather(const at::Tensor& out, const at::Tensor& in,
                                        comm::OpLabel label) override {
    Note("all_gather", label);
    auto late = std::make_unique<LateGather>();
    late->out = out;
    late->gathered = at::empty_like(out);
    late->input = in.clone();
    late->work = communicator_->AllGather(late->gathered, late->input, label);
    return late;
  }
  std::unique_ptr<comm::Work> AllReduceSum(const at::Tensor& flat, comm::OpLabel label,
                                           double divide_by) override {
    Note("all_reduce", label);
    return communicator_->AllReduceSum(flat, label, divide_by);
  }
  std::unique_ptr<comm::Work> ReduceScatterSum(const at::Tensor& out, const at::Tensor& in,
                                               comm::OpLabel label, double divide_by) override {
    Note("reduce_scatter", label);
    return communicator_->ReduceScatterSum(out, in, label, divide_by);
  }
  std::unique_ptr<comm::Work> AllToAll(const at::Tensor& out, const std::vector<int64_t>& out_sizes,
                                       const at::Tensor& in, const std::vector<int64_t>& in_sizes,
                                       comm::OpLabel label) override {
    Note("all_to_all", label);
    return communicator_->AllToAll(out, out_sizes, in, in_sizes, label);
  }
  std::unique_ptr<comm::Work> Broadcast(const at::Tensor& flat, int root,
                                        comm::OpLabel label) override {
    Note("broadcast", label);
    return communicator_->Broadcast(flat, root, label);
  }
  int64_t bytes_sent() const override { return communicator_->bytes_sent(); }
  void Abort(const absl::Status& why) override { communicator_->Abort(why); }

  std::vector<std::string> operations;  // "all_reduce bucket 3"

 private:
  struct LateGather : comm::Work {
    absl::Status Wait() override {
      const absl::Status status = work->Wait();
      c10::NoGradGuard no_grad;
      if (status.ok()) out.copy_(gathered);
      return status;
    }
    at::Tensor out, gathered, input;
    std::unique_ptr<comm::Work> work;
  };

  void Note(const char* operation, comm::OpLabel label) {
    operations.push_back(absl::StrCat(operation, " ", label.what));
  }

  comm::Communicator* const communicator_;
};

}  // namespace muster::parallel

#endif  // MUSTER_WORKER_PARALLEL_RECORDING_H_
