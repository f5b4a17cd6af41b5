#include "worker/agent/download_sender.h"

#include <grpcpp/client_context.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/files/hash.h"
#include "common/rpc/error.h"
#include "common/rpc/rpc.h"
#include "common/status/code_name.h"
#include "common/status/status.h"
#include "common/steady/now.h"
#include "proto/muster/v1/agent_service.grpc.pb.h"

namespace muster::agent {
namespace {

constexpr size_t kPieceBytes = size_t{1} << 20;
// While the beginning of a file is only hashed, a piece without data is sent this often.
constexpr absl::Duration kSignOfLife = absl::Seconds(5);
// A file that is being sent is touched this often, so that it is not removed as one that nobody
// fetches.
constexpr absl::Duration kTouch = absl::Minutes(1);
// More than a coordinator asks for at a time.
constexpr size_t kMostSendings = 64;

v1::FilePiece Failure(const absl::Status& why) {
  v1::FilePiece piece;
  piece.mutable_failure()->set_code(CodeName(why.code()));
  piece.mutable_failure()->set_reason(absl::IsNotFound(why) ? "DOWNLOAD_GONE"
                                                            : "DOWNLOAD_UNREADABLE");
  piece.mutable_failure()->set_message(Message(why));
  return piece;
}

// One file, from the request's offset on.
class Pieces {
 public:
  Pieces(const v1::SendDownload& request, const DownloadsFolder& folder)
      : request_(request),
        file_(folder.Read(request.job_id(), request.command(), request.bytes())) {
    if (file_.ok()) file_->Touch();
  }
  ~Pieces() {
    if (file_.ok()) file_->Touch();
  }

  // False: the one before was the last one.
  bool Next(v1::FilePiece* piece) {
    piece->Clear();
    if (ended_) return false;
    const absl::Status filled = Fill(piece);
    if (filled.ok()) return true;
    ended_ = true;
    *piece = Failure(filled);
    return true;
  }

 private:
  absl::Status Fill(v1::FilePiece* piece) {
    RETURN_IF_ERROR(file_.status());
    if (SteadyNow() - touched_ >= kTouch) {
      file_->Touch();
      touched_ = SteadyNow();
    }
    const absl::Time begun = SteadyNow();
    std::string& data = *piece->mutable_data();
    while (position_ < request_.offset()) {
      if (SteadyNow() - begun >= kSignOfLife) {
        data.clear();
        piece->set_offset(request_.offset());
        return absl::OkStatus();
      }
      RETURN_IF_ERROR(Read(std::min(kPieceBytes, request_.offset() - position_), &data));
    }
    data.clear();
    piece->set_offset(position_);
    if (position_ == request_.bytes()) {
      piece->set_hash(hasher_.Hex());
      ended_ = true;
      return absl::OkStatus();
    }
    return Read(std::min(kPieceBytes, request_.bytes() - position_), &data);
  }

  absl::Status Read(size_t bytes, std::string* data) {
    data->resize(bytes);
    RETURN_IF_ERROR(file_->ReadAt(position_, bytes, data->data()));
    hasher_.Update(data->data(), bytes);
    position_ += bytes;
    return absl::OkStatus();
  }

  const v1::SendDownload request_;
  const absl::StatusOr<DownloadedFile> file_;
  files::Hasher hasher_;
  uint64_t position_ = 0;
  absl::Time touched_ = SteadyNow();
  bool ended_ = false;
};

}  // namespace

struct DownloadSender::Sending {
  grpc::ClientContext context;
  std::atomic<bool> done = false;
  std::thread thread;
};

DownloadSender::DownloadSender(Connect connect, const DownloadsFolder* folder)
    : connect_(std::move(connect)), folder_(folder) {}

DownloadSender::~DownloadSender() {
  for (const auto& sending : sendings_) sending->context.TryCancel();
  for (const auto& sending : sendings_) sending->thread.join();
}

void DownloadSender::Send(const v1::SendDownload& request) {
  sendings_.remove_if([](const std::unique_ptr<Sending>& sending) {
    if (!sending->done) return false;
    sending->thread.join();
    return true;
  });
  if (sendings_.size() >= kMostSendings) {
    spdlog::error("the file of operation {}/{} is not sent: {} others are", request.job_id(),
                  request.command(), sendings_.size());
    return;
  }
  Sending* sending = sendings_.emplace_back(std::make_unique<Sending>()).get();
  sending->thread = std::thread([this, sending, request] {
    const auto stub = v1::AgentService::NewStub(connect_());
    v1::SendFileResponse response;
    const auto writer = stub->SendFile(&sending->context, &response);
    Pieces pieces(request, *folder_);
    v1::FilePiece piece;
    for (bool first = true; pieces.Next(&piece); first = false) {
      if (first) piece.set_transfer(request.transfer());
      if (!writer->Write(piece)) break;
    }
    writer->WritesDone();
    const absl::Status sent = FromGrpc(writer->Finish());
    if (!sent.ok()) {
      spdlog::warn("the file of operation {}/{} was not sent to its end: {}", request.job_id(),
                   request.command(), Message(sent));
    }
    sending->done = true;
  });
}

}  // namespace muster::agent
