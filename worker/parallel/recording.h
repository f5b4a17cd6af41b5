// A communicator for tests. It records the operations, and writes the output of an all-gather as
// late as allowed: in Wait.
#ifndef MUSTER_WORKER_PARALLEL_RECORDING_H_
#define MUSTER_WORKER_PARALLEL_RECORDING_H_

#include <memory>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "ATen/ops/empty_like.h"
#include "absl/strings/str_cat.h"
#include "c10/core/GradMode.h"
#include "worker/comm/communicator.h"
#include "worker/comm/operation.h"

namespace muster::parallel {

class Recording : public comm::IssuingCommunicator {
 public:
  explicit Recording(comm::Communicator* communicator) : communicator_(communicator) {}
  int rank() const override { return communicator_->rank(); }
  int world_size() const override { return communicator_->world_size(); }
  c10::Device device() const override { return communicator_->device(); }
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

  std::unique_ptr<comm::Work> Issue(comm::OperationSpec spec) override {
    operations.push_back(absl::StrCat(comm::Name(spec.kind), " ", spec.label.what));
    if (spec.kind != comm::OperationKind::kAllGather) return comm::IssueOn(*communicator_, spec);
    auto late = std::make_unique<LateGather>();
    late->out = spec.output;
    late->gathered = at::empty_like(spec.output);
    late->input = spec.input.clone();
    late->work = communicator_->AllGather(late->gathered, late->input, spec.label);
    return late;
  }

  comm::Communicator* const communicator_;
};

}  // namespace muster::parallel

#endif  // MUSTER_WORKER_PARALLEL_RECORDING_H_
