// What only the SQLite store promises.
#include "coordinator/store/sqlite_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <xxhash.h>

#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/files/files.h"
#include "common/files/temp_dir.h"
#include "coordinator/store/schema.h"
#include "coordinator/store/store_fixture.h"

namespace muster::store {
namespace {

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

constexpr uint64_t kHashOfVersion1 = 13970676956110359370u;

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
    execute(
        absl::StrCat("INSERT INTO ranks VALUES ('a',", rank, ",'n',0,'h','x','i',77,17,12,1,0,0)"));
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
  ASSERT_TRUE((*store)->Commit({.jobs = {NewRows(job)}, .validations = {Pass(17, 0.25)}}).ok());
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
  ASSERT_TRUE((*store)->Commit({.jobs = {NewRows(FullJob("a", 1))}}).ok());
  // Drops a table behind its back: the second statement of the batch fails.
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open(dir.Path("muster.db").c_str(), &db), SQLITE_OK);
  ASSERT_EQ(sqlite3_exec(db, "DROP TABLE requests", nullptr, nullptr, nullptr), SQLITE_OK);
  sqlite3_close(db);
  EXPECT_FALSE(
      (*store)->Commit({.jobs = {NewRows(FullJob("b", 2))}, .requests = {{"r", "f", "b"}}}).ok());
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

TEST(SqliteStore, ARemovedJobLeavesNoRowInAnyTableButItsRequests) {
  files::TempDir dir;
  auto store = SqliteStore::Open(dir.path());
  ASSERT_TRUE(store.ok()) << store.status();
  Batch batch{.jobs = {NewRows(FullJob("a", 1))}};
  batch.requests = {{.request_id = "r", .fingerprint = "f", .job_id = "a"}};
  batch.steps = {Step(1, 1)};
  batch.validations = {Pass(1, 1)};
  batch.logs = {Line(1)};
  batch.events = {Event(1)};
  ASSERT_TRUE((*store)->Commit(batch).ok());
  const auto tables = [&dir] {
    sqlite3* db = nullptr;
    EXPECT_EQ(sqlite3_open(dir.Path("muster.db").c_str(), &db), SQLITE_OK);
    const auto query = [db](const std::string& sql) {
      std::vector<std::string> values;
      sqlite3_stmt* rows = nullptr;
      EXPECT_EQ(sqlite3_prepare_v2(db, sql.c_str(), -1, &rows, nullptr), SQLITE_OK) << sql;
      while (sqlite3_step(rows) == SQLITE_ROW) {
        values.emplace_back(reinterpret_cast<const char*>(sqlite3_column_text(rows, 0)));
      }
      sqlite3_finalize(rows);
      return values;
    };
    std::vector<std::string> filled;
    for (const std::string& table : query("SELECT name FROM sqlite_master WHERE type = 'table'")) {
      if (!query(absl::StrCat("SELECT 1 FROM ", table, " LIMIT 1")).empty())
        filled.push_back(table);
    }
    sqlite3_close(db);
    return filled;
  };
  EXPECT_THAT(tables(),
              testing::UnorderedElementsAre("jobs", "ranks", "checkpoints", "failures", "commands",
                                            "trainability", "trainability_changes", "requests",
                                            "steps", "validations", "logs", "events", "attempts"));
  ASSERT_TRUE((*store)->Commit({.removed_jobs = {"a"}, .last_number = 1}).ok());
  EXPECT_THAT(tables(), testing::UnorderedElementsAre("requests", "counters"));
}

}  // namespace
}  // namespace muster::store
