// A job's measurements, from a worker's reports to GetJob and StreamMetrics.
#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "common/steady/test_bound.h"
#include "coordinator/service/coordinator_fixture.h"
#include "coordinator/store/sqlite_store.h"

namespace muster::service {
namespace {

using MetricsTest = CoordinatorTest;

v1::WorkerReport Report(const std::string& text) {
  v1::WorkerReport report;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &report)) << text;
  return report;
}

const char kStep1[] = R"(step { step: 1 loss: 2 learning_rate: 0.5 grad_norm: 3 samples: 8
    duration { nanos: 500000000 } perplexity: 7.5 tokens: 256 model_flops_per_second: 4e9
    model_flops_utilization: 0.4
    loss_scale: 1024 })";
const char kStep2[] = R"(step { step: 2 loss: 1 learning_rate: 0.25 grad_norm: 1.5 samples: 8
    duration { nanos: 250000000 } perplexity: 2.5 tokens: 256 model_flops_per_second: 1e9
    model_flops_utilization: 0.1
    skipped: true loss_scale: 1024 })";
const char kValidated[] =
    "validated { step: 2 loss: 1.5 samples: 30 accuracy: 0.75 perplexity: 4.5 }";

TEST_F(MetricsTest, EverythingThatIsReportedIsShown) {
  FakeAgent agent(address(), FakeAgent::Hello("n1", 2));
  v1::Job job;
  ASSERT_TRUE(Submit(Spec(), "a", &job).ok());
  Pair pair(address(), &agent, 1);
  for (const char* report : {kStep1, kStep2, kValidated}) {
    ASSERT_TRUE(pair.rank0.Report(Report(report)));
  }
  job = Get("a");
  EXPECT_EQ(job.loss(), 1);
  EXPECT_EQ(job.perplexity(), 2.5);
  EXPECT_EQ(job.grad_norm(), 1.5);
  EXPECT_EQ(job.skipped_steps(), 1);
  EXPECT_EQ(job.validation_loss(), 1.5);
  EXPECT_EQ(job.validation_accuracy(), 0.75);
  EXPECT_EQ(job.validation_perplexity(), 4.5);
  EXPECT_EQ(job.validation_step(), 2);
  // The rates over both steps: 16 samples, 512 tokens and 2.25e9 operations in 0.75 s.
  EXPECT_NEAR(job.samples_per_second(), 16 / 0.75, 1e-9);
  EXPECT_NEAR(job.tokens_per_second(), 512 / 0.75, 1e-9);
  EXPECT_NEAR(job.model_flops_per_second(), 2.25e9 / 0.75, 1);
  EXPECT_NEAR(job.model_flops_utilization(), 0.225 / 0.75, 1e-9);

  const std::vector<v1::StepMetrics> entries = Steps("a");
  ASSERT_EQ(entries.size(), 3);
  v1::StepMetrics expected = Report(kStep1).step();
  expected.set_generation(1);
  expected.set_samples_per_second(16);
  expected.set_tokens_per_second(512);
  EXPECT_EQ(entries[0].DebugString(), expected.DebugString());
  EXPECT_TRUE(entries[1].skipped());
  expected.Clear();
  expected.set_step(2);
  expected.set_generation(1);
  auto* validation = expected.mutable_validation();
  validation->set_loss(1.5);
  validation->set_accuracy(0.75);
  validation->set_perplexity(4.5);
  validation->set_samples(30);
  EXPECT_EQ(entries[2].DebugString(), expected.DebugString());

  // A restart keeps everything except the throughput, which is computed from the last steps.
  StopCoordinator();
  StartCoordinator();
  v1::Job again = Get("a");
  EXPECT_EQ(again.samples_per_second(), 0);
  EXPECT_FALSE(again.has_tokens_per_second());
  EXPECT_EQ(again.perplexity(), 2.5);
  EXPECT_EQ(again.grad_norm(), 1.5);
  EXPECT_EQ(again.skipped_steps(), 1);
  EXPECT_EQ(again.validation_accuracy(), 0.75);
  EXPECT_EQ(again.validation_perplexity(), 4.5);
  ASSERT_EQ(Steps("a").size(), 3);
  EXPECT_EQ(Steps("a")[2].DebugString(), expected.DebugString());
}

TEST_F(MetricsTest, WhatAModelDoesNotHaveIsAbsent) {
  FakeAgent agent(address(), FakeAgent::Hello("n1", 2));
  v1::Job job;
  ASSERT_TRUE(Submit(Spec(), "a", &job).ok());
  Pair pair(address(), &agent, 1);
  ASSERT_TRUE(pair.rank0.Report(FakeWorker::Step(1, 0.5)));
  ASSERT_TRUE(pair.rank0.Report(Report("validated { step: 1 loss: 2 samples: 3 }")));
  job = Get("a");
  EXPECT_EQ(job.samples_per_second(), 16);
  EXPECT_FALSE(job.has_perplexity() || job.has_grad_norm() || job.has_tokens_per_second() ||
               job.has_model_flops_per_second() || job.has_model_flops_utilization() ||
               job.has_validation_accuracy() || job.has_validation_perplexity());
  const auto entries = Steps("a");
  ASSERT_EQ(entries.size(), 2);
  EXPECT_FALSE(entries[0].has_perplexity() || entries[0].has_tokens() ||
               entries[0].has_tokens_per_second() || entries[0].has_model_flops_per_second() ||
               entries[0].has_loss_scale() || entries[0].has_validation());
  EXPECT_FALSE(entries[1].has_loss() || entries[1].has_learning_rate());
  EXPECT_FALSE(entries[1].validation().has_accuracy() || entries[1].validation().has_perplexity());
}

TEST_F(MetricsTest, ALossThatIsNotANumberIsStillNotANumberAfterARestart) {
  FakeAgent agent(address(), FakeAgent::Hello("n1", 2));
  v1::Job job;
  ASSERT_TRUE(Submit(Spec(), "a", &job).ok());
  Pair pair(address(), &agent, 1);
  ASSERT_TRUE(pair.rank0.Report(Report("step { step: 1 loss: nan perplexity: nan }")));
  ASSERT_TRUE(pair.rank0.Report(
      Report("validated { step: 1 validation { loss: nan perplexity: inf samples: 3 } }")));
  const auto expect_the_same = [this] {
    const auto entries = Steps("a");
    ASSERT_EQ(entries.size(), 2);
    EXPECT_TRUE(entries[0].has_loss() && std::isnan(entries[0].loss()));
    EXPECT_TRUE(entries[0].has_perplexity() && std::isnan(entries[0].perplexity()));
    EXPECT_FALSE(entries[0].has_grad_norm());
    EXPECT_TRUE(std::isnan(entries[1].validation().loss()));
    EXPECT_TRUE(std::isinf(entries[1].validation().perplexity()));
    const v1::Job now = Get("a");
    EXPECT_TRUE(now.has_loss() && std::isnan(now.loss()));
    EXPECT_TRUE(now.has_perplexity() && std::isnan(now.perplexity()));
    EXPECT_TRUE(now.has_validation_loss() && std::isnan(now.validation_loss()));
    EXPECT_TRUE(now.has_validation_perplexity() && std::isinf(now.validation_perplexity()));
  };
  expect_the_same();
  StopCoordinator();
  StartCoordinator();
  expect_the_same();
}

TEST_F(MetricsTest, DamagedMetricsAreAnErrorOrAWarningAndNeverZeros) {
  constexpr char kDamaged[] = "\xff";
  FakeAgent agent(address(), FakeAgent::Hello("n1", 2));
  v1::Job job;
  ASSERT_TRUE(Submit(Spec(), "a", &job).ok());
  Pair pair(address(), &agent, 1);
  ASSERT_TRUE(pair.rank0.Report(Report(kStep1)));
  StopCoordinator();
  {
    const auto store = store::SqliteStore::Open(dir_.path());
    ASSERT_TRUE(store.ok()) << store.status();
    const auto image = (*store)->Load();
    ASSERT_TRUE(image.ok()) << image.status();
    ASSERT_EQ(image->jobs.size(), 1);
    store::Batch::JobRow row{.job_id = "a"};
    const jobs::JobProgress& progress = image->jobs[0];
    row.progress = progress;
    row.progress->newest_step = kDamaged;
    row.progress->newest_validation = kDamaged;
    const store::MetricsRow step{.job_id = "a", .step = 2, .generation = 1, .metrics = kDamaged};
    ASSERT_TRUE((*store)->Commit({.jobs = {row}, .steps = {step}}).ok());
  }
  StartCoordinator();
  grpc::ClientContext context;
  v1::StreamMetricsRequest request;
  request.set_job_id("a");
  const auto stream = jobs_->StreamMetrics(&context, request);
  v1::StepMetrics entry;
  ASSERT_TRUE(stream->Read(&entry));
  EXPECT_EQ(entry.loss(), 2);
  EXPECT_FALSE(stream->Read(&entry));
  const grpc::Status status = stream->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::DATA_LOSS);
  EXPECT_THAT(status.error_message(), testing::HasSubstr("job 'a'"));
  EXPECT_THAT(status.error_message(), testing::HasSubstr("step 2"));
  const v1::Job now = Get("a");
  EXPECT_FALSE(now.has_loss() || now.has_validation_loss());
  ASSERT_EQ(now.warnings_size(), 2);
  EXPECT_THAT(now.warnings(0), testing::HasSubstr("newest step cannot be read"));
  EXPECT_THAT(now.warnings(1), testing::HasSubstr("newest validation pass cannot be read"));
}

TEST_F(MetricsTest, ATestStandsBesideTheValidation) {
  FakeAgent agent(address(), FakeAgent::Hello("n1", 2));
  v1::Job job;
  ASSERT_TRUE(Submit(Spec(), "a", &job).ok());
  Pair pair(address(), &agent, 1);
  ASSERT_TRUE(pair.rank0.Report(Report(kStep1)));
  ASSERT_TRUE(pair.rank0.Report(Report("validated { step: 1 validation { loss: 2 samples: 3 } }")));
  ASSERT_TRUE(pair.rank0.Report(
      Report("validated { step: 1 test { loss: 4 samples: 5 top_k: 5 top_k_accuracy: 0.5 "
             "classes { targets: 5 } } }")));
  StopCoordinator();
  StartCoordinator();
  const auto entries = Steps("a");
  ASSERT_EQ(entries.size(), 3);
  EXPECT_FALSE(entries[1].has_test());
  EXPECT_FALSE(entries[2].has_validation());
  EXPECT_EQ(entries[2].test().loss(), 4);
  EXPECT_EQ(entries[2].test().classes().targets(0), 5u);
  const v1::Job now = Get("a");
  EXPECT_EQ(now.validation_loss(), 2);
  EXPECT_EQ(now.validation().samples(), 3u);
  EXPECT_EQ(now.test_step(), 1u);
  EXPECT_EQ(now.test().top_k_accuracy(), 0.5);
  EXPECT_FALSE(now.test().has_classes()) << "they may be large";
}

// A new metric needs no change in the coordinator.
TEST_F(MetricsTest, AMetricThatThisProgramDoesNotKnowReachesClientsAsItIs) {
  constexpr int kFieldOfALaterProgram = 999;
  FakeAgent agent(address(), FakeAgent::Hello("n1", 2));
  v1::Job job;
  ASSERT_TRUE(Submit(Spec(), "a", &job).ok());
  Pair pair(address(), &agent, 1);
  v1::WorkerReport step = Report(kStep1);
  step.mutable_step()
      ->GetReflection()
      ->MutableUnknownFields(step.mutable_step())
      ->AddVarint(kFieldOfALaterProgram, 7);
  v1::WorkerReport pass = Report("validated { step: 1 validation { loss: 2 samples: 3 } }");
  v1::Evaluation* validation = pass.mutable_validated()->mutable_validation();
  validation->GetReflection()
      ->MutableUnknownFields(validation)
      ->AddVarint(kFieldOfALaterProgram, 8);
  ASSERT_TRUE(pair.rank0.Report(step));
  ASSERT_TRUE(pair.rank0.Report(pass));
  StopCoordinator();
  StartCoordinator();
  const auto entries = Steps("a");
  ASSERT_EQ(entries.size(), 2);
  const auto number = [](const google::protobuf::Message& message) -> uint64_t {
    const auto& unknown = message.GetReflection()->GetUnknownFields(message);
    return unknown.field_count() == 1 ? unknown.field(0).varint() : 0;
  };
  EXPECT_EQ(number(entries[0]), 7);
  EXPECT_EQ(entries[0].loss(), 2);
  EXPECT_EQ(number(entries[1].validation()), 8);
  EXPECT_EQ(entries[1].validation().samples(), 3);
  EXPECT_EQ(Get("a").validation_loss(), 2);
}

TEST_F(MetricsTest, AStepThatSaysThatItIsAPassIsAStep) {
  FakeAgent agent(address(), FakeAgent::Hello("n1", 2));
  v1::Job job;
  ASSERT_TRUE(Submit(Spec(), "a", &job).ok());
  Pair pair(address(), &agent, 1);
  ASSERT_TRUE(pair.rank0.Report(Report("step { step: 1 loss: 2 validation { loss: 3 } }")));
  const auto entries = Steps("a");
  ASSERT_EQ(entries.size(), 1);
  EXPECT_FALSE(entries[0].has_validation());
}

TEST_F(MetricsTest, AFollowerGetsAPassWhenItComes) {
  FakeAgent agent(address(), FakeAgent::Hello("n1", 2));
  v1::Job job;
  ASSERT_TRUE(Submit(Spec(), "a", &job).ok());
  Pair pair(address(), &agent, 1);
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + kTestBound));
  v1::StreamMetricsRequest request;
  request.set_job_id("a");
  request.set_follow(true);
  const auto stream = jobs_->StreamMetrics(&context, request);
  v1::StepMetrics entry;
  ASSERT_TRUE(pair.rank0.Report(Report("validated { step: 0 loss: 9 }")));
  ASSERT_TRUE(stream->Read(&entry));
  EXPECT_EQ(entry.validation().loss(), 9);
  ASSERT_TRUE(pair.rank0.Report(FakeWorker::Step(1, 0.5)));
  ASSERT_TRUE(stream->Read(&entry));
  EXPECT_EQ(entry.loss(), 0.5);
  ASSERT_TRUE(pair.rank0.Report(Report("validated { step: 1 loss: 8 }")));
  ASSERT_TRUE(stream->Read(&entry));
  EXPECT_EQ(entry.validation().loss(), 8);
  ASSERT_TRUE(pair.rank0.Report(FakeWorker::Step(2, 0.25)));
  ASSERT_TRUE(stream->Read(&entry));
  EXPECT_EQ(entry.step(), 2);
  pair.FinishAndExit(&agent, 10);
  EXPECT_FALSE(stream->Read(&entry));
  EXPECT_TRUE(stream->Finish().ok());
}

}  // namespace
}  // namespace muster::service
