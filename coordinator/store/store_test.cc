// One suite for all stores, and what only the SQLite one promises.
#include "coordinator/store/store.h"

#include <gtest/gtest.h>
#include <xxhash.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>

#include "absl/strings/str_cat.h"
#include "common/files/files.h"
#include "common/files/temp_dir.h"
#include "coordinator/store/memory_store.h"
#include "coordinator/store/schema.h"
#include "coordinator/store/sqlite_store.h"

namespace muster::store {
namespace {

using Lists = Batch::JobRow::Lists;

jobs::Job FullJob(const std::string& id, uint64_t number) {
  jobs::Job job;
  job.id = id;
  job.number = number;
  job.spec = std::string("bytes\0with zero", 15);
  job.plan = {.world_size = 2, .total_steps = 100, .max_restarts = 4, .keep_checkpoints = 5,
              .priority = -7};
  job.state = jobs::State::kRecovering;
  job.state_reason = "why";
  job.version = 41;
  job.version_ceiling = 1041;
  job.create_time = absl::FromUnixMicros(1234567890123456);
  job.start_time = absl::FromUnixMicros(1234567890123457);
  job.generation = 3;
  job.live = true;
  job.ending = true;
  job.stop_requested = true;
  job.restarts = 2;
  job.rendezvous = jobs::Rendezvous{"10.0.0.1", 4242};
  job.stage = "fit";
  job.step = 17;
  job.loss = 0.1;
  job.perplexity = 1.1;
  job.grad_norm = 3.5;
  job.skipped_steps = 2;
  job.validation_accuracy = 0.75;
  job.validation_perplexity = 1.2;
  job.validation_loss = 0.2;
  job.validation_step = 16;
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
                  .exited = true};
  job.ranks = {rank, jobs::Rank{.node = "m"}};
  job.checkpoints = {{.step = 8, .generation = 2, .path = "p8", .create_time = job.create_time},
                     {.step = 16,
                      .generation = 3,
                      .path = "p16",
                      .create_time = job.create_time,
                      .bad_reason = "hash"}};
  job.dropped_checkpoints = {"p4"};
  job.failures = {{.generation = 2,
                   .rank = 1,
                   .node = "n",
                   .step = 9,
                   .kind = jobs::FailureKind::kLost,
                   .permanent = true,
                   .reason = "r",
                   .log_tail = "line\nline"},
                  {.generation = 2, .rank = 0, .kind = jobs::FailureKind::kConsequence}};
  job.commands.Append(commands::Kind::kStop);
  job.commands.Append(commands::Kind::kStop);
  job.commands.Applied(1, 0);
  return job;
}

void ExpectSame(const jobs::Job& a, const jobs::Job& b) {
  EXPECT_EQ(a.id, b.id);
  EXPECT_EQ(a.number, b.number);
  EXPECT_EQ(a.spec, b.spec);
  EXPECT_EQ(a.plan.world_size, b.plan.world_size);
  EXPECT_EQ(a.plan.total_steps, b.plan.total_steps);
  EXPECT_EQ(a.plan.max_restarts, b.plan.max_restarts);
  EXPECT_EQ(a.plan.keep_checkpoints, b.plan.keep_checkpoints);
  EXPECT_EQ(a.plan.priority, b.plan.priority);
  EXPECT_EQ(a.state, b.state);
  EXPECT_EQ(a.state_reason, b.state_reason);
  EXPECT_EQ(a.version_ceiling, b.version_ceiling);
  EXPECT_EQ(a.create_time, b.create_time);
  EXPECT_EQ(a.start_time, b.start_time);
  EXPECT_EQ(a.end_time, b.end_time);
  EXPECT_EQ(a.generation, b.generation);
  EXPECT_EQ(a.live, b.live);
  EXPECT_EQ(a.ending, b.ending);
  EXPECT_EQ(a.stop_requested, b.stop_requested);
  EXPECT_EQ(a.restarts, b.restarts);
  EXPECT_EQ(a.rendezvous, b.rendezvous);
  EXPECT_EQ(a.stage, b.stage);
  EXPECT_EQ(a.step, b.step);
  EXPECT_EQ(a.loss, b.loss);
  EXPECT_EQ(a.perplexity, b.perplexity);
  EXPECT_EQ(a.grad_norm, b.grad_norm);
  EXPECT_EQ(a.skipped_steps, b.skipped_steps);
  EXPECT_EQ(a.validation_loss, b.validation_loss);
  EXPECT_EQ(a.validation_accuracy, b.validation_accuracy);
  EXPECT_EQ(a.validation_perplexity, b.validation_perplexity);
  EXPECT_EQ(a.validation_step, b.validation_step);
  EXPECT_EQ(a.exported_path, b.exported_path);
  EXPECT_EQ(a.log_sequence, b.log_sequence);
  EXPECT_EQ(a.ranks, b.ranks);
  EXPECT_EQ(a.checkpoints, b.checkpoints);
  EXPECT_EQ(a.dropped_checkpoints, b.dropped_checkpoints);
  EXPECT_EQ(a.failures, b.failures);
  EXPECT_EQ(a.commands.commands(), b.commands.commands());
}

StepRow Step(uint64_t step, double loss, const std::string& job = "a") {
  return {.job_id = job,
          .step = step,
          .generation = 1,
          .loss = loss,
          .learning_rate = 0.5,
          .samples = 8,
          .duration = absl::Milliseconds(3)};
}

ValidationRow Pass(uint64_t step, double loss, const std::string& job = "a") {
  return {.job_id = job, .step = step, .generation = 1, .loss = loss, .samples = 8};
}

constexpr uint64_t kHashOfVersion1 = 13970676956110359370u;

// The bound of every store here.
constexpr uint64_t kKept = 60;

LogRow Line(uint64_t sequence, uint32_t rank = 0, const std::string& job = "a") {
  return {.job_id = job,
          .sequence = sequence,
          .generation = 1,
          .rank = rank,
          .text = "line " + std::to_string(sequence)};
}

// Makes a store; Reopen() shows what is durable.
class Kind {
 public:
  virtual ~Kind() = default;
  virtual Store& store() = 0;
  virtual void Reopen() {}
};

template <typename Row>
std::vector<uint64_t> StepsOf(const absl::StatusOr<std::vector<Row>>& rows) {
  std::vector<uint64_t> steps;
  for (const Row& row : *rows) steps.push_back(row.step);
  return steps;
}

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

TEST_P(StoreTest, StartsEmpty) {
  const Image image = Load();
  EXPECT_TRUE(image.jobs.empty());
  EXPECT_TRUE(image.nodes.empty());
  EXPECT_TRUE(image.requests.empty());
  EXPECT_TRUE(store().ReadSteps("a", 0, 10)->empty());
  EXPECT_TRUE(store().ReadLogs("a", 0, {}, 10)->empty());
}

TEST_P(StoreTest, EveryFieldOfAJobComesBack) {
  ASSERT_TRUE(store().Commit({.jobs = {{FullJob("a", 1)}}}).ok());
  kind->Reopen();
  const Image image = Load();
  ASSERT_EQ(image.jobs.size(), 1);
  ExpectSame(image.jobs[0], FullJob("a", 1));
}

TEST_P(StoreTest, JobsComeInTheOrderOfTheirNumbers) {
  ASSERT_TRUE(
      store().Commit({.jobs = {{FullJob("a", 3)}, {FullJob("b", 1)}, {FullJob("c", 2)}}}).ok());
  const Image image = Load();
  ASSERT_EQ(image.jobs.size(), 3);
  EXPECT_EQ(image.jobs[0].id, "b");
  EXPECT_EQ(image.jobs[2].id, "a");
  ExpectSame(image.jobs[2], FullJob("a", 3));
}

TEST_P(StoreTest, KeptListsStayAndChangedRanksAreReplaced) {
  ASSERT_TRUE(store().Commit({.jobs = {{FullJob("a", 1)}}}).ok());
  jobs::Job next = FullJob("a", 1);
  next.step = 18;
  next.ranks[0].acked_report = 13;
  next.ranks[1].acked_report = 99;
  next.checkpoints.clear();
  next.failures.clear();
  ASSERT_TRUE(
      store().Commit({.jobs = {{.job = next, .lists = Lists::kKeep, .changed_ranks = {0}}}}).ok());
  kind->Reopen();
  const Image image = Load();
  jobs::Job expected = FullJob("a", 1);
  expected.step = 18;
  expected.ranks[0].acked_report = 13;
  ExpectSame(image.jobs[0], expected);
}

TEST_P(StoreTest, ReplacedListsLeaveNothingBehind) {
  ASSERT_TRUE(store().Commit({.jobs = {{FullJob("a", 1)}}}).ok());
  jobs::Job next = FullJob("a", 1);
  next.ranks.resize(1);
  next.checkpoints.resize(1);
  next.dropped_checkpoints.clear();
  next.failures.clear();
  next.rendezvous.reset();
  next.loss.reset();
  ASSERT_TRUE(store().Commit({.jobs = {{.job = next, .lists = Lists::kReplace}}}).ok());
  kind->Reopen();
  ExpectSame(Load().jobs[0], next);
}

TEST_P(StoreTest, NodesAndRequestsAreUpsertedAndNodesRemoved) {
  const NodeRow n1{"n1", "i1", "h", 2}, n2{"n2", "i2", "h", 1};
  ASSERT_TRUE(store().Commit({.nodes = {n1, n2}, .requests = {{"r1", "f", "a"}}}).ok());
  NodeRow newer = n1;
  newer.incarnation = "i3";
  ASSERT_TRUE(store().Commit({.nodes = {newer}, .removed_nodes = {"n2", "unknown"}}).ok());
  kind->Reopen();
  const Image image = Load();
  EXPECT_EQ(image.nodes, (std::vector<NodeRow>{newer}));
  EXPECT_EQ(image.requests, (std::vector<RequestRow>{{"r1", "f", "a"}}));
}

TEST_P(StoreTest, ARemovedJobLeavesNothingButItsRequestsAndItsNumber) {
  const auto fill = [](const std::string& id, uint64_t number) {
    Batch batch{.jobs = {{FullJob(id, number)}}};
    batch.requests = {{.request_id = "r-" + id, .fingerprint = "f", .job_id = id}};
    batch.steps = {Step(1, 1, id), Step(2, 2, id)};
    batch.validations = {{.job_id = id, .step = 2, .loss = 0.5}};
    batch.logs = {Line(1, 0, id)};
    return batch;
  };
  ASSERT_TRUE(store().Commit(fill("a", 1)).ok());
  ASSERT_TRUE(store().Commit(fill("b", 2)).ok());
  ASSERT_TRUE(store().Commit({.removed_jobs = {"b", "unknown"}, .last_number = 2}).ok());
  kind->Reopen();
  const Image image = Load();
  ASSERT_EQ(image.jobs.size(), 1);
  ExpectSame(image.jobs[0], FullJob("a", 1));
  EXPECT_EQ(image.requests.size(), 2);
  EXPECT_EQ(image.last_number, 2);
  EXPECT_TRUE(store().ReadSteps("b", 0, 10)->empty());
  EXPECT_TRUE(store().ReadValidations("b", 0, 10)->empty());
  EXPECT_TRUE(store().ReadLogs("b", 0, {}, 10)->empty());
  EXPECT_EQ(store().ReadSteps("a", 0, 10)->size(), 2);
  EXPECT_EQ(store().ReadValidations("a", 0, 10)->size(), 1);
  EXPECT_EQ(store().ReadLogs("a", 0, {}, 10)->size(), 1);
}

TEST_P(StoreTest, AJobThatIsRemovedAndMadeAnewIsTheNewOne) {
  ASSERT_TRUE(store().Commit({.jobs = {{FullJob("a", 1)}},
                              .steps = {Step(1, 1), Step(2, 2)},
                              .logs = {Line(1), Line(2)}}).ok());
  jobs::Job next;
  next.id = "a";
  next.number = 2;
  Batch batch{.jobs = {{next}}, .removed_jobs = {"a"}, .last_number = 2};
  batch.steps = {Step(1, 7)};
  batch.logs = {Line(1)};
  ASSERT_TRUE(store().Commit(batch).ok());
  kind->Reopen();
  const Image image = Load();
  ASSERT_EQ(image.jobs.size(), 1);
  ExpectSame(image.jobs[0], next);
  EXPECT_EQ(*store().ReadSteps("a", 0, 10), (std::vector<StepRow>{Step(1, 7)}));
  EXPECT_EQ(store().ReadLogs("a", 0, {}, 10)->size(), 1);
}

TEST_P(StoreTest, TheHighestNumberIsKnownWithAndWithoutRemovedJobs) {
  EXPECT_EQ(Load().last_number, 0);
  ASSERT_TRUE(store().Commit({.jobs = {{FullJob("a", 3)}, {FullJob("b", 9)}}}).ok());
  kind->Reopen();
  EXPECT_EQ(Load().last_number, 9);
  ASSERT_TRUE(store().Commit({.removed_jobs = {"a", "b"}, .last_number = 11}).ok());
  ASSERT_TRUE(store().Commit({.jobs = {{FullJob("c", 10)}}}).ok());
  kind->Reopen();
  EXPECT_EQ(Load().last_number, 11);
}

TEST_P(StoreTest, RequestsOfDeletedJobsKeepTheirAnswerUntilTheyAreRemoved) {
  const RequestRow row{.request_id = "r",
                       .fingerprint = "f",
                       .job_id = "a",
                       .deleted_time = absl::FromUnixMicros(1234567890123456),
                       .answer = std::string("bytes\0with zero", 15)};
  const RequestRow other{.request_id = "s", .fingerprint = "g", .job_id = "a"};
  ASSERT_TRUE(store().Commit({.requests = {row, other}}).ok());
  kind->Reopen();
  EXPECT_EQ(Load().requests, (std::vector<RequestRow>{row, other}));
  ASSERT_TRUE(store().Commit({.removed_requests = {"r", "unknown"}}).ok());
  kind->Reopen();
  EXPECT_EQ(Load().requests, (std::vector<RequestRow>{other}));
}

TEST_P(StoreTest, StepsAreReadByRangeAndTheNewestOfAStepStands) {
  StepRow clipped = Step(3, 0.25);
  clipped.grad_norm = 1.5;
  clipped.perplexity = 2.5;
  clipped.tokens = 128;
  clipped.model_flops_per_second = 1e12;
  clipped.skipped = true;
  clipped.loss_scale = 65536;
  ASSERT_TRUE(
      store().Commit({.steps = {Step(1, 1), Step(2, 2), Step(3, 3), Step(9, 9, "b")}}).ok());
  ASSERT_TRUE(store().Commit({.steps = {clipped}}).ok());
  kind->Reopen();
  EXPECT_EQ(*store().ReadSteps("a", 2, 10), (std::vector<StepRow>{Step(2, 2), clipped}));
  EXPECT_EQ(*store().ReadSteps("a", 0, 1), (std::vector<StepRow>{Step(1, 1)}));
  EXPECT_TRUE(store().ReadSteps("a", 4, 10)->empty());
}

TEST_P(StoreTest, PassesAreReadByRangeAndTheNewestOfAStepStands) {
  ValidationRow full = Pass(20, 0.5);
  full.accuracy = 0.25;
  full.perplexity = 1.5;
  ASSERT_TRUE(store()
                  .Commit({.validations = {Pass(0, 3), Pass(10, 2), Pass(20, 1), Pass(30, 4, "b")}})
                  .ok());
  ASSERT_TRUE(store().Commit({.validations = {full}}).ok());
  kind->Reopen();
  EXPECT_EQ(*store().ReadValidations("a", 5, 10), (std::vector<ValidationRow>{Pass(10, 2), full}));
  EXPECT_EQ(*store().ReadValidations("a", 0, 1), (std::vector<ValidationRow>{Pass(0, 3)}));
  EXPECT_TRUE(store().ReadValidations("a", 21, 10)->empty());
}

TEST_P(StoreTest, AStepThatIsComputedAgainTakesAwayWhatCameAfterIt) {
  ASSERT_TRUE(store()
                  .Commit({.steps = {Step(1, 1), Step(2, 2), Step(3, 3), Step(4, 4), Step(9, 9, "b")},
                           .validations = {Pass(2, 2), Pass(4, 4), Pass(9, 9, "b")}})
                  .ok());
  // A generation that goes on from step 2 after a restart.
  kind->Reopen();
  ASSERT_TRUE(store().Commit({.steps = {Step(3, 30)}}).ok());
  EXPECT_EQ(StepsOf(store().ReadSteps("a", 0, 10)), (std::vector<uint64_t>{1, 2, 3}));
  EXPECT_EQ(StepsOf(store().ReadValidations("a", 0, 10)), (std::vector<uint64_t>{2}));
  // And one that goes on from step 1, without a restart of the coordinator.
  ASSERT_TRUE(store().Commit({.steps = {Step(2, 20)}}).ok());
  EXPECT_EQ(*store().ReadSteps("a", 0, 10), (std::vector<StepRow>{Step(1, 1), Step(2, 20)}));
  EXPECT_TRUE(store().ReadValidations("a", 0, 10)->empty());
  EXPECT_EQ(StepsOf(store().ReadSteps("b", 0, 10)), (std::vector<uint64_t>{9}));
  EXPECT_EQ(StepsOf(store().ReadValidations("b", 0, 10)), (std::vector<uint64_t>{9}));
}

TEST_P(StoreTest, OldStepsAreThinned) {
  constexpr uint64_t kSteps = 1000;
  std::vector<uint64_t> expected;
  for (uint64_t step = 1; step <= kSteps; ++step) {
    if (metrics::Keeps(step, kSteps, kKept)) expected.push_back(step);
  }
  ASSERT_TRUE(store().Commit({.steps = {Step(1, 1, "b")}}).ok());
  for (uint64_t step = 1; step <= kSteps; ++step) {
    ASSERT_TRUE(store().Commit({.steps = {Step(step, 0.5 * step)}}).ok());
    if (step % 300 == 0) kind->Reopen();
  }
  const auto rows = store().ReadSteps("a", 0, 2 * kSteps);
  EXPECT_EQ(StepsOf(rows), expected);
  EXPECT_LE(rows->size(), kKept);
  // Each is the step itself, no average.
  for (const StepRow& row : *rows) EXPECT_EQ(row, Step(row.step, 0.5 * row.step));
  EXPECT_EQ(store().ReadSteps("b", 0, 10)->size(), 1);
}

TEST_P(StoreTest, AStepOfALaterCourseIsThinnedAsTheFirstOne) {
  Batch first, second;
  for (uint64_t step = 1; step <= 500; ++step) first.steps.push_back(Step(step, 1));
  ASSERT_TRUE(store().Commit(first).ok());
  // From step 100 again, which is long thinned.
  for (uint64_t step = 101; step <= 450; ++step) second.steps.push_back(Step(step, 2));
  ASSERT_TRUE(store().Commit(second).ok());
  const auto rows = store().ReadSteps("a", 0, 1000);
  EXPECT_LE(rows->size(), kKept);
  EXPECT_EQ(rows->back(), Step(450, 2));
  for (const StepRow& row : *rows) {
    EXPECT_TRUE(metrics::Keeps(row.step, 450, kKept)) << row.step;
    EXPECT_EQ(row.loss, row.step <= 100 ? 1 : 2);
  }
}

TEST_P(StoreTest, OldPassesAreThinnedByTheirNumberNotByTheirStep) {
  constexpr uint64_t kPasses = 200;
  std::vector<uint64_t> expected;
  for (uint64_t pass = 1; pass <= kPasses; ++pass) {
    if (metrics::Keeps(pass, kPasses, kKept)) expected.push_back(7 * pass);
  }
  for (uint64_t pass = 1; pass <= kPasses; ++pass) {
    ASSERT_TRUE(store().Commit({.validations = {Pass(7 * pass, 1)}}).ok());
    if (pass % 70 == 0) kind->Reopen();
  }
  EXPECT_EQ(StepsOf(store().ReadValidations("a", 0, 2 * kPasses)), expected);
}

TEST_P(StoreTest, LossesKeepEveryBitAlsoWhenTheyAreNotFinite) {
  const double odd = 0.1 + 0.2;
  ASSERT_TRUE(store()
                  .Commit({.steps = {Step(1, odd), Step(2, std::nan("")),
                                     Step(3, std::numeric_limits<double>::infinity())}})
                  .ok());
  const auto steps = store().ReadSteps("a", 1, 10);
  EXPECT_EQ((*steps)[0].loss, odd);
  EXPECT_TRUE(std::isnan((*steps)[1].loss));
  EXPECT_TRUE(std::isinf((*steps)[2].loss));
}

TEST_P(StoreTest, LogsAreReadAfterASequenceAndByRank) {
  ASSERT_TRUE(store().Commit({.logs = {Line(1), Line(2, 1), Line(3), Line(1, 0, "b")}}).ok());
  kind->Reopen();
  EXPECT_EQ(*store().ReadLogs("a", 1, {}, 10), (std::vector<LogRow>{Line(2, 1), Line(3)}));
  EXPECT_EQ(*store().ReadLogs("a", 0, 1, 10), (std::vector<LogRow>{Line(2, 1)}));
  EXPECT_EQ(*store().ReadLogs("a", 0, {}, 1), (std::vector<LogRow>{Line(1)}));
}

TEST_P(StoreTest, OnlyTheNewestLogLinesOfAJobStay) {
  Batch batch;
  for (uint64_t i = 1; i <= kKeptLogLines + 5; ++i) batch.logs.push_back(Line(i));
  batch.logs.push_back(Line(1, 0, "b"));
  ASSERT_TRUE(store().Commit(batch).ok());
  const auto lines = store().ReadLogs("a", 0, {}, 2 * kKeptLogLines);
  ASSERT_EQ(lines->size(), kKeptLogLines);
  EXPECT_EQ(lines->front().sequence, 6);
  EXPECT_EQ(store().ReadLogs("b", 0, {}, 10)->size(), 1);
}

INSTANTIATE_TEST_SUITE_P(
    All, StoreTest,
    testing::Values(
        std::pair<const char*, MakeKind>("Memory", [] { return std::make_unique<MemoryKind>(); }),
        std::pair<const char*, MakeKind>("Sqlite", [] { return std::make_unique<SqliteKind>(); })),
    [](const auto& info) { return std::string(info.param.first); });

TEST(SqliteStore, ASecondCoordinatorIsKeptOut) {
  files::TempDir dir;
  const auto first = SqliteStore::Open(dir.path());
  ASSERT_TRUE(first.ok()) << first.status();
  const auto second = SqliteStore::Open(dir.path());
  EXPECT_EQ(second.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(second.status().message().find("in use by another musterd"), absl::string_view::npos);
}

TEST(SqliteStore, AFileOfANewerVersionIsRefused) {
  files::TempDir dir;
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open(dir.Path("muster.db").c_str(), &db), SQLITE_OK);
  ASSERT_EQ(sqlite3_exec(db, "PRAGMA user_version=99", nullptr, nullptr, nullptr), SQLITE_OK);
  sqlite3_close(db);
  const auto store = SqliteStore::Open(dir.path());
  EXPECT_EQ(store.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(store.status().message().find("schema version 99"), absl::string_view::npos);
}

// What musterd wrote before there was version 2.
TEST(SqliteStore, AFileOfVersion1IsBroughtUpToDate) {
  // The text that made such files: a change of it would hide that they look otherwise.
  ASSERT_EQ(XXH3_64bits(kMigrations[0], std::strlen(kMigrations[0])), kHashOfVersion1);
  files::TempDir dir;
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open(dir.Path("muster.db").c_str(), &db), SQLITE_OK);
  const auto execute = [db](const std::string& sql) {
    char* error = nullptr;
    ASSERT_EQ(sqlite3_exec(db, sql.c_str(), nullptr, nullptr, &error), SQLITE_OK) << error;
  };
  execute(kMigrations[0]);
  execute(
      "INSERT INTO jobs VALUES ('a',1,x'00',2,100,3,3,3,'why',1001,5,6,NULL,1,1,0,0,0,'h',4242,"
      "'fit',17,0.5,0.25,10,'',9)");
  for (int rank : {0, 1}) {
    execute(absl::StrCat("INSERT INTO ranks VALUES ('a',", rank,
                         ",'n',0,'h','x','i',77,17,12,1,0,0)"));
  }
  execute("INSERT INTO steps VALUES ('a',16,1,0.75,0.5,NULL,8,3000000)");
  execute("INSERT INTO steps VALUES ('a',17,1,0.5,0.5,1.5,8,3000000)");
  execute("PRAGMA user_version=1");
  sqlite3_close(db);

  auto store = SqliteStore::Open(dir.path());
  ASSERT_TRUE(store.ok()) << store.status();
  const auto image = (*store)->Load();
  ASSERT_TRUE(image.ok()) << image.status();
  ASSERT_EQ(image->jobs.size(), 1);
  jobs::Job job = image->jobs[0];
  EXPECT_EQ(job.log_sequence, 9);
  EXPECT_EQ(job.loss, 0.5);
  EXPECT_EQ(job.validation_loss, 0.25);
  EXPECT_EQ(job.perplexity, std::nullopt);
  EXPECT_EQ(job.skipped_steps, 0);
  StepRow clipped = Step(17, 0.5);
  clipped.grad_norm = 1.5;
  EXPECT_EQ(*(*store)->ReadSteps("a", 0, 10), (std::vector<StepRow>{Step(16, 0.75), clipped}));
  // And what only the new version has can be written.
  job.skipped_steps = 1;
  ASSERT_TRUE((*store)->Commit({.jobs = {{job}}, .validations = {Pass(17, 0.25)}}).ok());
  store->reset();
  store = SqliteStore::Open(dir.path());
  ASSERT_TRUE(store.ok()) << store.status();
  EXPECT_EQ((*store)->Load()->jobs[0].skipped_steps, 1);
  EXPECT_EQ((*store)->ReadValidations("a", 0, 10)->size(), 1);
}

TEST(SqliteStore, ASmallerBoundHoldsFromTheNextStepOn) {
  files::TempDir dir;
  {
    auto store = SqliteStore::Open(dir.path(), {.kept_metrics = 1000});
    Batch batch;
    for (uint64_t step = 1; step <= 400; ++step) {
      batch.steps.push_back(Step(step, 1));
      batch.validations.push_back(Pass(step, 1));
    }
    ASSERT_TRUE((*store)->Commit(batch).ok());
    EXPECT_EQ((*store)->ReadSteps("a", 0, 1000)->size(), 400);
  }
  auto store = SqliteStore::Open(dir.path(), {.kept_metrics = kKept});
  ASSERT_TRUE((*store)->Commit({.steps = {Step(401, 1)}, .validations = {Pass(401, 1)}}).ok());
  EXPECT_LE((*store)->ReadSteps("a", 0, 1000)->size(), kKept);
  EXPECT_LE((*store)->ReadValidations("a", 0, 1000)->size(), kKept);
}

TEST(SqliteStore, AFileThatIsNoDatabaseIsNamed) {
  files::TempDir dir;
  ASSERT_TRUE(files::WriteAtomically(dir.Path("muster.db"), std::string(8192, 'x')).ok());
  const auto store = SqliteStore::Open(dir.path());
  EXPECT_EQ(store.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_NE(store.status().message().find("muster.db"), absl::string_view::npos);
}

TEST(SqliteStore, ADirectoryThatCannotBeMadeIsAnError) {
  files::TempDir dir;
  ASSERT_TRUE(files::WriteAtomically(dir.Path("file"), "x").ok());
  EXPECT_FALSE(SqliteStore::Open(dir.Path("file") + "/state").ok());
}

TEST(SqliteStore, AFailedCommitLeavesNothingBehind) {
  files::TempDir dir;
  auto store = SqliteStore::Open(dir.path());
  ASSERT_TRUE(store.ok());
  ASSERT_TRUE((*store)->Commit({.jobs = {{FullJob("a", 1)}}}).ok());
  // Drops a table behind its back: the second statement of the batch fails.
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open(dir.Path("muster.db").c_str(), &db), SQLITE_OK);
  ASSERT_EQ(sqlite3_exec(db, "DROP TABLE requests", nullptr, nullptr, nullptr), SQLITE_OK);
  sqlite3_close(db);
  EXPECT_FALSE((*store)->Commit({.jobs = {{FullJob("b", 2)}}, .requests = {{"r", "f", "b"}}}).ok());
  EXPECT_TRUE((*store)->Commit({.nodes = {{"n", "i", "h", 1}}}).ok());
  store->reset();
  ASSERT_EQ(sqlite3_open(dir.Path("muster.db").c_str(), &db), SQLITE_OK);
  sqlite3_stmt* count = nullptr;
  ASSERT_EQ(sqlite3_prepare_v2(db, "SELECT count(*) FROM jobs", -1, &count, nullptr), SQLITE_OK);
  ASSERT_EQ(sqlite3_step(count), SQLITE_ROW);
  EXPECT_EQ(sqlite3_column_int(count, 0), 1);
  sqlite3_finalize(count);
  sqlite3_close(db);
}

}  // namespace
}  // namespace muster::store
