#include "worker/parallel/gradients/partial_sums.h"

#include "ATen/ops/empty.h"
#include "common/status/status.h"

namespace muster::parallel {

absl::StatusOr<at::Tensor> GatherPartialSums(const at::Tensor& mine, int64_t step,
                                             comm::Communicator* communicator) {
  at::Tensor all = at::empty({communicator->world_size(), mine.numel()}, mine.options());
  RETURN_IF_ERROR(communicator->AllGather(all, mine, {"gradient sums", step})->Wait());
  return all;
}

}  // namespace muster::parallel
