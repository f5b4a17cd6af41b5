// A running coordinator with a SQLite directory, and a client of the coordinator.
#ifndef MUSTER_COORDINATOR_SERVICE_COORDINATOR_FIXTURE_H_
#define MUSTER_COORDINATOR_SERVICE_COORDINATOR_FIXTURE_H_

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/files/temp_dir.h"
#include "common/rpc/address.h"
#include "common/steady/test_bound.h"
#include "coordinator/service/coordinator.h"
#include "coordinator/service/fake_peers.h"
#include "coordinator/store/sqlite_store.h"
#include "proto/muster/v1/cluster_service.grpc.pb.h"
#include "proto/muster/v1/job_service.grpc.pb.h"

namespace muster::service {

inline v1::JobSpec Spec(uint32_t world_size = 2, uint32_t max_restarts = 3) {
  v1::JobSpec spec;
  spec.set_name("tiny");
  spec.set_world_size(world_size);
  auto* mlp = spec.mutable_model()->mutable_mlp();
  mlp->set_inputs(4);
  mlp->add_hidden(8);
  mlp->set_classes(2);
  spec.mutable_data()->mutable_train()->mutable_safetensors()->add_path("/data/train.safetensors");
  spec.mutable_optimizer()->mutable_sgd()->set_lr(0.1);
  spec.mutable_batch()->set_per_rank(4);
  spec.add_stages()->mutable_fit()->set_steps(10);
  spec.mutable_checkpoint()->set_directory("/ckpt");
  spec.mutable_checkpoint()->set_keep(2);
  spec.mutable_restart()->set_max_restarts(max_restarts);
  return spec;
}

class CoordinatorTest : public testing::Test {
 protected:
  void SetUp() override { StartCoordinator(); }

  // Returns the store for the coordinator. A test may return a store of its own around `store`.
  virtual std::unique_ptr<store::Store> Wrap(std::unique_ptr<store::SqliteStore> store) {
    return store;
  }

  // Changes the options, in a test that wants other options.
  virtual void Configure(CoordinatorOptions*) {}

  void StartCoordinator() {
    auto store = store::SqliteStore::Open(dir_.path());
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = Wrap(std::move(*store));
    CoordinatorOptions options{.server = ServerOptions::InsecureLoopback()};
    // A lease longer than any test, so that no lease ends by itself.
    options.timing.lease = absl::Minutes(10);
    options.timing.startup = absl::Minutes(10);
    Configure(&options);
    auto coordinator = Coordinator::Start(options, store_.get());
    ASSERT_TRUE(coordinator.ok()) << coordinator.status();
    coordinator_ = std::move(*coordinator);
    jobs_ = v1::JobService::NewStub(OpenChannel(address()));
  }
  void StopCoordinator() {
    coordinator_.reset();
    store_.reset();
  }
  std::string address() const { return ToString(coordinator_->addresses().front()); }

  grpc::Status Submit(const v1::JobSpec& spec, const std::string& id, v1::Job* job,
                      const std::string& request_id = NewUuid()) {
    grpc::ClientContext context;
    v1::SubmitJobRequest request;
    *request.mutable_spec() = spec;
    request.set_job_id(id);
    request.set_request_id(request_id);
    return jobs_->SubmitJob(&context, request, job);
  }
  grpc::Status Stop(const std::string& id, v1::Job* job,
                    const std::string& request_id = NewUuid()) {
    grpc::ClientContext context;
    v1::StopJobRequest request;
    request.set_job_id(id);
    request.set_request_id(request_id);
    return jobs_->StopJob(&context, request, job);
  }
  grpc::Status Delete(const std::string& id, v1::DeleteJobResponse* response,
                      const std::string& request_id = NewUuid()) {
    grpc::ClientContext context;
    v1::DeleteJobRequest request;
    request.set_job_id(id);
    request.set_request_id(request_id);
    return jobs_->DeleteJob(&context, request, response);
  }
  v1::ListNodesResponse Nodes() {
    grpc::ClientContext context;
    v1::ListNodesResponse response;
    const auto nodes = v1::ClusterService::NewStub(OpenChannel(address()));
    EXPECT_TRUE(nodes->ListNodes(&context, {}, &response).ok());
    return response;
  }
  v1::Job Get(const std::string& id) {
    grpc::ClientContext context;
    v1::GetJobRequest request;
    request.set_job_id(id);
    v1::Job job;
    const grpc::Status status = jobs_->GetJob(&context, request, &job);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return job;
  }
  // Watches the job until a snapshot fits, and returns this snapshot.
  v1::Job WatchUntil(const std::string& id, const std::function<bool(const v1::Job&)>& fits) {
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + kTestBound));
    v1::WatchJobRequest request;
    request.set_job_id(id);
    auto stream = jobs_->WatchJob(&context, request);
    v1::Job job;
    while (stream->Read(&job)) {
      if (fits(job)) return job;
    }
    ADD_FAILURE() << "job " << id << " never got there: " << job.ShortDebugString() << "; "
                  << stream->Finish().error_message();
    return job;
  }
  v1::Job WatchUntil(const std::string& id, v1::Job::State state) {
    return WatchUntil(id, [=](const v1::Job& job) { return job.state() == state; });
  }

  template <typename T>
  static std::vector<T> ReadAll(grpc::ClientReader<T>* stream) {
    std::vector<T> all;
    T item;
    while (stream->Read(&item)) all.push_back(item);
    EXPECT_TRUE(stream->Finish().ok());
    return all;
  }
  std::vector<v1::StepMetrics> Steps(const std::string& id, bool follow = false) {
    grpc::ClientContext context;
    v1::StreamMetricsRequest request;
    request.set_job_id(id);
    request.set_follow(follow);
    return ReadAll(jobs_->StreamMetrics(&context, request).get());
  }
  std::vector<v1::LogLine> Logs(const std::string& id, std::optional<uint32_t> rank = {}) {
    grpc::ClientContext context;
    v1::StreamLogsRequest request;
    request.set_job_id(id);
    if (rank.has_value()) request.set_rank(*rank);
    return ReadAll(jobs_->StreamLogs(&context, request).get());
  }

  files::TempDir dir_;
  std::unique_ptr<store::Store> store_;
  std::unique_ptr<Coordinator> coordinator_;
  std::unique_ptr<v1::JobService::Stub> jobs_;
};

// Both ranks of one generation, attached and with a started session.
struct Pair {
  Pair(const std::string& address, FakeAgent* agent, uint64_t generation, uint64_t step = 0)
      : id0(agent->Started(generation, 0)),
        id1(agent->Started(generation, 1)),
        rank0(address, id0),
        rank1(address, id1) {
    welcome = rank0.Welcome().value_or(v1::WorkerWelcome());
    EXPECT_TRUE(rank1.Welcome().has_value());
    EXPECT_TRUE(rank0.Report(FakeWorker::SessionStarted(step)));
    EXPECT_TRUE(rank1.Report(FakeWorker::SessionStarted(step)));
  }
  void FinishAndExit(FakeAgent* agent, uint64_t step) {
    EXPECT_TRUE(rank0.Report(FakeWorker::Finished(step)));
    EXPECT_TRUE(rank1.Report(FakeWorker::Finished(step)));
    EXPECT_TRUE(agent->Exit(id0, 0));
    EXPECT_TRUE(agent->Exit(id1, 0));
  }

  v1::WorkerIdentity id0;
  v1::WorkerIdentity id1;
  FakeWorker rank0;
  FakeWorker rank1;
  v1::WorkerWelcome welcome;
};

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_COORDINATOR_FIXTURE_H_
