// The metrics of jobs, ranks, nodes and the process, from plain values to the text.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <prometheus/text_serializer.h>

#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_split.h"
#include "common/files/temp_dir.h"
#include "coordinator/web/exposition.h"
#include "coordinator/web/metrics.h"
#include "proto/muster/v1/job.pb.h"
#include "proto/muster/v1/metrics.pb.h"

namespace muster::web {
namespace {

using testing::Contains;
using testing::Not;
using testing::StartsWith;

std::vector<std::string> Lines(Exposition out) {
  return absl::StrSplit(prometheus::TextSerializer().Serialize(std::move(out).Take()), '\n');
}

std::vector<std::string> OfJob(const service::ObservedJob& job) {
  Exposition out;
  AddJobMetrics({job}, &out);
  return Lines(std::move(out));
}

service::ObservedJob Job(const v1::StepMetrics& step) {
  service::ObservedJob job{.id = "a", .state = jobs::State::kRunning};
  job.progress.step = step.step();
  job.progress.newest_step = step.SerializeAsString();
  return job;
}

TEST(MetricsTest, AJobTellsItsNewestStepAndItsThroughput) {
  v1::StepMetrics step;
  step.set_step(7);
  step.set_loss(0.1);
  step.set_learning_rate(0.25);
  step.set_samples(8);
  step.mutable_duration()->set_seconds(2);
  service::ObservedJob job = Job(step);
  job.total_steps = 10;
  job.restarts = 3;
  job.newest_steps = {step.SerializeAsString(), step.SerializeAsString()};
  const std::vector<std::string> lines = OfJob(job);
  for (const char* line : {
           "muster_job_state{job_id=\"a\",state=\"RUNNING\"} 1",
           "muster_job_step{job_id=\"a\"} 7",
           "muster_job_planned_steps{job_id=\"a\"} 10",
           "muster_job_loss{job_id=\"a\"} 0.1",
           "muster_job_learning_rate{job_id=\"a\"} 0.25",
           "muster_job_step_duration_seconds{job_id=\"a\"} 2",
           "muster_job_samples_per_second{job_id=\"a\"} 4",
           "muster_job_restarts_total{job_id=\"a\"} 3",
       }) {
    EXPECT_THAT(lines, Contains(line));
  }
}

TEST(MetricsTest, WhatIsNotKnownIsAbsent) {
  service::ObservedJob job{.id = "a"};
  for (const std::vector<std::string>& lines : {OfJob(job), OfJob(Job(v1::StepMetrics()))}) {
    for (const char* absent : {"muster_job_loss{", "muster_job_learning_rate{",
                               "muster_job_planned_steps{", "muster_job_gradient_norm{",
                               "muster_job_tokens_per_second{", "muster_job_samples_per_second{",
                               "muster_job_checkpoint_step{", "muster_job_validation_loss{"}) {
      EXPECT_THAT(lines, Not(Contains(StartsWith(absent))));
    }
    EXPECT_THAT(lines, Contains("muster_job_step{job_id=\"a\"} 0"));
  }
  job.progress.newest_step = "damaged";
  EXPECT_THAT(OfJob(job), Not(Contains(StartsWith("muster_job_loss{"))));
}

TEST(MetricsTest, ALossThatIsNotFiniteIsTold) {
  v1::StepMetrics step;
  step.set_loss(std::nan(""));
  EXPECT_THAT(OfJob(Job(step)), Contains("muster_job_loss{job_id=\"a\"} Nan"));
  step.set_loss(std::numeric_limits<double>::infinity());
  EXPECT_THAT(OfJob(Job(step)), Contains("muster_job_loss{job_id=\"a\"} +Inf"));
  step.set_loss(-std::numeric_limits<double>::infinity());
  EXPECT_THAT(OfJob(Job(step)), Contains("muster_job_loss{job_id=\"a\"} -Inf"));
}

TEST(MetricsTest, ARankTellsItsMemoryAndItsSilence) {
  v1::RankMemory memory;
  memory.mutable_moments()->set_bytes(5);
  memory.mutable_moments()->set_peak_bytes(6);
  memory.set_resident_bytes(100);
  service::ObservedJob job{.id = "a"};
  job.ranks.push_back({.rank = 1,
                       .node = "n",
                       .state = v1::RankStatus::ATTACHED,
                       .step = 3,
                       .silence = absl::Milliseconds(500),
                       .memory = memory.SerializeAsString()});
  job.ranks.push_back({.rank = 2, .node = "n", .state = v1::RankStatus::STARTING});
  Exposition out;
  AddRankMetrics({job}, &out);
  const std::vector<std::string> lines = Lines(std::move(out));
  for (const char* line : {
           "muster_rank_info{job_id=\"a\",rank=\"1\",node=\"n\"} 1",
           "muster_rank_state{job_id=\"a\",rank=\"2\",state=\"STARTING\"} 1",
           "muster_rank_step{job_id=\"a\",rank=\"1\"} 3",
           "muster_rank_silence_seconds{job_id=\"a\",rank=\"1\"} 0.5",
           "muster_rank_memory_bytes{job_id=\"a\",rank=\"1\",purpose=\"moments\"} 5",
           "muster_rank_memory_peak_bytes{job_id=\"a\",rank=\"1\",purpose=\"moments\"} 6",
           "muster_rank_resident_memory_bytes{job_id=\"a\",rank=\"1\"} 100",
       }) {
    EXPECT_THAT(lines, Contains(line));
  }
  for (const char* absent :
       {"muster_rank_silence_seconds{job_id=\"a\",rank=\"2\"",
        "muster_rank_memory_bytes{job_id=\"a\",rank=\"2\"", "muster_rank_standstill_seconds{",
        "muster_rank_gpu_reserved_bytes{"}) {
    EXPECT_THAT(lines, Not(Contains(StartsWith(absent))));
  }
}

TEST(MetricsTest, EveryStateIsCountedAlsoIfNothingIsInIt) {
  service::Observation seen;
  seen.jobs_by_state[jobs::State::kFailed] = 2;
  seen.queues[jobs::Device::kCuda] = {.jobs = 3, .oldest_wait = absl::Seconds(90)};
  seen.nodes.push_back({.node = "a \"b\"",
                        .state = v1::Node::DRAINING,
                        .slots = {{jobs::Device::kCpu, 4}},
                        .used = {{jobs::Device::kCpu, 1}}});
  Exposition out;
  AddClusterMetrics(seen, &out);
  const std::vector<std::string> lines = Lines(std::move(out));
  for (const char* line : {
           "muster_jobs{state=\"FAILED\"} 2",
           "muster_jobs{state=\"QUEUED\"} 0",
           "muster_jobs{state=\"PAUSED\"} 0",
           "muster_ranks{state=\"ATTACHED\"} 0",
           "muster_nodes{state=\"LEFT_OUT\"} 0",
           "muster_queue_jobs{device=\"cpu\"} 0",
           "muster_queue_jobs{device=\"cuda\"} 3",
           "muster_queue_oldest_wait_seconds{device=\"cuda\"} 90",
           "muster_node_state{node=\"a \\\"b\\\"\",state=\"DRAINING\"} 1",
           "muster_node_slots{node=\"a \\\"b\\\"\",device=\"cpu\"} 4",
           "muster_node_slots_used{node=\"a \\\"b\\\"\",device=\"cpu\"} 1",
       }) {
    EXPECT_THAT(lines, Contains(line));
  }
}

TEST(MetricsTest, TheProcessAndTheDiskAreMeasured) {
  const files::TempDir folder;
  Exposition out;
  AddProcessMetrics(&out);
  AddStoreMetrics(folder.path(), false, &out);
  std::set<std::string> valued;
  for (const std::string& line : Lines(std::move(out))) {
    if (!line.empty() && line[0] != '#') valued.insert(line.substr(0, line.find(' ')));
  }
  EXPECT_EQ(valued, (std::set<std::string>{
                        "muster_process_cpu_seconds_total", "muster_process_resident_memory_bytes",
                        "muster_process_open_fds", "muster_process_max_fds",
                        "muster_process_start_time_seconds", "muster_store_writable",
                        "muster_store_size_bytes", "muster_store_disk_free_bytes",
                        "muster_store_disk_size_bytes"}));
}

}  // namespace
}  // namespace muster::web
