#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

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
  rank1.Beat(2, "step 2: all_reduce 'bucket 0'");
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
  // It would fit, but must not overtake.
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
  // Who attaches again is told again, unless it knows.
  FakeWorker again(address(), pair.id1, 0);
  EXPECT_EQ(again.Command()->number(), 1);

  v1::WorkerReport applied;
  applied.mutable_command_applied()->set_number(1);
  applied.mutable_command_applied()->set_step(4);
  ASSERT_TRUE(pair.rank0.Report(applied));
  ASSERT_TRUE(pair.rank0.Report(FakeWorker::Finished(4, true)));
  again.Welcome();
  ASSERT_TRUE(again.Report(FakeWorker::Finished(4, true)));
  ASSERT_TRUE(agent.Exit(pair.id0, 0));
  ASSERT_TRUE(agent.Exit(pair.id1, 0));
  EXPECT_EQ(Get("a").state(), v1::Job::CANCELLED);
  ASSERT_TRUE(Stop("a", &job, request_id).ok());
  const grpc::Status late = Stop("a", &job);
  EXPECT_EQ(late.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(ErrorReason(FromGrpc(late)), "JOB_ALREADY_ENDED");
}

TEST_F(CoordinatorTest, AQueuedJobIsCancelledAtOnce) {
  v1::Job job;
  ASSERT_TRUE(Submit(Spec(), "a", &job).ok());
  ASSERT_TRUE(Stop("a", &job).ok());
  EXPECT_EQ(job.state(), v1::Job::CANCELLED);
}

TEST_F(CoordinatorTest, IdsAndRequestIdsAreTakenOnce) {
  v1::Job job;
  const std::string request_id = NewUuid();
  ASSERT_TRUE(Submit(Spec(), "", &job, request_id).ok());
  EXPECT_EQ(job.id(), "tiny-1");
  v1::Job again;
  ASSERT_TRUE(Submit(Spec(), "", &again, request_id).ok());
  EXPECT_EQ(again.id(), "tiny-1");
  EXPECT_EQ(ErrorReason(FromGrpc(Submit(Spec(3), "", &again, request_id))), "REQUEST_ID_REUSED");
  const grpc::Status taken = Submit(Spec(), "tiny-1", &again);
  EXPECT_EQ(taken.error_code(), grpc::StatusCode::ALREADY_EXISTS);
  EXPECT_EQ(ErrorReason(FromGrpc(taken)), "JOB_ALREADY_EXISTS");
}

TEST_F(CoordinatorTest, ARequestWithTheOptionsOfAPluginIsTheSameWhenItComesAgain) {
  const auto spec = [](int first, int step) {
    v1::JobSpec spec = Spec();
    spec.mutable_model()->mutable_plugin()->set_path("/p.so");
    spec.mutable_model()->mutable_plugin()->set_name("p");
    // In another order of insertion, as another client would have it.
    for (int i = first; i >= 0 && i < 20; i += step) {
      (*spec.mutable_model()->mutable_plugin()->mutable_options())[absl::StrCat("option", i)] = "x";
    }
    return spec;
  };
  v1::Job job;
  const std::string request_id = NewUuid();
  ASSERT_TRUE(Submit(spec(0, 1), "", &job, request_id).ok());
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(Submit(i % 2 == 0 ? spec(19, -1) : spec(0, 1), "", &job, request_id).ok());
  }
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
  // With the last version there is nothing to say but that it is over.
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
  EXPECT_EQ(Get("first").state_reason(), "waits behind job 'urgent' of priority 5");
  StopCoordinator();
  StartCoordinator();
  FakeAgent agent(address(), FakeAgent::Hello("n1", 1));
  EXPECT_EQ(agent.Started(1, 0).job_id(), "urgent");
  EXPECT_EQ(Get("first").state(), v1::Job::QUEUED);
}

TEST_F(CoordinatorTest, ADeletedJobIsGoneAndItsFilesAreNamed) {
  FakeAgent agent(address(), FakeAgent::Hello("n1", 2));
  v1::Job job;
  v1::DeleteJobResponse deleted;
  EXPECT_EQ(ErrorReason(FromGrpc(Delete("a", &deleted))), "JOB_NOT_FOUND");
  ASSERT_TRUE(Submit(Spec(), "a", &job).ok());
  Pair pair(address(), &agent, 1);
  for (uint64_t step : {2, 4}) {
    ASSERT_TRUE(pair.rank0.Report(
        FakeWorker::CheckpointWritten(step, absl::StrCat("/ckpt/step-", step))));
  }
  ASSERT_TRUE(pair.rank0.Report(FakeWorker::Step(1, 0.5)));
  const grpc::Status early = Delete("a", &deleted);
  EXPECT_EQ(early.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(ErrorReason(FromGrpc(early)), "JOB_NOT_ENDED");
  v1::WorkerReport exported;
  exported.mutable_exported()->set_path("/out/model.safetensors");
  ASSERT_TRUE(pair.rank0.Report(exported));
  pair.FinishAndExit(&agent, 10);

  const std::string request_id = NewUuid();
  ASSERT_TRUE(Delete("a", &deleted, request_id).ok());
  EXPECT_EQ(deleted.job_id(), "a");
  ASSERT_EQ(deleted.checkpoints_size(), 2);
  EXPECT_EQ(deleted.checkpoints(0).path(), "/ckpt/step-2");
  EXPECT_EQ(deleted.checkpoints(1).step(), 4);
  EXPECT_TRUE(deleted.checkpoints(1).has_create_time());
  EXPECT_EQ(deleted.exported_path(), "/out/model.safetensors");

  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(ErrorReason(FromGrpc(Stop("a", &job))), "JOB_NOT_FOUND");
    v1::DeleteJobResponse again;
    ASSERT_TRUE(Delete("a", &again, request_id).ok());
    EXPECT_EQ(again.SerializeAsString(), deleted.SerializeAsString());
    EXPECT_EQ(ErrorReason(FromGrpc(Delete("a", &again))), "JOB_NOT_FOUND");
    EXPECT_EQ(ErrorReason(FromGrpc(Delete("b", &again, request_id))), "REQUEST_ID_REUSED");
    StopCoordinator();
    StartCoordinator();
  }
  // The name is free, and what comes under it is another job.
  ASSERT_TRUE(Submit(Spec(), "a", &job).ok());
  EXPECT_EQ(job.checkpoints_size(), 0);
  EXPECT_TRUE(Steps("a").empty());
  EXPECT_TRUE(Logs("a").empty());
}

TEST_F(CoordinatorTest, ADeletionEndsTheStreamsOfTheJobAndNoOthers) {
  FakeAgent agent(address(), FakeAgent::Hello("n1", 2));
  v1::Job job;
  ASSERT_TRUE(Submit(Spec(1), "a", &job).ok());
  ASSERT_TRUE(Submit(Spec(1), "b", &job).ok());
  const v1::WorkerIdentity id = agent.Started(1, 0);
  ASSERT_EQ(id.job_id(), "a");
  const v1::WorkerIdentity other_id = agent.Started(1, 0);
  // More than the transport takes from a reader that does not read.
  v1::AgentMessage lines;
  *lines.mutable_worker_log()->mutable_worker() = id;
  for (int i = 0; i < 500; ++i) lines.mutable_worker_log()->add_lines(std::string(4000, 'x'));
  for (int i = 0; i < 8; ++i) agent.Send(lines);
  FakeWorker worker(address(), id);
  ASSERT_TRUE(worker.Welcome().has_value());
  grpc::ClientContext slow, watch_a, watch_b;
  v1::StreamLogsRequest logs_request;
  logs_request.set_job_id("a");
  logs_request.set_follow(true);
  auto logs = jobs_->StreamLogs(&slow, logs_request);
  v1::LogLine line;
  ASSERT_TRUE(logs->Read(&line));
  v1::WatchJobRequest watch_request;
  watch_request.set_job_id("a");
  auto watched = jobs_->WatchJob(&watch_a, watch_request);
  watch_request.set_job_id("b");
  auto other = jobs_->WatchJob(&watch_b, watch_request);
  v1::Job seen;
  ASSERT_TRUE(watched->Read(&seen));
  ASSERT_TRUE(other->Read(&seen));

  ASSERT_TRUE(worker.Report(FakeWorker::Finished(10)));
  ASSERT_TRUE(agent.Exit(id, 0));
  v1::DeleteJobResponse deleted;
  ASSERT_TRUE(Delete("a", &deleted).ok());
  // Who had not got all of it is told so.
  while (logs->Read(&line)) {
  }
  const grpc::Status end = logs->Finish();
  EXPECT_EQ(ErrorReason(FromGrpc(end)), "JOB_NOT_FOUND");
  EXPECT_EQ(end.error_message(), "job 'a' was deleted before all of it was sent");
  // Who reads in time gets the job's last state, and the stream's good end.
  v1::Job last;
  while (watched->Read(&seen)) last = seen;
  EXPECT_EQ(last.state(), v1::Job::SUCCEEDED);
  EXPECT_TRUE(watched->Finish().ok());
  ASSERT_TRUE(Stop("b", &job).ok());
  ASSERT_TRUE(agent.Exit(other_id, 0));
  while (other->Read(&seen)) {
  }
  EXPECT_TRUE(other->Finish().ok());
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
  // Both have a lease to come back.
  const v1::ListNodesResponse nodes = Nodes();
  ASSERT_EQ(nodes.nodes_size(), 2);
  EXPECT_EQ(nodes.nodes(0).state(), v1::Node::DETACHED);
  EXPECT_EQ(nodes.nodes(0).slots_total(), 3);
  EXPECT_EQ(nodes.nodes(0).slots_free(), 0);
  EXPECT_EQ(nodes.nodes(0).version(), "");
  EXPECT_EQ(nodes.nodes(0).jobs(0).ranks_size(), 2);
}

TEST_F(CoordinatorTest, PagesAreStableWhileJobsComeAndGo) {
  v1::Job job;
  v1::DeleteJobResponse deleted;
  for (const char* id : {"a", "b", "c", "d", "e", "f"}) {
    ASSERT_TRUE(Submit(Spec(), id, &job).ok());
    // All but b and e end.
    if (*id != 'b' && *id != 'e') ASSERT_TRUE(Stop(id, &job).ok());
  }
  v1::ListJobsRequest request;
  request.set_page_size(2);
  const auto page = [&] {
    grpc::ClientContext context;
    v1::ListJobsResponse response;
    EXPECT_TRUE(jobs_->ListJobs(&context, request, &response).ok());
    request.set_page_token(response.next_page_token());
    std::string ids;
    for (const auto& listed : response.jobs()) ids += listed.id();
    return ids;
  };
  EXPECT_EQ(page(), "fe");
  // The page's last one, one of the next page and one of the page before go; one comes.
  ASSERT_TRUE(Stop("e", &job).ok());
  for (const char* id : {"e", "d", "f"}) ASSERT_TRUE(Delete(id, &deleted).ok());
  ASSERT_TRUE(Submit(Spec(), "g", &job).ok());
  EXPECT_EQ(page(), "cb");
  EXPECT_EQ(page(), "a");
  EXPECT_EQ(request.page_token(), "");

  request.add_states(v1::Job::CANCELLED);
  request.set_page_size(1);
  EXPECT_EQ(page(), "c");
  EXPECT_EQ(page(), "a");
  // Known to be the last: there is no empty page after it.
  EXPECT_EQ(request.page_token(), "");
  request.add_states(v1::Job::QUEUED);
  request.set_page_size(1000);
  EXPECT_EQ(page(), "gcba");
  request.add_states(v1::Job::STATE_UNSPECIFIED);
  grpc::ClientContext context;
  v1::ListJobsResponse response;
  EXPECT_EQ(jobs_->ListJobs(&context, request, &response).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(CoordinatorTest, APageOfLargeJobsHoldsFewer) {
  v1::Job job;
  v1::JobSpec spec = Spec();
  spec.mutable_data()->mutable_train()->mutable_safetensors()->set_path(
      0, "/" + std::string(2 << 20, 'x'));
  for (const char* id : {"a", "b", "c", "d", "e"}) ASSERT_TRUE(Submit(spec, id, &job).ok());
  v1::ListJobsRequest request;
  std::vector<int> pages;
  do {
    grpc::ClientContext context;
    v1::ListJobsResponse page;
    ASSERT_TRUE(jobs_->ListJobs(&context, request, &page).ok());
    pages.push_back(page.jobs_size());
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty());
  EXPECT_EQ(pages, (std::vector<int>{2, 2, 1}));
}

// A coordinator that is killed after it has stored something, before it can answer.
class LostAnswerTest : public CoordinatorTest {
 protected:
  class DyingStore : public store::Store {
   public:
    DyingStore(std::unique_ptr<store::SqliteStore> store, const bool* dying)
        : store_(std::move(store)), dying_(dying) {}
    absl::Status Commit(const store::Batch& batch) override {
      if (const absl::Status status = store_->Commit(batch); !status.ok()) return status;
      return *dying_ ? absl::AbortedError("killed") : absl::OkStatus();
    }
    absl::StatusOr<store::Image> Load() override { return store_->Load(); }
    absl::StatusOr<std::vector<store::StepRow>> ReadSteps(const std::string& job_id, uint64_t from,
                                                          size_t limit) override {
      return store_->ReadSteps(job_id, from, limit);
    }
    absl::StatusOr<std::vector<store::ValidationRow>> ReadValidations(const std::string& job_id,
                                                                      uint64_t from,
                                                                      size_t limit) override {
      return store_->ReadValidations(job_id, from, limit);
    }
    absl::StatusOr<std::vector<store::LogRow>> ReadLogs(const std::string& job_id, uint64_t after,
                                                        std::optional<uint32_t> rank,
                                                        size_t limit) override {
      return store_->ReadLogs(job_id, after, rank, limit);
    }

   private:
    const std::unique_ptr<store::SqliteStore> store_;
    const bool* const dying_;
  };

  std::unique_ptr<store::Store> Wrap(std::unique_ptr<store::SqliteStore> store) override {
    return std::make_unique<DyingStore>(std::move(store), &dying_);
  }
  // Makes the call on a coordinator that dies over it, then again on the next one.
  void Twice(const std::function<grpc::Status()>& call) {
    StopCoordinator();
    dying_ = true;
    StartCoordinator();
    EXPECT_EQ(call().error_code(), grpc::StatusCode::UNAVAILABLE);
    StopCoordinator();
    dying_ = false;
    StartCoordinator();
    const grpc::Status again = call();
    EXPECT_TRUE(again.ok()) << again.error_message();
  }

  // Written only while there is no coordinator.
  bool dying_ = false;
};

TEST_F(LostAnswerTest, ARepeatActsOnceAndGetsTheFirstAnswer) {
  v1::Job job;
  v1::DeleteJobResponse deleted;
  const std::string submit = NewUuid(), stop = NewUuid(), remove = NewUuid();
  Twice([&] { return Submit(Spec(), "", &job, submit); });
  EXPECT_EQ(job.id(), "tiny-1");
  grpc::ClientContext context;
  v1::ListJobsResponse list;
  ASSERT_TRUE(jobs_->ListJobs(&context, {}, &list).ok());
  EXPECT_EQ(list.jobs_size(), 1);
  Twice([&] { return Stop("tiny-1", &job, stop); });
  EXPECT_EQ(job.state(), v1::Job::CANCELLED);
  Twice([&] { return Delete("tiny-1", &deleted, remove); });
  EXPECT_EQ(deleted.job_id(), "tiny-1");
  coordinator_.reset();
  EXPECT_TRUE(store_->Load()->jobs.empty());
}

TEST_F(CoordinatorTest, ListsNewestFirstInPages) {
  v1::Job job;
  for (const char* id : {"a", "b", "c"}) ASSERT_TRUE(Submit(Spec(), id, &job).ok());
  v1::ListJobsRequest request;
  request.set_page_size(2);
  std::vector<std::string> ids;
  do {
    grpc::ClientContext context;
    v1::ListJobsResponse page;
    ASSERT_TRUE(jobs_->ListJobs(&context, request, &page).ok());
    for (const auto& listed : page.jobs()) ids.push_back(listed.id());
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty());
  EXPECT_EQ(ids, (std::vector<std::string>{"c", "b", "a"}));
  request.set_page_token("nonsense");
  grpc::ClientContext context;
  v1::ListJobsResponse page;
  EXPECT_EQ(jobs_->ListJobs(&context, request, &page).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
}

}  // namespace
}  // namespace muster::service
