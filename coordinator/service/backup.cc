#include "coordinator/service/backup.h"

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <fstream>
#include <memory>
#include <string>
#include <thread>

#include "coordinator/membership/refusal.h"
#include "coordinator/service/wire.h"

namespace muster::service {
namespace {

constexpr size_t kChunkBytes = 1 << 20;

absl::Status Failed(const absl::Status& why) {
  return Refuse(why.code(), "BACKUP_FAILED", std::string(why.message()));
}

class BackupStream : public grpc::ServerWriteReactor<v1::BackupChunk> {
 public:
  BackupStream(store::Store* store, std::atomic<bool>* running)
      : store_(store), running_(running) {}

  void Begin() {
    if (running_->exchange(true)) {
      holds_ = false;
      Finish(ToWire(Refuse(absl::StatusCode::kResourceExhausted, "BACKUP_RUNNING",
                           "another backup is being made; try again when it is done", LimitOf(1))));
      return;
    }
    // The copy may take long, and gRPC's threads must not wait for a disk. gRPC keeps this object
    // until Finish.
    std::thread([this] { Copy(); }).detach();
  }

  void OnWriteDone(bool ok) override { ok ? SendNext() : Finish(ToWire(ClientGone())); }
  void OnDone() override {
    if (holds_) running_->store(false);
    delete this;
  }

 private:
  void Copy() {
    const absl::StatusOr<std::string> path = store_->Backup();
    if (!path.ok()) return Finish(ToWire(Failed(path.status())));
    file_.open(*path, std::ios::binary);
    // The open file does not need its name any more. Without a name it is removed even if the
    // process ends now.
    unlink(path->c_str());
    SendNext();
  }

  void SendNext() {
    std::string& data = *chunk_.mutable_data();
    data.resize(kChunkBytes);
    file_.read(data.data(), static_cast<std::streamsize>(data.size()));
    data.resize(static_cast<size_t>(file_.gcount()));
    if (file_.bad() || (data.empty() && !file_.eof())) {
      return Finish(ToWire(Failed(absl::UnavailableError("the copy of the store cannot be read"))));
    }
    if (data.empty()) return Finish(grpc::Status::OK);
    StartWrite(&chunk_);
  }

  store::Store* const store_;
  std::atomic<bool>* const running_;
  bool holds_ = true;
  std::ifstream file_;
  v1::BackupChunk chunk_;
};

}  // namespace

grpc::ServerWriteReactor<v1::BackupChunk>* StartBackup(const std::string& requester,
                                                       store::Store* store,
                                                       std::atomic<bool>* running) {
  spdlog::info("a backup of the store was asked for by {}", requester);
  auto* stream = new BackupStream(store, running);
  stream->Begin();
  return stream;
}

}  // namespace muster::service
