// The communicators for the tensors of the model: its gradients and parameters. A worker is built
// for the CPU, or with --config=cuda for the CPU and GPUs.
#ifndef MUSTER_WORKER_CONTROL_MODEL_COMMUNICATOR_H_
#define MUSTER_WORKER_CONTROL_MODEL_COMMUNICATOR_H_

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/muster/v1/job_spec.pb.h"
#include "worker/comm/communicator.h"
#include "worker/comm/gloo/gloo_communicator.h"
#include "worker/comm/gloo/rendezvous.h"

namespace muster::control {

// The devices for which this worker is built: "cpu" or "cpu cuda".
const char* Devices();

// INVALID_ARGUMENT: this worker is not built for the device.
absl::Status CheckDevice(v1::JobSpec::Device device);

// Returns a communicator for the job's device, which CheckDevice has accepted: Gloo for the CPU, or
// NCCL for GPUs, with the first GPU that the rank sees. It adds in the job's order. Blocks until
// all ranks are connected. options: those of Gloo; NCCL gets the same. Errors: those of
// comm/gloo/gloo_communicator.h and comm/nccl/nccl_communicator.h.
absl::StatusOr<std::unique_ptr<comm::Communicator>> ConnectForModel(
    const v1::JobSpec& job, const comm::GlooOptions& options, comm::RendezvousStore& store);

}  // namespace muster::control

#endif  // MUSTER_WORKER_CONTROL_MODEL_COMMUNICATOR_H_
