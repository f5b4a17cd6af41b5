// The build with --config=cuda.
#include "worker/comm/nccl/nccl_communicator.h"
#include "worker/control/model_communicator.h"

namespace muster::control {

const char* Devices() { return "cpu cuda"; }

absl::Status CheckDevice(v1::JobSpec::Device) { return absl::OkStatus(); }

absl::StatusOr<std::unique_ptr<comm::Communicator>> ConnectForModel(
    const v1::JobSpec& job, const comm::GlooOptions& options, comm::RendezvousStore& store) {
  if (job.device() != v1::JobSpec::CUDA) return comm::CreateGlooCommunicator(options, store);
  return comm::CreateNcclCommunicator(
      {.rank = options.rank,
       .world_size = options.world_size,
       .name = options.name,
       .device = at::Device(at::kCUDA, 0),
       .connect_timeout = options.connect_timeout,
       .timeout = options.timeout,
       .watched = options.watched,
       .order = job.collectives().order() == v1::CollectivesSpec::RANK ? comm::SumOrder::kRank
                                                                       : comm::SumOrder::kFast},
      store);
}

}  // namespace muster::control
