#include "worker/parallel/partial_sums.h"

#include "ATen/ops/empty.h"
#include "common/status/status.h"
#include "worker/device/host_values.h"

namespace muster::parallel {

absl::StatusOr<std::vector<PartialSum>> GatherPartialSums(const PartialSum& mine, int64_t step,
                                                          comm::Communicator* communicator) {
  const at::Tensor out =
      at::empty({2 * communicator->world_size()}, at::TensorOptions(at::kDouble));
  RETURN_IF_ERROR(
      communicator->AllGather(out, device::HostTensor(mine), {"gradient sums", step})->Wait());
  const auto values = device::HostValues<double>(out);
  std::vector<PartialSum> sums;
  for (size_t i = 0; i < values.size(); i += 2) sums.push_back({values[i], values[i + 1]});
  return sums;
}

}  // namespace muster::parallel
