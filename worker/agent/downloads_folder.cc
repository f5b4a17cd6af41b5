#include "worker/agent/downloads_folder.h"

#include <fcntl.h>
#include <grpcpp/client_context.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/downloads/downloads.h"
#include "common/files/disk.h"
#include "common/files/files.h"
#include "common/files/hash.h"
#include "common/files/private_directory.h"
#include "common/rpc/error.h"
#include "common/rpc/rpc.h"
#include "common/status/code_name.h"
#include "common/status/status.h"
#include "common/steady/now.h"
#include "proto/muster/v1/agent_service.grpc.pb.h"

namespace muster::agent {
namespace {

// True for the names that exports::TemporaryPath gives to unfinished files:
// ".JOB-7.JOB-g3-INCARNATION.tmp".
bool IsUnfinished(const std::string& name) {
  return absl::StartsWith(name, ".") && absl::EndsWith(name, ".tmp");
}

void RemoveEach(const std::string& folder, const std::function<bool(const std::string&)>& which) {
  if (folder.empty()) return;
  std::error_code error;
  for (std::filesystem::directory_iterator it(folder, error), end; !error && it != end;
       it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (!which(name)) continue;
    const std::string path = files::JoinPath(folder, name);
    if (unlink(path.c_str()) == 0) {
      spdlog::info("{} is removed", path);
    } else if (errno != ENOENT) {
      spdlog::warn("{}", Message(files::ErrnoStatus(errno, "remove", path)));
    }
  }
  if (error) spdlog::warn("{}", Message(files::ErrnoStatus(error.value(), "list", folder)));
}

constexpr size_t kPieceBytes = size_t{1} << 20;
// The time after which a piece without data is sent, while the beginning of a file is only hashed.
constexpr absl::Duration kSignOfLife = absl::Seconds(5);
// The time between two touches of a file during its transfer, so that the file does not count as
// unfetched.
constexpr absl::Duration kTouch = absl::Minutes(1);
// The limit on transfers at a time, more than a coordinator asks for.
constexpr size_t kMostSendings = 64;

v1::FilePiece Failure(const absl::Status& why) {
  v1::FilePiece piece;
  piece.mutable_failure()->set_code(CodeName(why.code()));
  piece.mutable_failure()->set_reason(absl::IsNotFound(why) ? "DOWNLOAD_GONE"
                                                            : "DOWNLOAD_UNREADABLE");
  piece.mutable_failure()->set_message(Message(why));
  return piece;
}

// The pieces of one file, from the request's offset on.
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

  // Makes the next piece. False: the piece before was the last one.
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

DownloadedFile::~DownloadedFile() {
  if (fd_ >= 0) close(fd_);
}

absl::Status DownloadedFile::ReadAt(uint64_t offset, size_t bytes, char* out) const {
  while (bytes > 0) {
    const ssize_t got = pread(fd_, out, bytes, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return files::ErrnoStatus(errno, "read", "the file");
    if (got == 0) {
      return absl::DataLossError(absl::StrCat("the file ends at ", offset, " of its bytes"));
    }
    out += got;
    offset += static_cast<uint64_t>(got);
    bytes -= static_cast<size_t>(got);
  }
  return absl::OkStatus();
}

void DownloadedFile::Touch() const { (void)futimens(fd_, nullptr); }

absl::Status DownloadsFolder::Open() {
  if (path_.empty()) return absl::OkStatus();
  path_ = std::filesystem::absolute(path_).string();
  if (const absl::Status made = files::MakePrivateDirectory(path_, {}); !made.ok()) {
    path_.clear();
    return made;
  }
  RemoveEach(path_, IsUnfinished);
  return absl::OkStatus();
}

std::map<std::string, std::string> DownloadsFolder::Environment() const {
  if (path_.empty()) return {};
  return {{kDownloadsVariable, path_}};
}

absl::StatusOr<DownloadedFile> DownloadsFolder::Read(const std::string& job_id, uint64_t command,
                                                     uint64_t bytes) const {
  const absl::Status gone = absl::NotFoundError(absl::StrCat(
      "node '", node_, "' does not have the file of operation '", job_id, "/", command,
      "': it was removed because a client has received it, or because nobody fetched it within ",
      absl::FormatDuration(keep_), "; gather again"));
  const std::string path = DownloadPath(path_, job_id, command);
  if (path.empty()) return gone;
  const int fd = open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0 && errno == ENOENT) return gone;
  if (fd < 0) return files::ErrnoStatus(errno, "open", path);
  DownloadedFile file(fd);
  struct stat info = {};
  if (fstat(fd, &info) != 0) return files::ErrnoStatus(errno, "read", path);
  // A file of another size belongs to a deleted job with this id.
  if (!S_ISREG(info.st_mode) || static_cast<uint64_t>(info.st_size) != bytes) return gone;
  return file;
}

void DownloadsFolder::Remove(const std::string& job_id, uint64_t command) const {
  const std::string path = DownloadPath(path_, job_id, command);
  if (path.empty()) return;
  if (unlink(path.c_str()) != 0 && errno != ENOENT) {
    spdlog::warn("{}", Message(files::ErrnoStatus(errno, "remove", path)));
  }
}

void DownloadsFolder::RemoveUnfinished(const WorkerId& worker) const {
  const std::string mark = absl::StrCat("-g", worker.generation, "-", worker.incarnation);
  RemoveEach(path_, [&](const std::string& name) {
    return IsUnfinished(name) && absl::StrContains(name, mark);
  });
}

void DownloadsFolder::RemoveOld(absl::Time now) const {
  RemoveEach(path_, [&](const std::string& name) {
    if (IsUnfinished(name)) return false;  // its worker still writes the file
    struct stat info = {};
    if (lstat(files::JoinPath(path_, name).c_str(), &info) != 0 || !S_ISREG(info.st_mode)) {
      return false;
    }
    return now - absl::TimeFromTimespec(info.st_mtim) >= keep_;
  });
}

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
