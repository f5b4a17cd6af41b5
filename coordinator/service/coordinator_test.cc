#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "common/rpc/error.h"
#include "coordinator/service/coordinator_fixture.h"

namespace muster::service {
namespace {

TEST_F(CoordinatorTest, AJobRunsToItsEnd) {
  v1::Job job;
  ASSERT_TRUE(Submit(Spec(), "a", &job).ok());
  EXPECT_EQ(job.state(), v1::Job::QUEUED);
  EXPECT_EQ(job.state_reason(), "needs 2 slots; no agent is attached");

  FakeAgent agent(address(), FakeAgent::Hello("n1", 2));
  const v1::WorkerIdentity id0 = agent.Started(1, 0);
  const v1::WorkerIdentity id1 = agent.Started(1, 1);
  EXPECT_EQ(id0.job_id(), "a");
  EXPECT_NE(id0.incarnation(), id1.incarnation());

  FakeWorker rank0(address(), id0);
  const auto welcome = rank0.Welcome();
  ASSERT_TRUE(welcome.has_value());
  EXPECT_EQ(welcome->spec().world_size(), 2);
  EXPECT_EQ(welcome->host(), "127.0.0.1");
  EXPECT_EQ(welcome->lease().seconds(), 600);
  EXPECT_FALSE(welcome->has_rendezvous());
  v1::WorkerReport rendezvous;
  rendezvous.mutable_rendezvous()->set_host("127.0.0.1");
  rendezvous.mutable_rendezvous()->set_port(4242);
  ASSERT_TRUE(rank0.Report(rendezvous));
  FakeWorker rank1(address(), id1);
  ASSERT_EQ(rank1.Welcome()->rendezvous().port(), 4242);

  ASSERT_TRUE(rank0.Report(FakeWorker::SessionStarted(0)));
  EXPECT_EQ(Get("a").state(), v1::Job::STARTING);
  ASSERT_TRUE(rank1.Report(FakeWorker::SessionStarted(0)));
  EXPECT_EQ(Get("a").state(), v1::Job::RUNNING);

  v1::WorkerReport stage;
  stage.mutable_stage_started()->set_stage("fit");
  ASSERT_TRUE(rank0.Report(stage));
  ASSERT_TRUE(rank0.Report(FakeWorker::Step(1, 0.5)));
  ASSERT_TRUE(rank0.Report(FakeWorker::Step(2, 0.25)));
  v1::WorkerReport validated;
  validated.mutable_validated()->set_step(2);
  validated.mutable_validated()->set_loss(0.75);
  ASSERT_TRUE(rank0.Report(validated));
  v1::RankMemory memory;
  memory.mutable_moments()->set_bytes(uint64_t{5} << 32);
  memory.mutable_activations()->set_peak_bytes(7);
  rank1.Beat(2, "step 2: all_reduce 'bucket 0'", memory);
  job = WatchUntil("a", [](const v1::Job& j) { return j.ranks(1).step() == 2; });
  EXPECT_EQ(job.stage(), "fit");
  EXPECT_EQ(job.step(), 2);
  EXPECT_EQ(job.total_steps(), 10);
  EXPECT_EQ(job.loss(), 0.25);
  EXPECT_EQ(job.validation_loss(), 0.75);
  EXPECT_EQ(job.validation_step(), 2);
  EXPECT_EQ(job.samples_per_second(), 16);
  EXPECT_EQ(job.generation(), 1);
  EXPECT_EQ(job.world_size(), 2);
  EXPECT_EQ(job.ranks(1).progress(), "step 2: all_reduce 'bucket 0'");
  EXPECT_EQ(job.ranks(1).memory().SerializeAsString(), memory.SerializeAsString());
  EXPECT_FALSE(job.ranks(0).has_memory());
  EXPECT_EQ(job.ranks(1).node(), "n1");
  EXPECT_EQ(job.ranks(1).pid(), 1001);
  EXPECT_EQ(job.ranks(1).state(), v1::RankStatus::ATTACHED);
  EXPECT_TRUE(job.ranks(1).has_last_seen());

  v1::WorkerReport exported;
  exported.mutable_exported()->set_path("/out/model.safetensors");
  ASSERT_TRUE(rank0.Report(exported));
  ASSERT_TRUE(rank0.Report(FakeWorker::Finished(10)));
  ASSERT_TRUE(rank1.Report(FakeWorker::Finished(10)));
  ASSERT_TRUE(agent.Exit(id0, 0));
  EXPECT_EQ(Get("a").state(), v1::Job::RUNNING);
  ASSERT_TRUE(agent.Exit(id1, 0));
  job = Get("a");
  EXPECT_EQ(job.state(), v1::Job::SUCCEEDED);
  EXPECT_EQ(job.exported_path(), "/out/model.safetensors");
  EXPECT_TRUE(job.has_end_time());
  EXPECT_EQ(job.ranks(0).state(), v1::RankStatus::EXITED);
  EXPECT_FALSE(job.ranks(1).has_memory());
  EXPECT_EQ(job.restarts(), 0);
  EXPECT_FALSE(job.has_failure());
  const auto steps = Steps("a", true);
  ASSERT_EQ(steps.size(), 3);
  EXPECT_EQ(steps[1].step(), 2);
  EXPECT_EQ(steps[1].loss(), 0.25);
  EXPECT_EQ(steps[1].duration().nanos(), 500000000);
  EXPECT_EQ(steps[2].step(), 2);
  EXPECT_EQ(steps[2].validation().loss(), 0.75);
}

TEST_F(CoordinatorTest, JobsRunFirstComeFirstServed) {
  FakeAgent agent(address(), FakeAgent::Hello("n1", 2));
  ASSERT_TRUE(agent.Welcomed());
  v1::Job job;
  ASSERT_TRUE(Submit(Spec(1), "first", &job).ok());
  ASSERT_TRUE(Submit(Spec(2), "second", &job).ok());
  EXPECT_EQ(job.state_reason(), "needs 2 slots; 2 are offered by 1 node, 1 of them free");
  // The third job would fit, but must not overtake.
  ASSERT_TRUE(Submit(Spec(1), "third", &job).ok());
  EXPECT_EQ(job.state_reason(), "waits behind job 'second'");

  const v1::WorkerIdentity first = agent.Started(1, 0);
  EXPECT_EQ(first.job_id(), "first");
  FakeWorker worker(address(), first);
  ASSERT_TRUE(worker.Welcome().has_value());
  ASSERT_TRUE(worker.Report(FakeWorker::Finished(10)));
  ASSERT_TRUE(agent.Exit(first, 0));
  EXPECT_EQ(agent.Started(1, 0).job_id(), "second");
  EXPECT_EQ(Get("third").state(), v1::Job::QUEUED);
}

TEST_F(CoordinatorTest, AStoppedJobObeysTheCommandAndEndsAsCancelled) {
  FakeAgent agent(address(), FakeAgent::Hello("n1", 2));
  v1::Job job;
  ASSERT_TRUE(Submit(Spec(), "a", &job).ok());
  Pair pair(address(), &agent, 1);
  const std::string request_id = NewUuid();
  ASSERT_TRUE(Stop("a", &job, request_id).ok());
  EXPECT_EQ(job.state(), v1::Job::STOPPING);
  // A repeat acts once.
  ASSERT_TRUE(Stop("a", &job, request_id).ok());
  EXPECT_EQ(pair.rank0.Command()->number(), 1);
  EXPECT_TRUE(pair.rank1.Command()->has_stop());
  // A worker that attaches again is told again, unless it knows the command.
  FakeWorker again(address(), pair.id1, 0);
  EXPECT_EQ(again.Command()->number(), 1);

  v1::WorkerReport applied;
  applied.mutable_command_applied()->set_number(1);
  applied.mutable_command_applied()->set_step(4);
  ASSERT_TRUE(pair.rank0.Report(applied));
  ASSERT_TRUE(pair.rank0.Report(FakeWorker::Finished(4)));
  again.Welcome();
  ASSERT_TRUE(again.Report(FakeWorker::Finished(4)));
  ASSERT_TRUE(agent.Exit(pair.id0, 0));
  ASSERT_TRUE(agent.Exit(pair.id1, 0));
  EXPECT_EQ(Get("a").state(), v1::Job::CANCELLED);
  ASSERT_TRUE(Stop("a", &job, request_id).ok());
  const grpc::Status late = Stop("a", &job);
  EXPECT_EQ(late.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(ErrorReason(FromGrpc(late)), "JOB_ALREADY_ENDED");
}

TEST_F(CoordinatorTest, WhereATimeLimitIsOverTheWorkersAreToldToStop) {
  FakeAgent agent(address(), FakeAgent::Hello("n1", 1));
  v1::JobSpec spec = Spec(1, 0);
  spec.set_time_limit("1s");
  v1::Job job;
  ASSERT_TRUE(Submit(spec, "a", &job).ok());
  FakeWorker worker(address(), agent.Started(1, 0));
  ASSERT_TRUE(worker.Welcome().has_value());
  ASSERT_TRUE(worker.Report(FakeWorker::SessionStarted(0)));
  const auto command = worker.Command();
  ASSERT_TRUE(command.has_value());
  EXPECT_TRUE(command->has_stop()) << command->DebugString();
}

TEST_F(CoordinatorTest, AQueuedJobIsCancelledAtOnce) {
  v1::Job job;
  ASSERT_TRUE(Submit(Spec(), "a", &job).ok());
  ASSERT_TRUE(Stop("a", &job).ok());
  EXPECT_EQ(job.state(), v1::Job::CANCELLED);
}

TEST_F(CoordinatorTest, ARefusedJobNamesEveryProblemAndStoresNothing) {
  v1::JobSpec spec = Spec();
  spec.set_world_size(0);
  spec.mutable_optimizer()->mutable_sgd()->set_lr(-1);
  v1::Job job;
  const grpc::Status refused = Submit(spec, "Bad Id", &job);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(ErrorReason(FromGrpc(refused)), "JOB_SPEC_INVALID");
  EXPECT_EQ(Problems(FromGrpc(refused)).problems_size(), 3);
  grpc::ClientContext context;
  v1::ListJobsResponse list;
  ASSERT_TRUE(jobs_->ListJobs(&context, {}, &list).ok());
  EXPECT_EQ(list.jobs_size(), 0);
}

TEST_F(CoordinatorTest, AWatchdogShorterThanThreeLeasesOfThisCoordinatorIsRefused) {
  v1::JobSpec spec = Spec();
  spec.mutable_watchdog()->set_no_progress("29m");
  v1::Job job;
  const absl::Status refused = FromGrpc(Submit(spec, "", &job));
  EXPECT_EQ(ErrorReason(refused), "JOB_SPEC_INVALID");
  ASSERT_EQ(Problems(refused).problems_size(), 1);
  EXPECT_EQ(Problems(refused).problems(0).path(), "watchdog.no_progress");
  EXPECT_EQ(Problems(refused).problems(0).message(),
            "found 29m; allowed: 30m or more, which is three leases of this coordinator (musterd "
            "--lease 10m)");
  spec.mutable_watchdog()->set_no_progress("30m");
  EXPECT_TRUE(Submit(spec, "", &job).ok());
}

TEST_F(CoordinatorTest, MoreProblemsThanAnErrorCanCarryAreCounted) {
  const auto last_problem = [this](const v1::JobSpec& spec, int* told) {
    v1::Job job;
    const absl::Status refused = FromGrpc(Submit(spec, "", &job));
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << refused;
    EXPECT_EQ(ErrorReason(refused), "JOB_SPEC_INVALID");
    EXPECT_EQ(ErrorMetadata(refused)["field"], "model.mlp.hidden[1]");
    *told = Problems(refused).problems_size();
    return *told == 0 ? "" : Problems(refused).problems(*told - 1).message();
  };
  v1::JobSpec spec = Spec();
  spec.mutable_model()->set_weights(std::string(4000, 'x'));
  for (int i = 0; i < 60; ++i) spec.mutable_model()->mutable_mlp()->add_hidden(0);
  int told = 0;
  const std::string rest = last_problem(spec, &told);
  ASSERT_GT(told, 10);
  EXPECT_EQ(rest, absl::StrCat("and ", 61 - told + 1, " more; ValidateJob returns all of them"));

  for (int i = 0; i < 60; ++i) spec.mutable_model()->mutable_mlp()->add_hidden(0);
  EXPECT_EQ(last_problem(spec, &told), "and more; ValidateJob returns the first 100");
  grpc::ClientContext context;
  v1::ValidateJobRequest request;
  *request.mutable_spec() = spec;
  v1::ValidateJobResponse response;
  ASSERT_TRUE(jobs_->ValidateJob(&context, request, &response).ok());
  ASSERT_EQ(response.problems_size(), 101);
  EXPECT_EQ(response.problems(100).message(), "and 21 more problems");
}

TEST_F(CoordinatorTest, ValidateWarnsOfMissingSlots) {
  grpc::ClientContext context;
  v1::ValidateJobRequest request;
  *request.mutable_spec() = Spec();
  v1::ValidateJobResponse response;
  ASSERT_TRUE(jobs_->ValidateJob(&context, request, &response).ok());
  EXPECT_EQ(response.problems_size(), 0);
  EXPECT_EQ(response.resolved().batch().accumulate(), 1);
  ASSERT_EQ(response.warnings_size(), 1);
  EXPECT_EQ(response.warnings(0), "needs 2 slots; no agent is attached");
}

TEST_F(CoordinatorTest, UnknownJobsAreNotFoundEverywhere) {
  v1::Job job;
  EXPECT_EQ(ErrorReason(FromGrpc(Stop("nope", &job))), "JOB_NOT_FOUND");
  grpc::ClientContext watch;
  v1::WatchJobRequest request;
  request.set_job_id("nope");
  auto stream = jobs_->WatchJob(&watch, request);
  EXPECT_FALSE(stream->Read(&job));
  EXPECT_EQ(ErrorReason(FromGrpc(stream->Finish())), "JOB_NOT_FOUND");
  v1::WorkerIdentity id;
  id.set_job_id("nope");
  FakeWorker worker(address(), id);
  EXPECT_EQ(worker.End()->error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(CoordinatorTest, AWatchResumesAfterAVersionAndEndsWithTheJob) {
  v1::Job job;
  ASSERT_TRUE(Submit(Spec(), "a", &job).ok());
  grpc::ClientContext context;
  v1::WatchJobRequest request;
  request.set_job_id("a");
  request.set_after_version(job.version());
  auto stream = jobs_->WatchJob(&context, request);
  ASSERT_TRUE(Stop("a", &job).ok());
  v1::Job seen;
  ASSERT_TRUE(stream->Read(&seen));
  EXPECT_EQ(seen.state(), v1::Job::CANCELLED);
  EXPECT_GT(seen.version(), request.after_version());
  EXPECT_FALSE(stream->Read(&seen));
  EXPECT_TRUE(stream->Finish().ok());
  // After the last version the stream only says that the job is over.
  grpc::ClientContext late;
  request.set_after_version(seen.version());
  auto over = jobs_->WatchJob(&late, request);
  EXPECT_FALSE(over->Read(&seen));
  EXPECT_TRUE(over->Finish().ok());
}

TEST_F(CoordinatorTest, LogsAndMetricsFollowAJobToItsEnd) {
  FakeAgent agent(address(), FakeAgent::Hello("n1", 2));
  v1::Job job;
  ASSERT_TRUE(Submit(Spec(), "a", &job).ok());
  Pair pair(address(), &agent, 1);
  grpc::ClientContext logs_context, steps_context;
  v1::StreamLogsRequest logs_request;
  logs_request.set_job_id("a");
  logs_request.set_follow(true);
  auto logs = jobs_->StreamLogs(&logs_context, logs_request);
  v1::StreamMetricsRequest steps_request;
  steps_request.set_job_id("a");
  steps_request.set_follow(true);
  auto steps = jobs_->StreamMetrics(&steps_context, steps_request);

  v1::AgentMessage message;
  *message.mutable_worker_log()->mutable_worker() = pair.id0;
  message.mutable_worker_log()->add_lines("one");
  message.mutable_worker_log()->add_lines("two");
  agent.Send(message);
  *message.mutable_worker_log()->mutable_worker() = pair.id1;
  message.mutable_worker_log()->clear_lines();
  message.mutable_worker_log()->add_lines("three");
  agent.Send(message);
  v1::LogLine line;
  for (const char* text : {"one", "two", "three"}) {
    ASSERT_TRUE(logs->Read(&line));
    EXPECT_EQ(line.text(), text);
  }
  EXPECT_EQ(line.sequence(), 3);
  EXPECT_EQ(line.rank(), 1);
  ASSERT_TRUE(pair.rank0.Report(FakeWorker::Step(1, 0.5)));
  v1::StepMetrics step;
  ASSERT_TRUE(steps->Read(&step));
  EXPECT_EQ(step.step(), 1);
  pair.FinishAndExit(&agent, 10);
  EXPECT_FALSE(logs->Read(&line));
  EXPECT_TRUE(logs->Finish().ok());
  EXPECT_FALSE(steps->Read(&step));
  EXPECT_TRUE(steps->Finish().ok());
  ASSERT_EQ(Logs("a", 1).size(), 1);
  EXPECT_EQ(Logs("a").size(), 3);
}

TEST_F(CoordinatorTest, TheHighestPriorityGoesFirst) {
  v1::Job job;
  ASSERT_TRUE(Submit(Spec(1), "first", &job).ok());
  EXPECT_EQ(job.spec().priority(), 0);
  v1::JobSpec urgent = Spec(1);
  urgent.set_priority(5);
  ASSERT_TRUE(Submit(urgent, "urgent", &job).ok());
  EXPECT_EQ(job.spec().priority(), 5);
  EXPECT_EQ(Get("first").state_reason(), "needs 1 slot; no agent is attached");
  StopCoordinator();
  StartCoordinator();
  FakeAgent agent(address(), FakeAgent::Hello("n1", 1));
  EXPECT_EQ(agent.Started(1, 0).job_id(), "urgent");
  EXPECT_EQ(Get("first").state(), v1::Job::QUEUED);
}

TEST_F(CoordinatorTest, AJobOnGpusRunsOnANodeWithGpus) {
  FakeAgent cpu(address(), FakeAgent::Hello("n1", 4));
  ASSERT_TRUE(cpu.Welcomed());
  v1::JobSpec spec = Spec(1);
  spec.set_device(v1::JobSpec::CUDA);
  spec.set_threads(5);
  v1::Job job;
  ASSERT_TRUE(Submit(spec, "a", &job).ok());
  EXPECT_EQ(job.state_reason(), "needs 1 GPU; no attached agent offers any");
  ASSERT_EQ(job.warnings_size(), 1);
  EXPECT_EQ(job.warnings(0),
            "needs 1 GPU; no attached agent offers any; it waits until nodes offer more");

  v1::AgentHello hello = FakeAgent::Hello("n2", 0);
  v1::Gpu* gpu = hello.add_gpus();
  gpu->set_index(6);
  gpu->set_uuid("GPU-a");
  gpu->set_name("NVIDIA Test");
  gpu->set_memory_bytes(1000);
  FakeAgent agent(address(), hello);
  ASSERT_TRUE(agent.Welcomed());
  ASSERT_EQ(agent.Started(1, 0).job_id(), "a");
  const v1::ListNodesResponse nodes = Nodes();
  ASSERT_EQ(nodes.nodes_size(), 2);
  EXPECT_EQ(nodes.nodes(0).gpus_size(), 0);
  ASSERT_EQ(nodes.nodes(1).gpus_size(), 1);
  EXPECT_EQ(nodes.nodes(1).gpus(0).uuid(), "GPU-a");
  EXPECT_EQ(nodes.nodes(1).gpus(0).name(), "NVIDIA Test");
  EXPECT_EQ(nodes.nodes(1).gpus(0).memory_bytes(), 1000);
  EXPECT_FALSE(nodes.nodes(1).gpus(0).free());
  EXPECT_EQ(Get("a").ranks(0).device(), "cuda:6");
  EXPECT_EQ(Get("a").ranks(0).device_name(), "NVIDIA Test");
}

TEST_F(CoordinatorTest, AnAgentThatOffersAGpuTwiceIsRefused) {
  v1::AgentHello hello = FakeAgent::Hello("n1", 0);
  hello.add_gpus()->set_index(2);
  hello.add_gpus()->set_index(2);
  FakeAgent agent(address(), hello);
  EXPECT_FALSE(agent.Welcomed());
  EXPECT_EQ(Nodes().nodes_size(), 0);
}

TEST_F(CoordinatorTest, NodesSayWhatIsFreeAndWhatRuns) {
  EXPECT_EQ(Nodes().nodes_size(), 0);
  v1::AgentHello hello = FakeAgent::Hello("n1", 3);
  hello.set_version("1.2");
  v1::Job job;
  {
    FakeAgent agent(address(), hello);
    FakeAgent other(address(), FakeAgent::Hello("n2", 1));
    ASSERT_TRUE(agent.Welcomed());
    ASSERT_TRUE(other.Welcomed());
    ASSERT_TRUE(Submit(Spec(2), "a", &job).ok());
    ASSERT_EQ(agent.Started(1, 0).job_id(), "a");
    const v1::ListNodesResponse nodes = Nodes();
    ASSERT_EQ(nodes.nodes_size(), 2);
    EXPECT_EQ(nodes.nodes(0).name(), "n1");
    EXPECT_EQ(nodes.nodes(0).state(), v1::Node::ATTACHED);
    EXPECT_EQ(nodes.nodes(0).host(), "127.0.0.1");
    EXPECT_EQ(nodes.nodes(0).version(), "1.2");
    EXPECT_EQ(nodes.nodes(0).slots_total(), 3);
    EXPECT_EQ(nodes.nodes(0).slots_free(), 1);
    EXPECT_TRUE(nodes.nodes(0).has_last_seen());
    ASSERT_EQ(nodes.nodes(0).jobs_size(), 1);
    EXPECT_EQ(nodes.nodes(0).jobs(0).job_id(), "a");
    EXPECT_EQ(nodes.nodes(0).jobs(0).ranks_size(), 2);
    EXPECT_EQ(nodes.nodes(1).slots_free(), 1);
    EXPECT_EQ(nodes.nodes(1).jobs_size(), 0);
  }
  StopCoordinator();
  StartCoordinator();
  // Both agents have a lease in which they can attach again.
  const v1::ListNodesResponse nodes = Nodes();
  ASSERT_EQ(nodes.nodes_size(), 2);
  EXPECT_EQ(nodes.nodes(0).state(), v1::Node::DETACHED);
  EXPECT_EQ(nodes.nodes(0).slots_total(), 3);
  EXPECT_EQ(nodes.nodes(0).slots_free(), 0);
  EXPECT_EQ(nodes.nodes(0).version(), "");
  EXPECT_EQ(nodes.nodes(0).jobs(0).ranks_size(), 2);
}

}  // namespace
}  // namespace muster::service
