// Workers, agents and coordinators that end, come back, or use a false identity.
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "common/rpc/error.h"
#include "coordinator/service/coordinator_fixture.h"

namespace muster::service {
namespace {

using RecoveryTest = CoordinatorTest;

TEST_F(RecoveryTest, AKilledWorkerIsTheCauseAndTheJobRestartsFromItsCheckpoint) {
  FakeAgent agent(address(), FakeAgent::Hello("n1", 2));
  v1::Job job;
  ASSERT_TRUE(Submit(Spec(), "a", &job).ok());
  Pair pair(address(), &agent, 1);
  for (uint64_t step : {2, 4, 6}) {
    ASSERT_TRUE(pair.rank0.Report(
        FakeWorker::CheckpointWritten(step, absl::StrCat("/ckpt/a/step-", step, "-g1"))));
  }
  const auto recorded = pair.rank0.Take([](const v1::WorkerDirective& d) {
    return d.has_checkpoint_recorded() && d.checkpoint_recorded().step() == 6;
  });
  ASSERT_EQ(recorded->checkpoint_recorded().remove_names_size(), 1);
  EXPECT_EQ(recorded->checkpoint_recorded().remove_names(0), "step-2-g1");

  // A consequence of the death of rank 1 may become known before the death.
  ASSERT_TRUE(pair.rank0.Report(FakeWorker::Failed("rank 1 is gone", true, false)));
  EXPECT_EQ(Get("a").state(), v1::Job::RECOVERING);
  ASSERT_TRUE(agent.ToldToStop(pair.id0));
  ASSERT_TRUE(agent.Exit(pair.id1, 0, 9));
  job = Get("a");
  EXPECT_EQ(job.failure().rank(), 1);
  EXPECT_EQ(job.failure().reason(), "killed by signal 9 (SIGKILL; perhaps the memory was used up)");
  EXPECT_EQ(job.failure().node(), "n1");
  EXPECT_EQ(job.failure().log_tail(), "last words");
  ASSERT_EQ(job.failure().consequences_size(), 1);
  EXPECT_EQ(job.failure().consequences(0), "rank 0: rank 1 is gone");
  ASSERT_TRUE(agent.Exit(pair.id0, 1));

  Pair next(address(), &agent, 2, 6);
  ASSERT_EQ(next.welcome.checkpoints_size(), 2);
  EXPECT_EQ(next.welcome.checkpoints(0).path(), "/ckpt/a/step-6-g1");
  job = Get("a");
  EXPECT_EQ(job.state(), v1::Job::RUNNING);
  EXPECT_EQ(job.generation(), 2);
  EXPECT_EQ(job.restarts(), 1);
  EXPECT_EQ(job.step(), 6);
  EXPECT_EQ(job.checkpoints(0).step(), 4);

  // The former process is refused, and so is a process with the new process's identity.
  FakeWorker stale(address(), pair.id1);
  EXPECT_EQ(stale.End()->error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(ErrorReason(FromGrpc(*stale.End())), "STALE_GENERATION");
  v1::WorkerIdentity other = next.id1;
  other.set_incarnation("other");
  FakeWorker pretender(address(), other);
  EXPECT_EQ(ErrorReason(FromGrpc(*pretender.End())), "STALE_INCARNATION");
  next.FinishAndExit(&agent, 10);
  EXPECT_EQ(Get("a").state(), v1::Job::SUCCEEDED);
}

TEST_F(RecoveryTest, TooManyFailuresAndPermanentOnesFailTheJob) {
  FakeAgent agent(address(), FakeAgent::Hello("n1", 2));
  v1::Job job;
  ASSERT_TRUE(Submit(Spec(1, 1), "twice", &job).ok());
  for (uint64_t generation : {1, 2}) {
    const auto id = agent.Started(generation, 0);
    FakeWorker worker(address(), id);
    ASSERT_TRUE(worker.Welcome().has_value());
    ASSERT_TRUE(agent.Exit(id, 7));
  }
  job = Get("twice");
  EXPECT_EQ(job.state(), v1::Job::FAILED);
  EXPECT_EQ(job.failure().reason(), "exited with code 7 before it finished");
  EXPECT_EQ(job.failure().generation(), 2);
  EXPECT_EQ(job.restarts(), 1);

  ASSERT_TRUE(Submit(Spec(1), "permanent", &job).ok());
  const auto id = agent.Started(1, 0);
  FakeWorker worker(address(), id);
  ASSERT_TRUE(worker.Welcome().has_value());
  ASSERT_TRUE(worker.Report(FakeWorker::Failed("no such file", false, true)));
  ASSERT_TRUE(agent.Exit(id, 1));
  job = Get("permanent");
  EXPECT_EQ(job.state(), v1::Job::FAILED);
  EXPECT_EQ(job.failure().reason(), "no such file");
  EXPECT_EQ(job.restarts(), 0);
}

TEST_F(RecoveryTest, ARestartedCoordinatorCarriesOnMidJob) {
  const v1::AgentHello hello = FakeAgent::Hello("n1", 2);
  v1::Job job;
  std::optional<v1::WorkerIdentity> id0, id1;
  const std::string request_id = NewUuid();
  {
    FakeAgent agent(address(), hello);
    ASSERT_TRUE(Submit(Spec(), "a", &job, request_id).ok());
    Pair pair(address(), &agent, 1);
    id0 = pair.id0;
    id1 = pair.id1;
    ASSERT_TRUE(pair.rank0.Report(FakeWorker::Step(1, 0.5)));
    StopCoordinator();
    EXPECT_EQ(agent.End()->error_code(), grpc::StatusCode::UNAVAILABLE);
    EXPECT_EQ(pair.rank0.End()->error_code(), grpc::StatusCode::UNAVAILABLE);
  }
  StartCoordinator();
  job = Get("a");
  EXPECT_EQ(job.state(), v1::Job::RUNNING);
  EXPECT_EQ(job.step(), 1);
  EXPECT_EQ(job.ranks(1).state(), v1::RankStatus::DETACHED);
  // The same request still acts once.
  ASSERT_TRUE(Submit(Spec(), "a", &job, request_id).ok());

  v1::AgentHello back = hello;
  *back.add_running()->mutable_worker() = *id0;
  *back.add_exits() = FakeAgent::ExitOf(*id1, 0);
  FakeWorker rank1(address(), *id1);
  ASSERT_TRUE(rank1.Welcome().has_value());
  ASSERT_TRUE(rank1.Report(FakeWorker::Finished(10)));
  FakeWorker rank0(address(), *id0);
  const auto welcome = rank0.Welcome();
  EXPECT_EQ(welcome->acked_sequence(), 2);
  // A report that was durable before is acknowledged, and taken once.
  v1::WorkerReport repeat = FakeWorker::Step(1, 99);
  repeat.set_sequence(2);
  ASSERT_TRUE(rank0.SendReport(repeat));
  ASSERT_TRUE(rank0.Report(FakeWorker::Step(2, 0.25)));
  ASSERT_TRUE(rank0.Report(FakeWorker::Finished(10)));
  FakeAgent agent(address(), back);
  ASSERT_TRUE(agent.Acked(*id1));
  ASSERT_TRUE(agent.Exit(*id0, 0));
  EXPECT_EQ(Get("a").state(), v1::Job::SUCCEEDED);
  const auto steps = Steps("a");
  ASSERT_EQ(steps.size(), 2);
  EXPECT_EQ(steps[0].loss(), 0.5);
}

TEST_F(RecoveryTest, ANewAgentProcessMeansThatTheOldWorkersAreDead) {
  v1::Job job;
  FakeAgent former(address(), FakeAgent::Hello("n1", 2));
  ASSERT_TRUE(Submit(Spec(), "a", &job).ok());
  Pair pair(address(), &former, 1);
  FakeAgent agent(address(), FakeAgent::Hello("n1", 2));
  EXPECT_EQ(ErrorReason(FromGrpc(*former.End())), "STALE_INCARNATION");
  EXPECT_EQ(agent.Started(2, 0).job_id(), "a");
  EXPECT_EQ(Get("a").restarts(), 0) << "that is no failure of the job";
}

TEST_F(RecoveryTest, AWorkerThatDoesNotStartIsTriedAgainWithoutARestart) {
  FakeAgent agent(address(), FakeAgent::Hello("n1", 2));
  v1::Job job;
  ASSERT_TRUE(Submit(Spec(1, 0), "a", &job).ok());
  const auto id = agent.Started(1, 0);
  v1::AgentMessage message;
  *message.mutable_worker_exit() = FakeAgent::ExitOf(id, 0);
  message.mutable_worker_exit()->set_start_error("no such program");
  message.mutable_worker_exit()->set_planned(v1::WorkerExit::NODE_FAULT);
  ASSERT_TRUE(agent.Send(message));
  EXPECT_EQ(agent.Started(2, 0).job_id(), "a");
  job = Get("a");
  EXPECT_EQ(job.failure().reason(), "could not be started: no such program");
  EXPECT_EQ(job.restarts(), 0);
  EXPECT_EQ(job.restarts_left(), 0);
}

TEST_F(RecoveryTest, AnAgentThatStopsHasItsJobsSaveAndGoOnElsewhere) {
  FakeAgent former(address(), FakeAgent::Hello("n1", 2));
  v1::Job job;
  ASSERT_TRUE(Submit(Spec(2, 0), "a", &job).ok());
  Pair pair(address(), &former, 1);
  FakeAgent next(address(), FakeAgent::Hello("n2", 2));
  ASSERT_TRUE(next.Welcomed());
  v1::AgentMessage draining;
  draining.mutable_draining()->set_reason("SIGTERM");
  ASSERT_TRUE(former.Send(draining));
  for (FakeWorker* worker : {&pair.rank0, &pair.rank1}) {
    EXPECT_EQ(worker->Preempted(), "the agent of node 'n1' is being stopped");
  }
  EXPECT_EQ(Get("a").state(), v1::Job::RUNNING);
  for (auto [worker, id] : {std::pair(&pair.rank0, pair.id0), std::pair(&pair.rank1, pair.id1)}) {
    v1::WorkerReport finished = FakeWorker::Finished(3);
    finished.mutable_finished()->set_preempted(true);
    ASSERT_TRUE(worker->Report(finished));
    ASSERT_TRUE(former.Exit(id, 0));
  }
  EXPECT_EQ(next.Started(2, 0).job_id(), "a");
  job = Get("a");
  EXPECT_EQ(job.ranks(0).node(), "n2");
  EXPECT_EQ(job.restarts(), 0);
  EXPECT_FALSE(job.has_failure());
}

TEST_F(RecoveryTest, AnAgentThatComesBackIsToldToEndWhatIsNotWanted) {
  v1::AgentHello hello = FakeAgent::Hello("n1", 2);
  auto* worker = hello.add_running()->mutable_worker();
  worker->set_job_id("gone");
  worker->set_generation(3);
  worker->set_incarnation("x");
  FakeAgent agent(address(), hello);
  EXPECT_TRUE(agent.ToldToStop(*worker));
}

TEST_F(RecoveryTest, AStreamWithoutAHelloIsRefused) {
  FakeAgent agent(address(), v1::AgentHello());
  EXPECT_EQ(agent.End()->error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(RecoveryTest, AGapInTheReportsEndsTheGenerationAndCostsNoRestart) {
  FakeAgent agent(address(), FakeAgent::Hello("n1", 2));
  v1::Job job;
  ASSERT_TRUE(Submit(Spec(), "a", &job).ok());
  Pair pair(address(), &agent, 1);
  v1::WorkerMessage message;
  *message.mutable_report() = FakeWorker::Step(1, 0.5);
  message.mutable_report()->set_sequence(7);
  pair.rank0.Send(message);
  ASSERT_TRUE(agent.ToldToStop(pair.id0));
  ASSERT_TRUE(agent.ToldToStop(pair.id1));
  ASSERT_TRUE(agent.Exit(pair.id0, 0, 15));
  ASSERT_TRUE(agent.Exit(pair.id1, 0, 15));
  job = Get("a");
  EXPECT_EQ(job.generation(), 2);
  EXPECT_EQ(job.restarts(), 0);
}

}  // namespace
}  // namespace muster::service
