// Databases that older musterds wrote.
#include "coordinator/store/migration.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/files/files.h"
#include "common/files/temp_dir.h"
#include "coordinator/store/schema.h"
#include "coordinator/store/statement.h"
#include "coordinator/store/store_description.h"
#include "coordinator/store/store_fixture.h"

namespace muster::store {
namespace {

// Makes a file with the SQL text `sql`.
void MakeFile(const std::string& path, const std::string& sql) {
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open(path.c_str(), &db), SQLITE_OK);
  char* error = nullptr;
  ASSERT_EQ(sqlite3_exec(db, sql.c_str(), nullptr, nullptr, &error), SQLITE_OK) << error;
  sqlite3_close(db);
}

std::string Testdata(const std::string& name) {
  const auto contents = files::ReadFile("coordinator/store/testdata/" + name);
  EXPECT_TRUE(contents.ok()) << contents.status();
  return contents.ok() ? *contents : "";
}

// Returns the columns of all tables of a file, and its indexes.
std::vector<std::string> SchemaOf(const std::string& path) {
  std::vector<std::string> lines;
  sqlite3* db = nullptr;
  EXPECT_EQ(sqlite3_open(path.c_str(), &db), SQLITE_OK);
  StatementCache cache;
  {
    Statement column(db, &cache,
                     "SELECT m.name || '.' || c.name || ' ' || c.type || ' ' || c.\"notnull\" || "
                     "' ' || ifnull(c.dflt_value, '') || ' ' || c.pk FROM sqlite_master m, "
                     "pragma_table_info(m.name) c ORDER BY 1");
    while (column.Next()) lines.push_back(column.Text());
  }
  for (const auto& [sql, statement] : cache) sqlite3_finalize(statement);
  sqlite3_close(db);
  return lines;
}

constexpr uint64_t kHashOfBaseline = 13314204943272454771u;

// Removes columns that are not read: 0.3.0 left facts of a finished generation in them, which exist
// only while a generation lives.
void DropFormerGenerations(std::vector<std::string>* lines) {
  std::set<std::string> over;
  for (const std::string& line : *lines) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ');
    if (words[0] == "jobs" && words[2] == "live" && words[4] == "0") over.insert(words[1]);
  }
  for (std::string& line : *lines) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ');
    if (words[0] != "jobs" || !over.contains(words[1])) continue;
    const std::string& column = words[2];
    const bool is_null = column == "live_since" || absl::StartsWith(column, "rendezvous_");
    if (!is_null && column != "ending") continue;
    line = absl::StrCat("jobs ", words[1], " ", column, " = ", is_null ? "null" : "0");
  }
}

TEST(Migration, ANewFileHasTheTablesOfAFileThatWasBroughtUpToDate) {
  files::TempDir fresh, old;
  ASSERT_TRUE(SqliteStore::Open(fresh.path()).ok());
  MakeFile(old.Path("muster.db"), Testdata("version_19.sql"));
  ASSERT_TRUE(SqliteStore::Open(old.path()).ok());
  ASSERT_GT(SchemaOf(fresh.Path("muster.db")).size(), 100);
  EXPECT_EQ(SchemaOf(fresh.Path("muster.db")), SchemaOf(old.Path("muster.db")));
}

TEST(Migration, AReleasedMigrationIsNeverChanged) {
  // Files that the released programs made do not change either.
  EXPECT_EQ(XXH3_64bits(kBaseline, std::strlen(kBaseline)), kHashOfBaseline);
}

TEST(Migration, TheFileOfAnOlderVersionThanTheOneBeforeIsRefusedAndNotChanged) {
  files::TempDir dir;
  const std::string path = dir.Path("muster.db");
  MakeFile(path, absl::StrCat(Testdata("version_19.sql"), "PRAGMA user_version=18;"));
  const std::string before = *files::ReadFile(path);
  const absl::Status status = SqliteStore::Open(dir.path()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), testing::HasSubstr("is of schema version 18"));
  EXPECT_THAT(status.message(), testing::HasSubstr("start musterd 0.3.0 on it once"));
  EXPECT_EQ(*files::ReadFile(path), before);
}

// ---- A file of version 19, which programs of version 0.3.0 wrote (testdata/describe.py).

TEST(Migration, EveryFieldOfAFileOfVersion19IsKeptAndTheFileCanBeWritten) {
  files::TempDir dir;
  MakeFile(dir.Path("muster.db"), Testdata("version_19.sql"));
  auto store = SqliteStore::Open(dir.path());
  ASSERT_TRUE(store.ok()) << store.status();
  const std::string told = Testdata("version_19.txt");
  std::vector<std::string> expected = absl::StrSplit(told, '\n', absl::SkipEmpty());
  DropFormerGenerations(&expected);
  std::sort(expected.begin(), expected.end());
  ASSERT_GT(expected.size(), 1000);
  ASSERT_EQ(Describe(**store), expected);

  // The running job continues: a step, a pass, a command. All other rows stay.
  Image image = *(*store)->Load();
  const auto job = std::find_if(image.jobs.begin(), image.jobs.end(),
                                [](const jobs::Job& job) { return job.id == "long"; });
  ASSERT_NE(job, image.jobs.end());
  JobRows rows(*job);
  job->step += 1;
  job->newest_step = Step(job->step, 0.5, "long").metrics;
  job->commands.Append({.kind = v1::Operation::PAUSE});
  const Batch::JobRow changes = rows.TakeChanges(&*job);
  EXPECT_EQ(changes.rows(), 2);
  MetricsRow step = Step(job->step, 0.5, "long"), pass = Pass(50, 0.5, "steered");
  step.generation = job->generation;
  ASSERT_TRUE((*store)->Commit({.jobs = {changes}, .steps = {step}, .validations = {pass}}).ok());
  store->reset();
  store = SqliteStore::Open(dir.path());
  ASSERT_TRUE(store.ok()) << store.status();
  const Image next = *(*store)->Load();
  for (size_t i = 0; i < image.jobs.size(); ++i) ExpectSame(next.jobs[i], image.jobs[i]);
  EXPECT_EQ((*store)->ReadMetrics(MetricsOf::kSteps, "long", 0, 1000)->back(), step);
  // The pass is the sixth of its job.
  EXPECT_EQ((*store)->ReadMetrics(MetricsOf::kValidations, "steered", 0, 1000)->size(), 6);
  store->reset();
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open(dir.Path("muster.db").c_str(), &db), SQLITE_OK);
  StatementCache cache;
  {
    Statement number(db, &cache, "SELECT max(pass) FROM validations WHERE job_id = 'steered'");
    ASSERT_TRUE(number.Next());
    EXPECT_EQ(number.Uint(), 6);
  }
  for (const auto& [sql, statement] : cache) sqlite3_finalize(statement);
  sqlite3_close(db);
}

TEST(Migration, RowsOfAMissingJobAreIgnored) {
  files::TempDir dir;
  const std::string path = dir.Path("muster.db");
  MakeFile(path, Testdata("version_19.sql"));
  size_t jobs = 0;
  {
    auto store = SqliteStore::Open(dir.path());
    ASSERT_TRUE(store.ok()) << store.status();
    jobs = (*store)->Load()->jobs.size();
  }
  MakeFile(path, "INSERT INTO attempts VALUES ('gone',1,5,'','',0,3);");
  {
    auto store = SqliteStore::Open(dir.path());
    ASSERT_TRUE(store.ok()) << store.status();
    EXPECT_EQ((*store)->Load()->jobs.size(), jobs);
  }
  MakeFile(path,
           "INSERT INTO job_progress (job_id, stage, step, newest_step, newest_validation, "
           "skipped_steps, log_sequence) VALUES ('gone','',0,x'',x'',0,0);");
  auto store = SqliteStore::Open(dir.path());
  ASSERT_TRUE(store.ok()) << store.status();
  EXPECT_EQ((*store)->Load().status().code(), absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace muster::store
