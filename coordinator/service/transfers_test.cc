#include "coordinator/service/transfers.h"

#include <grpcpp/client_context.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "common/rpc/error.h"
#include "common/rpc/rpc.h"
#include "coordinator/limits/limits.h"
#include "proto/muster/v1/agent_service.grpc.pb.h"
#include "proto/muster/v1/operation_service.grpc.pb.h"

namespace muster::service {
namespace {

// Only the calls: a download begins at once, and the test asks for its name.
class Downloads : public v1::OperationService::CallbackService {
 public:
  explicit Downloads(Transfers* transfers) : transfers_(transfers) {}
  grpc::ServerWriteReactor<v1::FilePiece>* Download(grpc::CallbackServerContext*,
                                                    const v1::DownloadRequest*) override {
    const auto [stream, transfer] = transfers_->AcceptClient();
    const auto name = transfers_->Begin(transfer, "n1");
    if (!name.ok()) transfer->Fail(name.status());
    absl::MutexLock lock(&mutex_);
    names_.push_back(name.value_or(""));
    return stream;
  }
  std::string Name(size_t index) {
    absl::MutexLock lock(&mutex_);
    const auto there = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return names_.size() > index; };
    mutex_.Await(absl::Condition(&there));
    return names_[index];
  }

 private:
  Transfers* const transfers_;
  absl::Mutex mutex_;
  std::vector<std::string> names_ ABSL_GUARDED_BY(mutex_);
};

class Agents : public v1::AgentService::CallbackService {
 public:
  explicit Agents(Transfers* transfers) : transfers_(transfers) {}
  grpc::ServerReadReactor<v1::FilePiece>* SendFile(grpc::CallbackServerContext*,
                                                   v1::SendFileResponse*) override {
    return transfers_->AcceptAgent();
  }

 private:
  Transfers* const transfers_;
};

v1::FilePiece Piece(const std::string& data, const std::string& hash = "") {
  v1::FilePiece piece;
  piece.set_data(data);
  piece.set_hash(hash);
  return piece;
}

class TransfersTest : public testing::Test {
 protected:
  // A client's call.
  struct Client {
    explicit Client(TransfersTest* test) {
      reader = test->operations_->Download(&context, v1::DownloadRequest());
    }
    std::string ReadAll() {
      std::string all;
      for (v1::FilePiece piece; reader->Read(&piece);) {
        EXPECT_EQ(piece.transfer(), "") << "it is none of the client's business";
        all += piece.data() + piece.hash();
      }
      return all;
    }
    absl::Status Finish() { return FromGrpc(reader->Finish()); }

    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientReader<v1::FilePiece>> reader;
  };
  // An agent's call.
  struct Agent {
    Agent(TransfersTest* test, const std::string& transfer) : name(transfer) {
      writer = test->agents_->SendFile(&context, &response);
    }
    bool Write(v1::FilePiece piece) {
      if (!std::exchange(named, true)) piece.set_transfer(name);
      return writer->Write(piece);
    }
    absl::Status Finish() {
      writer->WritesDone();
      return FromGrpc(writer->Finish());
    }

    const std::string name;
    bool named = false;
    grpc::ClientContext context;
    v1::SendFileResponse response;
    std::unique_ptr<grpc::ClientWriter<v1::FilePiece>> writer;
  };

  Transfers transfers_;
  Downloads download_service_{&transfers_};
  Agents agent_service_{&transfers_};
  std::unique_ptr<Server> server_ =
      Server::Start(ServerOptions::InsecureLoopback(), {&download_service_, &agent_service_})
          .value();
  std::shared_ptr<grpc::Channel> channel_ = OpenChannel(server_->address());
  std::unique_ptr<v1::OperationService::Stub> operations_ = v1::OperationService::NewStub(channel_);
  std::unique_ptr<v1::AgentService::Stub> agents_ = v1::AgentService::NewStub(channel_);
};

TEST_F(TransfersTest, WhatTheAgentSendsTheClientReceives) {
  Client client(this);
  Agent agent(this, download_service_.Name(0));
  EXPECT_TRUE(agent.Write(Piece("one ")));
  EXPECT_TRUE(agent.Write(Piece("")));
  EXPECT_TRUE(agent.Write(Piece("two ")));
  EXPECT_TRUE(agent.Write(Piece("", "hash")));
  EXPECT_EQ(client.ReadAll(), "one two hash");
  EXPECT_TRUE(client.Finish().ok());
  EXPECT_TRUE(agent.Finish().ok());
}

TEST_F(TransfersTest, TheAgentsErrorReachesTheClientWithItsReason) {
  Client client(this);
  Agent agent(this, download_service_.Name(0));
  v1::FilePiece failure;
  failure.mutable_failure()->set_code("NOT_FOUND");
  failure.mutable_failure()->set_reason("DOWNLOAD_GONE");
  failure.mutable_failure()->set_message("it was removed");
  agent.Write(failure);
  EXPECT_EQ(client.ReadAll(), "");
  const absl::Status told = client.Finish();
  EXPECT_TRUE(absl::IsNotFound(told));
  EXPECT_EQ(ErrorReason(told), "DOWNLOAD_GONE");
  EXPECT_EQ(told.message(), "it was removed");
  EXPECT_TRUE(agent.Finish().ok());
}

TEST_F(TransfersTest, AClientThatLeavesStopsTheAgent) {
  Client client(this);
  Agent agent(this, download_service_.Name(0));
  ASSERT_TRUE(agent.Write(Piece("one")));
  v1::FilePiece piece;
  ASSERT_TRUE(client.reader->Read(&piece));
  client.context.TryCancel();
  while (agent.Write(Piece(std::string(1 << 20, 'x')))) {
  }
  EXPECT_TRUE(absl::IsCancelled(agent.Finish()));
  EXPECT_TRUE(absl::IsCancelled(client.Finish()));
}

TEST_F(TransfersTest, AnAgentThatStopsMakesTheClientTryAgain) {
  for (const bool breaks : {true, false}) {
    Client client(this);
    Agent agent(this, download_service_.Name(breaks ? 0 : 1));
    ASSERT_TRUE(agent.Write(Piece("one")));
    v1::FilePiece piece;
    ASSERT_TRUE(client.reader->Read(&piece));
    if (breaks) agent.context.TryCancel();
    EXPECT_TRUE(absl::IsCancelled(agent.Finish()));
    EXPECT_EQ(client.ReadAll(), "");
    const absl::Status told = client.Finish();
    EXPECT_TRUE(absl::IsUnavailable(told));
    EXPECT_EQ(told.message(), "the agent of node 'n1' stopped sending before the end");
  }
}

TEST_F(TransfersTest, AnAgentForWhichNobodyWaitsIsRefused) {
  Agent unknown(this, "no such transfer");
  unknown.Write(Piece("one"));
  EXPECT_EQ(ErrorReason(unknown.Finish()), "TRANSFER_NOT_FOUND");
  Client client(this);
  Agent first(this, download_service_.Name(0));
  ASSERT_TRUE(first.Write(Piece("one")));
  v1::FilePiece piece;
  ASSERT_TRUE(client.reader->Read(&piece));
  Agent second(this, download_service_.Name(0));
  second.Write(Piece("two"));
  EXPECT_EQ(ErrorReason(second.Finish()), "TRANSFER_NOT_FOUND");
  EXPECT_TRUE(first.Write(Piece("", "hash")));
  EXPECT_EQ(client.ReadAll(), "hash");
  EXPECT_TRUE(client.Finish().ok() && first.Finish().ok());
}

TEST_F(TransfersTest, SomeAtATime) {
  std::vector<std::unique_ptr<Client>> clients;
  for (size_t i = 0; i < kLimits.downloads; ++i) {
    clients.push_back(std::make_unique<Client>(this));
    EXPECT_NE(download_service_.Name(i), "");
  }
  {
    Client refused(this);
    EXPECT_EQ(refused.ReadAll(), "");
    EXPECT_EQ(ErrorReason(refused.Finish()), "TOO_MANY_DOWNLOADS");
  }
  Agent agent(this, download_service_.Name(3));
  agent.Write(Piece("", "hash"));
  EXPECT_EQ(clients[3]->ReadAll(), "hash");
  EXPECT_TRUE(clients[3]->Finish().ok());
  EXPECT_TRUE(agent.Finish().ok());
  Client another(this);
  EXPECT_NE(download_service_.Name(kLimits.downloads + 1), "");
  transfers_.EndAll(absl::UnavailableError("stopping"));
  EXPECT_EQ(another.Finish().message(), "stopping");
  clients.erase(clients.begin() + 3);
  for (auto& client : clients) EXPECT_EQ(client->Finish().message(), "stopping");
  Client late(this);
  EXPECT_EQ(late.Finish().message(), "stopping");
}

}  // namespace
}  // namespace muster::service
