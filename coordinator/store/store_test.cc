// One suite for all stores, and what only the SQLite one promises.
#include "coordinator/store/store.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <memory>

#include "common/files/files.h"
#include "common/files/temp_dir.h"
#include "coordinator/store/memory_store.h"
#include "coordinator/store/sqlite_store.h"

namespace muster::store {
namespace {

using Lists = Batch::JobRow::Lists;

jobs::Job FullJob(const std::string& id, uint64_t number) {
  jobs::Job job;
  job.id = id;
  job.number = number;
  job.spec = std::string("bytes\0with zero", 15);
  job.plan = {.world_size = 2, .total_steps = 100, .max_restarts = 4, .keep_checkpoints = 5};
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
  EXPECT_EQ(a.validation_loss, b.validation_loss);
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

class MemoryKind : public Kind {
 public:
  Store& store() override { return store_; }

 private:
  MemoryStore store_;
};

class SqliteKind : public Kind {
 public:
  SqliteKind() { Reopen(); }
  Store& store() override { return *store_; }
  void Reopen() override {
    store_.reset();
    auto opened = SqliteStore::Open(dir_.path());
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

TEST_P(StoreTest, StepsAreReadByRangeAndTheNewestOfAStepStands) {
  StepRow clipped = Step(3, 0.25);
  clipped.grad_norm = 1.5;
  ASSERT_TRUE(
      store().Commit({.steps = {Step(1, 1), Step(2, 2), Step(3, 3), Step(9, 9, "b")}}).ok());
  ASSERT_TRUE(store().Commit({.steps = {clipped}}).ok());
  kind->Reopen();
  EXPECT_EQ(*store().ReadSteps("a", 2, 10), (std::vector<StepRow>{Step(2, 2), clipped}));
  EXPECT_EQ(*store().ReadSteps("a", 0, 1), (std::vector<StepRow>{Step(1, 1)}));
  EXPECT_TRUE(store().ReadSteps("a", 4, 10)->empty());
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
