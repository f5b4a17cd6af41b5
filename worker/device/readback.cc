#include "worker/device/readback.h"

#include "ATen/ops/cat.h"
#include "c10/core/GradMode.h"
#include "worker/device/host_values.h"
#include "worker/device/memory.h"

namespace muster::device {

Readback::Readback(const std::vector<at::Tensor>& tensors) {
  if (tensors.empty()) return;
  const c10::NoGradGuard no_grad;
  std::vector<at::Tensor> flat;
  flat.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) flat.push_back(tensor.to(at::kDouble).view({-1}));
  const at::Tensor all = at::cat(flat);
  host_ = HostLike(all);
  CopyAll(host_, all);
  copied_ = Event::Now(all.device());
}

absl::Span<const double> Readback::Await() const {
  if (!host_.defined()) return {};
  copied_.Await();
  return HostValues<double>(host_);
}

}  // namespace muster::device
