#include "worker/comm/gloo/mesh.h"

#include <algorithm>
#include <csignal>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "ATen/ops/from_blob.h"
#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "torch/csrc/distributed/c10d/PrefixStore.hpp"
#include "torch/csrc/distributed/c10d/ProcessGroupGloo.hpp"
#include "worker/comm/gloo/exceptions.h"
#include "worker/comm/gloo/rendezvous_impl.h"

namespace muster::comm {
namespace {

// The number of connections between two ranks: one for each direction. A sending thread holds
// Gloo's lock on the connection while the kernel copies. When data arrives on the same connection
// meanwhile, Gloo's polling thread tries the lock again and again, perhaps on the sender's core.
// With a single connection a step of 8 x 1024 took 16% longer.
constexpr uint32_t kConnections = 2;

class GlooMesh;

class GlooTransfer : public Transfer {
 public:
  GlooTransfer(GlooMesh* mesh, int peer, uint32_t tag, c10::intrusive_ptr<c10d::Work> work)
      : mesh_(mesh), peer_(peer), tag_(tag), work_(std::move(work)) {}
  ~GlooTransfer() override;

  int peer() const override { return peer_; }
  uint32_t tag() const { return tag_; }

  absl::Status Wait(std::chrono::milliseconds limit) override {
    bool finished = false;
    const absl::Status status = CatchExceptions([&] { finished = work_->wait(limit); });
    if (!status.ok()) return Gone(status, peer_);
    return finished ? absl::OkStatus() : absl::CancelledError("cancelled");
  }

  void Cancel() { work_->abort(); }

  static absl::Status Gone(const absl::Status& why, int peer) {
    return absl::UnavailableError(
        absl::StrCat("rank ", peer, " is gone: ", std::string(why.message())));
  }

 private:
  GlooMesh* const mesh_;
  const int peer_;
  const uint32_t tag_;
  const c10::intrusive_ptr<c10d::Work> work_;
};

class GlooMesh : public Mesh {
 public:
  explicit GlooMesh(c10::intrusive_ptr<c10d::ProcessGroupGloo> group) : group_(std::move(group)) {}

  MaybeTransfer Send(const void* data, size_t bytes, int peer, uint32_t tag) override {
    return Post(peer, tag, [&] {
      std::vector<at::Tensor> tensors{AsTensor(const_cast<void*>(data), bytes)};
      return group_->send(tensors, peer, WireTag(tag, group_->getRank(), peer));
    });
  }

  MaybeTransfer Receive(void* data, size_t bytes, int peer, uint32_t tag) override {
    return Post(peer, tag, [&] {
      std::vector<at::Tensor> tensors{AsTensor(data, bytes)};
      return group_->recv(tensors, peer, WireTag(tag, peer, group_->getRank()));
    });
  }

  void CancelFrom(uint32_t tag) override {
    absl::MutexLock lock(&mu_);
    cancelled_from_ = std::min(cancelled_from_, tag);
    for (GlooTransfer* transfer : transfers_) {
      if (transfer->tag() >= tag) transfer->Cancel();
    }
  }

  void Remove(GlooTransfer* transfer) {
    absl::MutexLock lock(&mu_);
    transfers_.erase(transfer);
  }

 private:
  // Returns the tag for c10d, which picks the device, and so the connection, by tag modulo the
  // number of devices (kConnections).
  static int WireTag(uint32_t tag, int from, int to) {
    return static_cast<int>(kConnections * tag + (from < to ? 1 : 0));
  }

  static at::Tensor AsTensor(void* data, size_t bytes) {
    return at::from_blob(data, {static_cast<int64_t>(bytes)}, at::TensorOptions(at::kByte));
  }

  // Calls the group, which is not thread-safe, under the lock. The group only queues the message.
  template <typename Function>
  MaybeTransfer Post(int peer, uint32_t tag, Function&& post) {
    absl::MutexLock lock(&mu_);
    if (tag >= cancelled_from_) return absl::CancelledError("cancelled");
    c10::intrusive_ptr<c10d::Work> work;
    const absl::Status status = CatchExceptions([&] { work = post(); });
    if (!status.ok()) return GlooTransfer::Gone(status, peer);
    auto transfer = std::make_unique<GlooTransfer>(this, peer, tag, std::move(work));
    transfers_.insert(transfer.get());
    return transfer;
  }

  absl::Mutex mu_;
  const c10::intrusive_ptr<c10d::ProcessGroupGloo> group_;
  uint32_t cancelled_from_ ABSL_GUARDED_BY(mu_) = std::numeric_limits<uint32_t>::max();
  std::set<GlooTransfer*> transfers_ ABSL_GUARDED_BY(mu_);
};

GlooTransfer::~GlooTransfer() { mesh_->Remove(this); }

// Gloo writes to sockets without MSG_NOSIGNAL. Without this function a dead peer would kill the
// process by SIGPIPE instead of causing an error. A handler that the program has set stays.
void IgnoreSigpipe() {
  struct sigaction action = {};
  if (sigaction(SIGPIPE, nullptr, &action) == 0 && action.sa_handler == SIG_DFL) {
    action.sa_handler = SIG_IGN;
    sigaction(SIGPIPE, &action, nullptr);
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<Mesh>> CreateMesh(const GlooOptions& options,
                                                 RendezvousStore& store) {
  IgnoreSigpipe();
  c10::intrusive_ptr<c10d::ProcessGroupGloo> group;
  const absl::Status status = CatchExceptions([&] {
    auto gloo = c10d::ProcessGroupGloo::Options::create(options.connect_timeout);
    for (uint32_t i = 0; i < kConnections; ++i) {
      gloo->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname(options.hostname));
    }
    gloo->threads = 1;  // for collectives, which are not used
    auto prefixed =
        c10::make_intrusive<c10d::PrefixStore>("comm/" + options.name, store.impl().store);
    group = c10::make_intrusive<c10d::ProcessGroupGloo>(prefixed, options.rank, options.world_size,
                                                        gloo);
  });
  if (!status.ok()) {
    return absl::Status(
        status.code(),
        absl::StrCat("rank ", options.rank, ": cannot connect communicator '", options.name,
                     "' of ", options.world_size, " ranks: ", std::string(status.message())));
  }
  return std::make_unique<GlooMesh>(std::move(group));
}

}  // namespace muster::comm
