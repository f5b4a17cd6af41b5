#include "worker/parallel/buffer_sync.h"

#include <utility>

#include "ATen/ops/empty.h"
#include "ATen/ops/empty_like.h"
#include "ATen/ops/ne.h"
#include "ATen/ops/where.h"
#include "common/status/status.h"
#include "worker/device/memory.h"

namespace muster::parallel {

BufferSync::BufferSync(std::vector<at::Tensor> buffers, comm::Communicator* communicator)
    : buffers_(std::move(buffers)), communicator_(communicator) {
  int64_t bytes = 0;
  for (const at::Tensor& buffer : buffers_) bytes += buffer.nbytes();
  const auto options = at::TensorOptions(at::kByte).device(communicator->device());
  kept_ = at::empty({bytes}, options);
  sent_ = at::empty({bytes}, options);
}

void BufferSync::BeginStep(const StepStart& start) {
  start_ = start;
  settled_ = false;
  work_.reset();  // waits for the broadcast of a step that failed
  Pack(kept_);
}

void BufferSync::Settle() {
  if (!std::exchange(settled_, true)) Pack(sent_);
}

void BufferSync::Launch() {
  if (sent_.numel() == 0) return;
  Settle();
  const int root = start_.buffers_from < 0 ? communicator_->world_size() - 1 : start_.buffers_from;
  work_ = communicator_->Broadcast(sent_, root, {"buffers", start_.step});
}

absl::Status BufferSync::Finish() {
  if (work_ == nullptr) return absl::OkStatus();
  const auto work = std::move(work_);
  RETURN_IF_ERROR(work->Wait());
  Unpack(sent_);
  return absl::OkStatus();
}

void BufferSync::Restore() { Unpack(kept_); }

void BufferSync::RestoreIf(const at::Tensor& skip) {
  if (kept_.numel() == 0) return;
  const at::Tensor now = at::empty_like(kept_);
  Pack(now);
  Unpack(at::where(skip.ne(0), kept_, now));
}

void BufferSync::Pack(const at::Tensor& packed) const {
  int64_t at = 0;
  for (const at::Tensor& buffer : buffers_) {
    const auto bytes = static_cast<int64_t>(buffer.nbytes());
    device::CopyBytes(packed, at, buffer, 0, bytes);
    at += bytes;
  }
}

void BufferSync::Unpack(const at::Tensor& packed) const {
  int64_t at = 0;
  for (const at::Tensor& buffer : buffers_) {
    const auto bytes = static_cast<int64_t>(buffer.nbytes());
    device::CopyBytes(buffer, 0, packed, at, bytes);
    at += bytes;
  }
}

}  // namespace muster::parallel
