// Whole workers as threads of this process, with a coordinator that only welcomes them,
// acknowledges reports, and records them.
#include "worker/control/run_worker.h"

#include <gmock/gmock.h>
#include <grpcpp/server_context.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "common/jobspec/jobspec.h"
#include "common/rpc/error.h"
#include "common/rpc/rpc.h"
#include "proto/muster/v1/worker_service.grpc.pb.h"
#include "worker/memory/counting_allocator.h"

namespace muster::control {
namespace {

using ::testing::HasSubstr;
using ServerStream = grpc::ServerReaderWriter<v1::WorkerDirective, v1::WorkerMessage>;

class NotingCoordinator : public v1::WorkerService::Service {
 public:
  NotingCoordinator() {
    server_ = Server::Start(ServerOptions::InsecureLoopback(), {this}).value();
  }

  // The welcome of a rank. Set it before the workers start.
  v1::WorkerWelcome& welcome(uint32_t rank) { return welcomes_[rank]; }
  // The failures in the order of their arrival; read them after the workers have ended.
  const std::vector<std::pair<uint32_t, v1::WorkerFailure>>& failures() const { return failures_; }
  // The exports that the coordinator was asked to grant, and granted; read them after the workers'
  // end.
  const std::vector<v1::ExportReady>& exports_ready() const { return exports_ready_; }
  // The newest heartbeat when a rank had finished; read it after the workers' end.
  const v1::WorkerHeartbeat& last_heartbeat(uint32_t rank) { return heartbeats_[rank]; }
  std::string address() const { return server_->address(); }

  grpc::Status Attach(grpc::ServerContext*, ServerStream* stream) override {
    v1::WorkerMessage message;
    stream->Read(&message);
    const uint32_t rank = message.hello().worker().rank();
    if (welcomes_.count(rank) == 0) return ToGrpc(absl::FailedPreconditionError("stale"));
    {
      std::lock_guard lock(mutex_);
      streams_[rank] = stream;
      v1::WorkerDirective directive;
      *directive.mutable_welcome() = welcomes_[rank];
      stream->Write(directive);
      if (meeting_.has_rendezvous()) stream->Write(meeting_);
    }
    while (stream->Read(&message)) {
      if (!message.has_report()) continue;
      const v1::WorkerReport report = message.report();
      // A finished worker waits for the acknowledgement.
      while (report.has_finished() && stream->Read(&message) && !message.has_heartbeat()) {
      }
      if (message.has_heartbeat()) heartbeats_[rank] = message.heartbeat();
      Take(rank, report);
    }
    std::lock_guard lock(mutex_);
    streams_.erase(rank);
    return grpc::Status::OK;
  }

 private:
  void Take(uint32_t rank, const v1::WorkerReport& report) {
    std::lock_guard lock(mutex_);
    if (report.has_failure()) failures_.emplace_back(rank, report.failure());
    if (report.has_export_ready()) {
      exports_ready_.push_back(report.export_ready());
      v1::WorkerDirective granted;
      granted.mutable_export_granted()->set_path(report.export_ready().path());
      streams_[rank]->Write(granted);
    }
    if (report.has_rendezvous()) {
      *meeting_.mutable_rendezvous() = report.rendezvous();
      for (const auto& [peer, stream] : streams_) stream->Write(meeting_);
    }
    v1::WorkerDirective directive;
    directive.mutable_report_ack()->set_sequence(report.sequence());
    streams_[rank]->Write(directive);
  }

  std::map<uint32_t, v1::WorkerWelcome> welcomes_;
  std::mutex mutex_;
  std::map<uint32_t, ServerStream*> streams_;
  v1::WorkerDirective meeting_;
  std::vector<std::pair<uint32_t, v1::WorkerFailure>> failures_;
  std::vector<v1::ExportReady> exports_ready_;
  std::map<uint32_t, v1::WorkerHeartbeat> heartbeats_;
  std::unique_ptr<Server> server_;
};

class RunWorkerTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { memory::InstallCountingAllocator(); }

  void SetUp() override {
    data_ = ::testing::TempDir() + "/train.bin";
    std::ofstream file(data_, std::ios::binary);
    for (uint16_t i = 0; i < 200; ++i) file.write(reinterpret_cast<const char*>(&i), 1).put(0);
  }

  v1::WorkerWelcome Welcome(uint32_t world_size) const {
    v1::WorkerWelcome welcome;
    welcome.set_host("127.0.0.1");
    welcome.mutable_heartbeat_interval()->set_nanos(10000000);
    welcome.mutable_lease()->set_seconds(60);
    welcome.mutable_collective_timeout()->set_seconds(60);
    v1::JobSpec& spec = *welcome.mutable_spec();
    spec.set_name("job");
    spec.set_world_size(world_size);
    auto& gpt2 = *spec.mutable_model()->mutable_gpt2();
    gpt2.set_vocab_size(256);
    gpt2.set_context(8);
    gpt2.set_layers(1);
    gpt2.set_heads(1);
    gpt2.set_width(8);
    spec.mutable_data()->mutable_train()->mutable_tokens()->add_path(data_);
    spec.mutable_strategy()->mutable_ddp()->set_bucket_mb(1);
    spec.mutable_optimizer()->mutable_sgd()->set_lr(0.1);
    spec.mutable_batch()->set_per_rank(1);
    spec.mutable_batch()->set_accumulate(1);
    spec.add_stages()->mutable_fit()->set_steps(2);
    spec = jobspec::ResolveDefaults(spec);
    return welcome;
  }

  absl::Status Run(int64_t rank) {
    WorkerOptions options;
    options.coordinator = coordinator_.address();
    options.identity = {"job", "", 1, rank, "incarnation"};
    options.on_fatal = [this](const absl::Status& why) { fatal_ = why; };
    return RunWorker(options);
  }

  std::string data_;
  NotingCoordinator coordinator_;
  absl::Status fatal_;
};

TEST_F(RunWorkerTest, FinishesAJob) {
  coordinator_.welcome(0) = Welcome(1);
  EXPECT_TRUE(Run(0).ok());
  EXPECT_TRUE(coordinator_.failures().empty());
}

TEST_F(RunWorkerTest, HeartbeatsSayWhatTheMemoryIsUsedFor) {
  memory::ResetPeaks();
  coordinator_.welcome(0) = Welcome(1);
  v1::JobSpec& spec = *coordinator_.welcome(0).mutable_spec();
  spec.mutable_optimizer()->mutable_adamw()->set_lr(0.1);
  spec.mutable_optimizer()->mutable_adamw()->add_betas(0.9);
  spec.mutable_optimizer()->mutable_adamw()->add_betas(0.95);
  EXPECT_TRUE(Run(0).ok());
  const v1::RankMemory& memory = coordinator_.last_heartbeat(0).memory();
  // The parameters, of width 8: embeddings of 256 tokens and 8 places, two layer norms, attention
  // and MLP of one layer, the last layer norm.
  const uint64_t bytes = 4 * (256 * 8 + 8 * 8 + 2 * 16 + (8 * 24 + 24) + (8 * 8 + 8) +
                              (8 * 32 + 32) + (32 * 8 + 8) + 16);
  EXPECT_EQ(memory.parameters().peak_bytes(), bytes);
  EXPECT_EQ(memory.moments().peak_bytes(), 2 * bytes + 4 * 16)
      << "two moments, and the steps of 16 parameters";
  EXPECT_GE(memory.buckets().peak_bytes(), bytes);
  EXPECT_GT(memory.activations().peak_bytes(), 0u);
  EXPECT_GT(memory.total().peak_bytes(), 4 * bytes);
  EXPECT_GT(memory.resident_bytes(), memory.total().bytes());
  // The session has ended.
  EXPECT_EQ(memory.parameters().bytes(), 0u);
  EXPECT_EQ(memory.moments().bytes(), 0u);
}

TEST_F(RunWorkerTest, HeartbeatsTellOfTheCollectivesAndThatTheSessionMoves) {
  coordinator_.welcome(0) = Welcome(1);
  EXPECT_TRUE(Run(0).ok());
  const v1::WorkerHeartbeat& heartbeat = coordinator_.last_heartbeat(0);
  // Each of the two steps has at least a roll call and a bucket of gradients.
  EXPECT_GT(heartbeat.collectives_begun(), 4u);
  EXPECT_EQ(heartbeat.collectives_ended(), heartbeat.collectives_begun());
  ASSERT_FALSE(heartbeat.collectives().empty());
  EXPECT_EQ(heartbeat.collectives().rbegin()->sequence(), heartbeat.collectives_begun());
  EXPECT_THAT(heartbeat.collectives(0).name(), HasSubstr("' step "));
  EXPECT_TRUE(heartbeat.collectives(0).ended());
  // Each step has a forward and a backward.
  EXPECT_GE(heartbeat.activity(), 4u);
}

// After the report of a consequence, the coordinator ends all workers, including the worker that
// knows the cause.
TEST_F(RunWorkerTest, TheCauseIsReportedBeforeItsConsequences) {
  v1::WorkerWelcome welcome = Welcome(2);
  v1::DataSet& train = *welcome.mutable_spec()->mutable_data()->mutable_train();
  train.mutable_tokens()->clear_path();
  train.add_per_rank(data_);
  train.add_per_rank("/no/such/train.bin");
  coordinator_.welcome(0) = welcome;
  coordinator_.welcome(1) = welcome;
  std::thread other([this] { EXPECT_FALSE(Run(1).ok()); });
  EXPECT_FALSE(Run(0).ok());
  other.join();
  ASSERT_EQ(coordinator_.failures().size(), 2u);
  const auto& [cause_rank, cause] = coordinator_.failures()[0];
  EXPECT_EQ(cause_rank, 1u);
  EXPECT_TRUE(cause.permanent());
  EXPECT_FALSE(cause.consequence());
  EXPECT_THAT(cause.reason(), HasSubstr("/no/such/train.bin"));
  const auto& [rank, consequence] = coordinator_.failures()[1];
  EXPECT_EQ(rank, 0u);
  EXPECT_TRUE(consequence.consequence());
  EXPECT_THAT(consequence.reason(), HasSubstr("rank 1: data.train"));
}

TEST_F(RunWorkerTest, AHostThatCannotHostTheStoreIsTheCause) {
  coordinator_.welcome(0) = Welcome(1);
  coordinator_.welcome(0).set_host("no address");
  EXPECT_FALSE(Run(0).ok());
  ASSERT_EQ(coordinator_.failures().size(), 1u);
  EXPECT_TRUE(coordinator_.failures()[0].second.permanent());
  EXPECT_FALSE(coordinator_.failures()[0].second.consequence());
  EXPECT_THAT(coordinator_.failures()[0].second.reason(), HasSubstr("'no address'"));
}

TEST_F(RunWorkerTest, AnExportIsGrantedByTheCoordinator) {
  const std::string path = ::testing::TempDir() + "/granted/model.safetensors";
  coordinator_.welcome(0) = Welcome(1);
  coordinator_.welcome(0).mutable_spec()->set_name("n");
  coordinator_.welcome(0).mutable_spec()->mutable_export_()->set_path(path);
  EXPECT_TRUE(Run(0).ok());
  EXPECT_TRUE(std::filesystem::exists(path));
  EXPECT_EQ(coordinator_.exports_ready().size(), 1);
}

TEST_F(RunWorkerTest, AFileOfSomebodyElseInThePlaceOfAnExportEndsTheJobForGood) {
  const std::string path = ::testing::TempDir() + "/taken";
  std::ofstream(path) << "somebody else's";
  coordinator_.welcome(0) = Welcome(1);
  coordinator_.welcome(0).mutable_spec()->mutable_export_()->set_path(path);
  EXPECT_FALSE(Run(0).ok());
  std::filesystem::remove(path);
  ASSERT_EQ(coordinator_.failures().size(), 1u);
  EXPECT_TRUE(coordinator_.failures()[0].second.permanent());
  EXPECT_THAT(coordinator_.failures()[0].second.reason(), HasSubstr("export.path"));
}

TEST_F(RunWorkerTest, AStaleProcessIsToldToEnd) {
  EXPECT_TRUE(absl::IsFailedPrecondition(Run(7)));
  EXPECT_TRUE(absl::IsFailedPrecondition(fatal_));
}

}  // namespace
}  // namespace muster::control
