// A communicator for tests of memory. It is rank 1 of four and has no peers: data from other ranks
// are not written, or are zero. An operation is in flight until the caller waits for it.
#ifndef MUSTER_WORKER_PARALLEL_HOLDING_COMMUNICATOR_H_
#define MUSTER_WORKER_PARALLEL_HOLDING_COMMUNICATOR_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "ATen/core/Tensor.h"
#include "worker/comm/communicator.h"
#include "worker/comm/operation.h"

namespace muster::parallel {

// Holds the input of a reduce-scatter until the caller waits; the output is zero. The other
// operations change nothing.
class HoldingCommunicator : public comm::IssuingCommunicator {
 public:
  int rank() const override { return 1; }
  int world_size() const override { return 4; }
  c10::Device device() const override { return at::kCPU; }
  int64_t bytes_sent() const override { return 0; }
  void Abort(const absl::Status&) override {}

  int64_t reduced_bytes = 0;  // of the inputs of all reduce-scatters

 private:
  struct Holding : comm::Work {
    explicit Holding(std::optional<at::Tensor> held) : held(std::move(held)) {}
    absl::Status Wait() override {
      held.reset();
      return absl::OkStatus();
    }
    std::optional<at::Tensor> held;
  };

  std::unique_ptr<comm::Work> Issue(comm::OperationSpec spec) override {
    if (spec.kind != comm::OperationKind::kReduceScatterSum) {
      return std::make_unique<Holding>(std::nullopt);
    }
    spec.output.zero_();
    reduced_bytes += static_cast<int64_t>(spec.input.nbytes());
    return std::make_unique<Holding>(spec.input);
  }
};

}  // namespace muster::parallel

#endif  // MUSTER_WORKER_PARALLEL_HOLDING_COMMUNICATOR_H_
