#include "worker/parallel/partial_sums.h"

#include "ATen/ops/empty.h"
#include "common/status/status.h"
#include "worker/device/host_values.h"
#include "worker/device/memory.h"

namespace muster::parallel {

absl::StatusOr<std::vector<PartialSum>> GatherPartialSums(const PartialSum& mine, int64_t step,
                                                          comm::Communicator* communicator) {
  const at::Tensor in = device::On(communicator->device(), device::HostTensor(mine));
  const at::Tensor out = at::empty({2 * communicator->world_size()}, in.options());
  RETURN_IF_ERROR(communicator->AllGather(out, in, {"gradient sums", step})->Wait());
  const at::Tensor table = device::On(at::kCPU, out);
  const auto values = device::HostValues<double>(table);
  std::vector<PartialSum> sums;
  for (size_t i = 0; i < values.size(); i += 2) sums.push_back({values[i], values[i + 1]});
  return sums;
}

}  // namespace muster::parallel
