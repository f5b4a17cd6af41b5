// The build without --config=cuda.
#include "worker/control/model_communicator.h"

namespace muster::control {

const char* Devices() { return "cpu"; }

absl::Status CheckDevice(v1::JobSpec::Device device) {
  if (device != v1::JobSpec::CUDA) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "device: found cuda; allowed: cpu (this muster-worker is built without CUDA)");
}

absl::StatusOr<std::unique_ptr<comm::Communicator>> ConnectForModel(
    const v1::JobSpec&, const comm::GlooOptions& options, comm::RendezvousStore& store) {
  return comm::CreateGlooCommunicator(options, store);
}

}  // namespace muster::control
