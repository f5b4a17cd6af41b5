#include "worker/parallel/partial_sums.h"

#include <cstring>

#include "ATen/ops/empty.h"
#include "common/status/status.h"

namespace muster::parallel {

absl::StatusOr<std::vector<PartialSum>> GatherPartialSums(const PartialSum& mine, int64_t step,
                                                          comm::Communicator* communicator) {
  const at::TensorOptions options(at::kDouble);
  const at::Tensor in = at::empty({2}, options);
  const at::Tensor out = at::empty({2 * communicator->world_size()}, options);
  std::memcpy(in.mutable_data_ptr(), mine.data(), sizeof(mine));
  RETURN_IF_ERROR(communicator->AllGather(out, in, {"gradient sums", step})->Wait());
  std::vector<PartialSum> sums(communicator->world_size());
  std::memcpy(sums.data(), out.const_data_ptr(), sums.size() * sizeof(mine));
  return sums;
}

}  // namespace muster::parallel
