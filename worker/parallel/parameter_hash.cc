#include "worker/parallel/parameter_hash.h"

#include "ATen/ops/empty.h"
#include "absl/strings/str_cat.h"
#include "common/status/status.h"
#include "worker/device/host_values.h"
#include "worker/device/memory.h"

namespace muster::parallel {

absl::Status CheckEqualOnAllRanks(const std::vector<std::string>& names,
                                  const std::vector<at::Tensor>& tensors, int64_t step,
                                  comm::Communicator* communicator) {
  const int64_t count = tensors.size();
  const int world_size = communicator->world_size();
  if (world_size == 1) return absl::OkStatus();
  const at::Tensor mine = device::Hashes(communicator->device(), tensors);
  const at::Tensor all = at::empty({world_size * count}, mine.options());
  RETURN_IF_ERROR(communicator->AllGather(all, mine, {"parameter hashes", step})->Wait());

  const at::Tensor table = device::On(at::kCPU, all);
  const auto hashes = device::HostValues<int64_t>(table);
  for (int64_t i = 0; i < count; ++i) {
    std::string differing;
    int found = 0;
    for (int rank = 1; rank < world_size; ++rank) {
      if (hashes[rank * count + i] == hashes[i]) continue;
      if (++found <= 3) absl::StrAppend(&differing, found > 1 ? ", " : "", rank);
    }
    if (found == 0) continue;
    if (found > 3) absl::StrAppend(&differing, " and ", found - 3, " more");
    return absl::DataLossError(
        absl::StrCat("step ", step, ": ", names[i], " differs from rank 0's on rank ", differing));
  }
  return absl::OkStatus();
}

absl::Status CheckModelEqualOnAllRanks(const std::vector<models::Parameter>& parameters,
                                       const std::vector<models::Buffer>& buffers, int64_t step,
                                       comm::Communicator* communicator) {
  std::vector<std::string> names;
  std::vector<at::Tensor> tensors;
  for (const auto& [name, tensor] : parameters) {
    names.push_back(absl::StrCat("parameter '", name, "'"));
    tensors.push_back(tensor);
  }
  for (const auto& [name, tensor] : buffers) {
    names.push_back(absl::StrCat("buffer '", name, "'"));
    tensors.push_back(tensor);
  }
  return CheckEqualOnAllRanks(names, tensors, step, communicator);
}

}  // namespace muster::parallel
