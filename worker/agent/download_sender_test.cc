#include "worker/agent/downloads_folder.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "common/files/files.h"
#include "common/files/hash.h"
#include "common/files/temp_dir.h"
#include "common/rpc/rpc.h"
#include "common/steady/test_bound.h"
#include "proto/muster/v1/agent_service.grpc.pb.h"

namespace muster::agent {
namespace {

// A service that takes files, one after the other.
class Receiver : public v1::AgentService::Service {
 public:
  grpc::Status SendFile(grpc::ServerContext*, grpc::ServerReader<v1::FilePiece>* reader,
                        v1::SendFileResponse*) override {
    std::vector<v1::FilePiece> pieces;
    for (v1::FilePiece piece; reader->Read(&piece);) {
      pieces.push_back(piece);
      absl::MutexLock lock(&mutex_);
      ++begun_;
      mutex_.Await(absl::Condition(&open_));
    }
    absl::MutexLock lock(&mutex_);
    files_.push_back(std::move(pieces));
    return grpc::Status::OK;
  }
  std::vector<v1::FilePiece> Next() {
    absl::MutexLock lock(&mutex_);
    const auto some = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return !files_.empty(); };
    if (!mutex_.AwaitWithTimeout(absl::Condition(&some), kTestBound)) return {};
    std::vector<v1::FilePiece> file = files_.front();
    files_.erase(files_.begin());
    return file;
  }
  // Waits until the first piece of a file was taken. No other piece is taken while the receiver is
  // not open.
  void AwaitBegun() {
    absl::MutexLock lock(&mutex_);
    const auto begun = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return begun_ > 0; };
    EXPECT_TRUE(mutex_.AwaitWithTimeout(absl::Condition(&begun), kTestBound));
  }
  void SetOpen(bool open) {
    absl::MutexLock lock(&mutex_);
    open_ = open;
  }

 private:
  absl::Mutex mutex_;
  bool open_ ABSL_GUARDED_BY(mutex_) = true;
  int begun_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<std::vector<v1::FilePiece>> files_ ABSL_GUARDED_BY(mutex_);
};

class DownloadSenderTest : public testing::Test {
 protected:
  void SetUp() override {
    server_ = Server::Start(ServerOptions::InsecureLoopback(), {&receiver_}).value();
    ASSERT_TRUE(folder_.Open().ok());
    for (size_t i = 0; i < (size_t{5} << 19); ++i) contents_ += static_cast<char>(i * 7 + i / 999);
    ASSERT_TRUE(files::WriteAtomically(outside_.Path("d/job-7"), contents_).ok());
  }
  DownloadSender::Connect Connect() const {
    return [address = server_->address()] { return OpenChannel(address); };
  }
  v1::SendDownload Request(uint64_t offset) const {
    v1::SendDownload request;
    request.set_transfer("t");
    request.set_job_id("job");
    request.set_command(7);
    request.set_bytes(contents_.size());
    request.set_offset(offset);
    return request;
  }

  Receiver receiver_;
  std::unique_ptr<Server> server_;
  files::TempDir outside_;
  DownloadsFolder folder_{"n1", outside_.Path("d"), absl::Hours(1)};
  std::string contents_;
};

TEST_F(DownloadSenderTest, AFileIsSentFromAnOffsetOnInPiecesAndWithItsHash) {
  DownloadSender sender(Connect(), &folder_);
  for (const uint64_t offset : {uint64_t{0}, uint64_t{1234567}, uint64_t{contents_.size()}}) {
    sender.Send(Request(offset));
    const auto pieces = receiver_.Next();
    ASSERT_FALSE(pieces.empty());
    EXPECT_EQ(pieces[0].transfer(), "t");
    std::string got;
    for (const v1::FilePiece& piece : pieces) {
      EXPECT_LE(piece.data().size(), size_t{1} << 20);
      EXPECT_EQ(piece.offset(), offset + got.size());
      EXPECT_EQ(piece.hash().empty(), &piece != &pieces.back());
      got += piece.data();
    }
    EXPECT_EQ(got, contents_.substr(offset));
    EXPECT_EQ(pieces.back().hash(), files::HashBytes(contents_.data(), contents_.size()));
    EXPECT_EQ(pieces.back().data(), "");
  }
}

TEST_F(DownloadSenderTest, TheClientHearsWhyItCannotBeSent) {
  DownloadSender sender(Connect(), &folder_);
  folder_.Remove("job", 7);
  sender.Send(Request(0));
  const auto pieces = receiver_.Next();
  ASSERT_EQ(pieces.size(), 1u);
  EXPECT_EQ(pieces[0].transfer(), "t");
  EXPECT_EQ(pieces[0].failure().code(), "NOT_FOUND");
  EXPECT_EQ(pieces[0].failure().reason(), "DOWNLOAD_GONE");
  EXPECT_NE(pieces[0].failure().message().find("node 'n1'"), std::string::npos);
}

TEST_F(DownloadSenderTest, ASenderThatEndsBreaksOffWhatIsBeingSent) {
  receiver_.SetOpen(false);
  // The size of a file that does not fit into the buffers of a connection.
  constexpr uint64_t kLarge = uint64_t{256} << 20;
  std::filesystem::resize_file(outside_.Path("d/job-7"), kLarge);
  v1::SendDownload request = Request(0);
  request.set_bytes(kLarge);
  {
    DownloadSender sender(Connect(), &folder_);
    sender.Send(request);
    receiver_.AwaitBegun();
  }
  receiver_.SetOpen(true);
  const auto pieces = receiver_.Next();
  EXPECT_TRUE(pieces.empty() || pieces.back().hash().empty());
}

}  // namespace
}  // namespace muster::agent
