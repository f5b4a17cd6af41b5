// A fixture that runs one suite on every kind of store, and rows for the tests.
#ifndef MUSTER_COORDINATOR_STORE_STORE_FIXTURE_H_
#define MUSTER_COORDINATOR_STORE_STORE_FIXTURE_H_

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "common/files/temp_dir.h"
#include "coordinator/jobs/job.h"
#include "coordinator/jobs/life_row.h"
#include "coordinator/store/job_rows.h"
#include "coordinator/store/memory_store.h"
#include "coordinator/store/sqlite_store.h"
#include "coordinator/store/store.h"

namespace muster::store {

inline jobs::Job FullJob(const std::string& id, uint64_t number) {
  jobs::Job job;
  job.id = id;
  job.number = number;
  job.spec = std::string("bytes\0with zero", 15);
  job.plan = {.world_size = 2,
              .device = jobs::Device::kCuda,
              .threads = 6,
              .total_steps = 100,
              .max_restarts = 4,
              .keep_checkpoints = 5,
              .priority = -7,
              .continue_when_cut_off = true,
              .no_progress = absl::Milliseconds(1500),
              .startup = absl::Hours(2),
              .time_limit = absl::Minutes(90)};
  // Stopping is the phase with the most facts. life_row_test has the facts of other phases.
  job.phase = jobs::life::Stopping{.alive = {.since = absl::FromUnixMicros(1234567890123458),
                                             .rendezvous = jobs::Rendezvous{"10.0.0.1", 4242},
                                             .export_granted = "/out",
                                             .ended_early = "rank 1 has run out",
                                             .interruption = "node 'n' is drained",
                                             .preempted = true,
                                             .halt_reason = "none can be read"},
                                   .why = jobs::life::Stopping::Why::kTimeIsUp,
                                   .told = absl::InfinitePast(),
                                   .paused = true};
  job.state_reason = "why";
  job.reason_code = "WHY";
  job.save_failure = {.step = 16, .message = "full", .time = job.create_time, .count = 3};
  job.version = 41;
  job.version_ceiling = 1041;
  job.create_time = absl::FromUnixMicros(1234567890123456);
  job.start_time = absl::FromUnixMicros(1234567890123457);
  job.generation = 3;
  job.restarts = 2;
  job.attempt = 3;
  job.ended_attempts = {{.attempt = 1, .state = jobs::State::kCancelled, .step = 2},
                        {.attempt = 2,
                         .state_reason = "rank 0",
                         .reason_code = "CODE",
                         .end_time = job.create_time,
                         .step = 4}};
  job.setting_changes = {{.attempt = 2,
                          .generation = 1,
                          .time = job.create_time,
                          .requester = "uid:7",
                          .path = "optimizer.adamw.lr",
                          .old_value = "0.1",
                          .new_value = "0.01"},
                         {.attempt = 3, .path = "clip_grad_norm", .new_value = "1"}};
  job.restarts_used = 1;
  job.node_faults = 5;
  job.start_failures = 2;
  job.job_file = "/home/ann/job.yaml";
  job.failed_step = 15;
  job.started_step = 14;
  job.stage = "fit";
  job.step = 17;
  job.newest_step = std::string("\0step", 5);
  job.newest_validation = std::string("\0pass", 5);
  job.newest_test = std::string("\0test", 5);
  job.fit_steps = 100;
  job.stages_done = 2;
  job.stages_done_step = 11;
  job.skipped_steps = 2;
  job.exported_path = "/out";
  job.log_sequence = 9;
  jobs::Rank rank{.node = "n",
                  .slot = 1,
                  .host = "h",
                  .agent_incarnation = "a",
                  .incarnation = "i",
                  .pid = 77,
                  .step = 17,
                  .acked_report = 12,
                  .session_started = true,
                  .finished = true,
                  .exited = true,
                  .attached = true,
                  .joined_since = 9};
  job.ranks = {rank, jobs::Rank{.node = "m"}};
  job.checkpoints = {{.step = 8, .generation = 2, .path = "p8", .create_time = job.create_time},
                     {.step = 16,
                      .generation = 3,
                      .path = "p16",
                      .create_time = job.create_time,
                      .bad_reason = "hash"}};
  job.checkpoints[0].origin = jobs::Origin::kAdopted;
  job.checkpoints[1].bytes = 806'000'000;
  job.checkpoints[1].stall = absl::Milliseconds(90);
  job.checkpoints[1].write_time = absl::Seconds(2);
  job.checkpoints[1].best = true;
  job.found_checkpoints = {{.step = 6,
                            .generation = 1,
                            .path = "p6",
                            .create_time = job.create_time,
                            .origin = jobs::Origin::kFound,
                            .origin_reason = "older"}};
  job.newest_generation_seen = 7;
  job.from_scratch = true;
  job.start_from = "/elsewhere";
  job.dropped_checkpoints = {"p4"};
  job.failures = {{.generation = 2,
                   .rank = 1,
                   .node = "n",
                   .step = 9,
                   .kind = jobs::FailureKind::kLost,
                   .permanent = true,
                   .reason = "r",
                   .log_tail = "line\nline",
                   .code = "NODE_FAULT",
                   .collectives = {"rank 1: a", "rank 0: b"}},
                  {.generation = 2, .rank = 0, .kind = jobs::FailureKind::kConsequence}};
  job.time_used = absl::Microseconds(1234567);
  job.trainability = {.version = 3,
                      .in_force = std::string("f\0", 2),
                      .parameters = "p",
                      .history = {{.version = 2, .contents = "c2"},
                                  {.version = 3,
                                   .generation = 2,
                                   .time = job.create_time,
                                   .command = 1,
                                   .contents = std::string("\0c", 2)}}};
  job.commands.Append({.kind = v1::Operation::SET_LEARNING_RATE,
                       .contents = std::string("a\0b", 3),
                       .at_step = 0,
                       .requested_by = "me",
                       .requester = "uid 1000",
                       .create_time = job.create_time});
  job.commands.Append({.kind = v1::Operation::CANCEL, .target = 1});
  job.commands.Append({.kind = v1::Operation::STOP});
  job.commands.Applied(1, 0);
  job.commands.Finished(1, {.time = job.create_time, .result = std::string("r\0", 2)});
  job.commands.Finished(2, {.time = job.create_time,
                            .code = absl::StatusCode::kFailedPrecondition,
                            .reason = "R",
                            .message = "too late"});
  return job;
}

// Returns all rows of a job of which nothing is stored.
inline Batch::JobRow NewRows(jobs::Job job) { return JobRows().TakeChanges(&job); }

inline void ExpectSame(const jobs::Job& a, const jobs::Job& b) {
  EXPECT_EQ(a.id, b.id);
  EXPECT_EQ(jobs::RowOf(a), jobs::RowOf(b));
  EXPECT_EQ(a.number, b.number);
  EXPECT_EQ(a.spec, b.spec);
  EXPECT_EQ(a.plan.world_size, b.plan.world_size);
  EXPECT_EQ(a.plan.total_steps, b.plan.total_steps);
  EXPECT_EQ(a.plan.max_restarts, b.plan.max_restarts);
  EXPECT_EQ(a.plan.keep_checkpoints, b.plan.keep_checkpoints);
  EXPECT_EQ(a.plan.priority, b.plan.priority);
  EXPECT_EQ(a.plan.device, b.plan.device);
  EXPECT_EQ(a.plan.threads, b.plan.threads);
  EXPECT_EQ(a.plan.continue_when_cut_off, b.plan.continue_when_cut_off);
  EXPECT_EQ(a.plan.no_progress, b.plan.no_progress);
  EXPECT_EQ(a.plan.startup, b.plan.startup);
  EXPECT_EQ(a.plan.time_limit, b.plan.time_limit);
  EXPECT_EQ(a.create_time, b.create_time);
  EXPECT_EQ(a.ended_attempts, b.ended_attempts);
  EXPECT_EQ(a.setting_changes, b.setting_changes);
  EXPECT_EQ(a.job_file, b.job_file);
  EXPECT_EQ(a.stage, b.stage);
  EXPECT_EQ(a.step, b.step);
  EXPECT_EQ(a.newest_step, b.newest_step);
  EXPECT_EQ(a.newest_validation, b.newest_validation);
  EXPECT_EQ(a.newest_test, b.newest_test);
  EXPECT_EQ(a.fit_steps, b.fit_steps);
  EXPECT_EQ(a.stages_done, b.stages_done);
  EXPECT_EQ(a.stages_done_step, b.stages_done_step);
  EXPECT_EQ(a.skipped_steps, b.skipped_steps);
  EXPECT_EQ(a.log_sequence, b.log_sequence);
  EXPECT_EQ(a.ranks, b.ranks);
  EXPECT_EQ(a.checkpoints, b.checkpoints);
  EXPECT_EQ(a.dropped_checkpoints, b.dropped_checkpoints);
  EXPECT_EQ(a.found_checkpoints, b.found_checkpoints);
  EXPECT_EQ(a.failures, b.failures);
  EXPECT_EQ(a.commands.commands(), b.commands.commands());
  EXPECT_EQ(a.trainability, b.trainability);
  EXPECT_EQ(a.events, b.events);
}

// Makes the measurements of a step. Their bytes, which a store does not interpret, are the loss as
// text.
inline MetricsRow Step(uint64_t step, double loss, const std::string& job = "a") {
  return {.job_id = job, .step = step, .generation = 1, .metrics = std::to_string(loss)};
}

inline MetricsRow Pass(uint64_t step, double loss, const std::string& job = "a") {
  return Step(step, loss, job);
}

inline EventRow Event(uint64_t number, const std::string& job = "a") {
  return {.job_id = job,
          .event = {.number = number,
                    .time = absl::FromUnixMicros(1234567890123456),
                    .generation = 2,
                    .step = 7,
                    .reason = "R",
                    .message = "event " + std::to_string(number)}};
}

// The limit on kept metrics of every store here.
inline constexpr uint64_t kKept = 60;

inline LogRow Line(uint64_t sequence, uint32_t rank = 0, const std::string& job = "a") {
  return {.job_id = job,
          .sequence = sequence,
          .generation = 1,
          .rank = rank,
          .text = "line " + std::to_string(sequence)};
}

// A kind of store. Reopen() shows what is durable.
class Kind {
 public:
  virtual ~Kind() = default;
  virtual Store& store() = 0;
  virtual void Reopen() {}
};

class MemoryKind : public Kind {
 public:
  Store& store() override { return store_; }

 private:
  MemoryStore store_{{.kept_metrics = kKept}};
};

class SqliteKind : public Kind {
 public:
  SqliteKind() { Reopen(); }
  Store& store() override { return *store_; }
  void Reopen() override {
    store_.reset();
    auto opened = SqliteStore::Open(dir_.path(), {.kept_metrics = kKept});
    ASSERT_TRUE(opened.ok()) << opened.status();
    store_ = std::move(*opened);
  }

 private:
  files::TempDir dir_;
  std::unique_ptr<SqliteStore> store_;
};

using MakeKind = std::function<std::unique_ptr<Kind>()>;
struct StoreTest : testing::TestWithParam<std::pair<const char*, MakeKind>> {
  Store& store() { return kind->store(); }
  Image Load() {
    auto image = store().Load();
    EXPECT_TRUE(image.ok()) << image.status();
    return image.ok() ? *image : Image();
  }
  std::unique_ptr<Kind> kind = GetParam().second();
};

inline auto EveryKind() {
  return testing::Values(
      std::pair<const char*, MakeKind>("Memory", [] { return std::make_unique<MemoryKind>(); }),
      std::pair<const char*, MakeKind>("Sqlite", [] { return std::make_unique<SqliteKind>(); }));
}
inline std::string NameOfKind(const testing::TestParamInfo<StoreTest::ParamType>& info) {
  return info.param.first;
}

}  // namespace muster::store

#endif  // MUSTER_COORDINATOR_STORE_STORE_FIXTURE_H_
