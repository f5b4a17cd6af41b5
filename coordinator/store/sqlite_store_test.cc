// Properties that only the SQLite store has.
#include "coordinator/store/sqlite_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/files/files.h"
#include "common/files/temp_dir.h"
#include "coordinator/store/store_fixture.h"

namespace muster::store {
namespace {

TEST(SqliteStore, ASecondCoordinatorIsRefused) {
  files::TempDir dir;
  const auto first = SqliteStore::Open(dir.path());
  ASSERT_TRUE(first.ok()) << first.status();
  const auto second = SqliteStore::Open(dir.path());
  EXPECT_EQ(second.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(second.status().message().find("in use by another musterd"), absl::string_view::npos);
}

TEST(SqliteStore, AFileOfANewerVersionIsRefused) {
  files::TempDir dir;
  ASSERT_TRUE(SqliteStore::Open(dir.path()).ok());
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open(dir.Path("muster.db").c_str(), &db), SQLITE_OK);
  ASSERT_EQ(sqlite3_exec(db, "PRAGMA user_version=99", nullptr, nullptr, nullptr), SQLITE_OK);
  sqlite3_close(db);
  const auto store = SqliteStore::Open(dir.path());
  EXPECT_EQ(store.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(store.status().message().find("schema version 99"), absl::string_view::npos);
}

TEST(SqliteStore, ASmallerLimitAppliesFromTheNextStepOn) {
  files::TempDir dir;
  {
    auto store = SqliteStore::Open(dir.path(), {.kept_metrics = 1000});
    Batch batch;
    for (uint64_t step = 1; step <= 400; ++step) {
      batch.steps.push_back(Step(step, 1));
      batch.validations.push_back(Pass(step, 1));
    }
    ASSERT_TRUE((*store)->Commit(batch).ok());
    EXPECT_EQ((*store)->ReadMetrics(MetricsOf::kSteps, "a", 0, 1000)->size(), 400);
  }
  auto store = SqliteStore::Open(dir.path(), {.kept_metrics = kKept});
  ASSERT_TRUE((*store)->Commit({.steps = {Step(401, 1)}, .validations = {Pass(401, 1)}}).ok());
  EXPECT_LE((*store)->ReadMetrics(MetricsOf::kSteps, "a", 0, 1000)->size(), kKept);
  EXPECT_LE((*store)->ReadMetrics(MetricsOf::kValidations, "a", 0, 1000)->size(), kKept);
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

TEST(SqliteStore, AFailedCommitStoresNothing) {
  files::TempDir dir;
  auto store = SqliteStore::Open(dir.path());
  ASSERT_TRUE(store.ok());
  ASSERT_TRUE((*store)->Commit({.jobs = {NewRows(FullJob("a", 1))}}).ok());
  // A second connection drops a table, so the second statement of the batch fails.
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
  batch.tests = {Pass(1, 1)};
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
  EXPECT_THAT(tables(), testing::UnorderedElementsAre(
                            "jobs", "job_life", "job_progress", "ranks", "checkpoints", "failures",
                            "commands", "trainability", "trainability_changes", "requests", "steps",
                            "validations", "tests", "logs", "events", "attempts",
                            "setting_changes"));
  ASSERT_TRUE((*store)->Commit({.removed_jobs = {"a"}, .last_number = 1}).ok());
  EXPECT_THAT(tables(), testing::UnorderedElementsAre("requests", "counters"));
}

}  // namespace
}  // namespace muster::store
