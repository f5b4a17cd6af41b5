// Databases that older musterds wrote.
#include "coordinator/store/migration.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/files/files.h"
#include "common/files/temp_dir.h"
#include "coordinator/store/schema.h"
#include "coordinator/store/store_description.h"
#include "coordinator/store/store_fixture.h"
#include "proto/muster/v1/metrics.pb.h"

namespace muster::store {
namespace {

// A file that the SQL text `sql` makes.
void MakeFile(const std::string& path, const std::string& sql) {
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open(path.c_str(), &db), SQLITE_OK);
  char* error = nullptr;
  ASSERT_EQ(sqlite3_exec(db, sql.c_str(), nullptr, nullptr, &error), SQLITE_OK) << error;
  sqlite3_close(db);
}

constexpr uint64_t kHashOfVersion1 = 13970676956110359370u;

TEST(Migration, AFileOfVersion1IsBroughtUpToDate) {
  // The text that made files of version 1. It must not change, because existing files do not
  // change.
  ASSERT_EQ(XXH3_64bits(kMigrations[0], std::strlen(kMigrations[0])), kHashOfVersion1);
  files::TempDir dir;
  std::string sql = absl::StrCat(
      kMigrations[0],
      "INSERT INTO jobs VALUES ('a',1,x'00',2,100,3,3,3,'why',1001,5,6,NULL,1,1,0,0,0,'h',4242,"
      "'fit',17,0.5,0.25,10,'',9);",
      "INSERT INTO steps VALUES ('a',16,1,0.75,0.5,NULL,8,3000000);",
      "INSERT INTO steps VALUES ('a',17,1,0.5,0.5,1.5,8,3000000);", "PRAGMA user_version=1;");
  for (int rank : {0, 1}) {
    absl::StrAppend(&sql, "INSERT INTO ranks VALUES ('a',", rank,
                    ",'n',0,'h','x','i',77,17,12,1,0,0);");
  }
  MakeFile(dir.Path("muster.db"), sql);

  auto store = SqliteStore::Open(dir.path());
  ASSERT_TRUE(store.ok()) << store.status();
  const auto image = (*store)->Load();
  ASSERT_TRUE(image.ok()) << image.status();
  ASSERT_EQ(image->jobs.size(), 1);
  jobs::Job job = image->jobs[0];
  EXPECT_EQ(job.log_sequence, 9);
  EXPECT_EQ(Parse(job.newest_step).loss(), 0.5);
  EXPECT_FALSE(Parse(job.newest_step).has_perplexity());
  EXPECT_EQ(Parse(job.newest_validation).validation().loss(), 0.25);
  EXPECT_EQ(job.skipped_steps, 0);
  const auto steps = (*store)->ReadSteps("a", 0, 10);
  ASSERT_EQ(steps->size(), 2);
  EXPECT_FALSE(Parse((*steps)[0].metrics).has_grad_norm());
  EXPECT_EQ(Parse((*steps)[1].metrics).grad_norm(), 1.5);
  EXPECT_EQ(Parse((*steps)[1].metrics).duration().nanos(), 3000000);
  // Fields that only the newest version has can be written.
  JobRows rows(job);
  job.skipped_steps = 1;
  ASSERT_TRUE(
      (*store)->Commit({.jobs = {rows.TakeChanges(&job)}, .validations = {Pass(17, 0.25)}}).ok());
  store->reset();
  store = SqliteStore::Open(dir.path());
  ASSERT_TRUE(store.ok()) << store.status();
  EXPECT_EQ((*store)->Load()->jobs[0].skipped_steps, 1);
  EXPECT_EQ((*store)->ReadValidations("a", 0, 10)->size(), 1);
}

// ---- Raw columns of a file.

using Columns = std::map<std::string, std::string>;

// The columns of the row of `table` whose `key` is `id`, as text, by their names.
Columns ReadColumns(const std::string& path, const std::string& table, const std::string& key,
                    const std::string& id) {
  Columns columns;
  sqlite3* db = nullptr;
  EXPECT_EQ(sqlite3_open(path.c_str(), &db), SQLITE_OK);
  sqlite3_stmt* statement = nullptr;
  const std::string sql = absl::StrCat("SELECT * FROM ", table, " WHERE ", key, " = '", id, "'");
  EXPECT_EQ(sqlite3_prepare_v2(db, sql.c_str(), -1, &statement, nullptr), SQLITE_OK) << sql;
  EXPECT_EQ(sqlite3_step(statement), SQLITE_ROW) << sql;
  for (int i = 0; i < sqlite3_column_count(statement); ++i) {
    const int bytes = sqlite3_column_bytes(statement, i);
    const char* data = static_cast<const char*>(sqlite3_column_blob(statement, i));
    columns[sqlite3_column_name(statement, i)] = std::string(bytes > 0 ? data : "", bytes);
  }
  sqlite3_finalize(statement);
  sqlite3_close(db);
  return columns;
}

// Gives each column of job 'long' a number that no other column has; a column of text holds its
// digits. `values` gets them by the names of the columns.
std::string SqlOfOwnValues(const Columns& columns, Columns* values) {
  std::vector<std::string> sets;
  int number = 101;
  for (const auto& [column, was] : columns) {
    if (column == "id" || column == "spec") continue;
    (*values)[column] = absl::StrCat(number++);
    sets.push_back(absl::StrCat(column, " = ", (*values)[column]));
  }
  return absl::StrCat("UPDATE jobs SET ", absl::StrJoin(sets, ", "), " WHERE id = 'long';");
}

// ---- A file of version 13, which programs of that version wrote (testdata/describe.py).

std::string Testdata(const std::string& name) {
  const auto contents = files::ReadFile("coordinator/store/testdata/" + name);
  EXPECT_TRUE(contents.ok()) << contents.status();
  return contents.ok() ? *contents : "";
}

// Without the numbers of validation passes, which only the store itself reads.
std::vector<std::string> ExpectedOfVersion13() {
  std::vector<std::string> lines;
  for (const auto& line : absl::StrSplit(Testdata("version_13.txt"), '\n', absl::SkipEmpty())) {
    const bool pass = absl::StartsWith(line, "validations ") && absl::StrContains(line, " pass = ");
    if (!pass) lines.emplace_back(line);
  }
  std::sort(lines.begin(), lines.end());
  return lines;
}

TEST(Migration, EveryFieldOfAFileOfVersion13IsKeptAndTheFileCanBeWritten) {
  files::TempDir dir;
  MakeFile(dir.Path("muster.db"), Testdata("version_13.sql"));
  auto store = SqliteStore::Open(dir.path());
  ASSERT_TRUE(store.ok()) << store.status();
  const std::vector<std::string> expected = ExpectedOfVersion13();
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
  job->commands.Append({.kind = commands::Kind::kPause});
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
  EXPECT_EQ((*store)->ReadSteps("long", 0, 1000)->back(), step);
  // It is the sixth of its job.
  EXPECT_EQ((*store)->ReadValidations("steered", 0, 1000)->size(), 6);
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

TEST(Migration, EachColumnOfAJobKeepsItsOwnValue) {
  files::TempDir dir;
  const std::string path = dir.Path("muster.db");
  MakeFile(path, Testdata("version_13.sql"));
  Columns expected;
  MakeFile(path, SqlOfOwnValues(ReadColumns(path, "jobs", "id", "long"), &expected));
  ASSERT_TRUE(SqliteStore::Open(dir.path()).ok());

  size_t kept = 0;
  for (const auto& [table, key] : std::vector<std::pair<std::string, std::string>>{
           {"jobs", "id"}, {"job_life", "job_id"}, {"job_progress", "job_id"}}) {
    for (const auto& [column, value] : ReadColumns(path, table, key, "long")) {
      // The messages of the measurements are compared in the test above.
      if (!expected.contains(column)) continue;
      EXPECT_EQ(value, expected[column]) << table << "." << column;
      ++kept;
    }
  }
  EXPECT_GT(kept, 45);
}

TEST(Migration, ANaNStaysANaN) {
  files::TempDir dir;
  MakeFile(dir.Path("muster.db"), Testdata("version_13.sql"));
  auto store = SqliteStore::Open(dir.path());
  ASSERT_TRUE(store.ok()) << store.status();
  const auto rows = (*store)->ReadSteps("nan", 2, 4);
  ASSERT_TRUE(rows.ok()) << rows.status();
  ASSERT_EQ(rows->size(), 4);
  for (const MetricsRow& row : *rows) {
    const v1::StepMetrics step = Parse(row.metrics);
    EXPECT_TRUE(step.has_loss() && std::isnan(step.loss())) << row.step;
    EXPECT_FALSE(step.has_grad_norm()) << row.step;
  }
}

TEST(Migration, RowsOfAMissingJobAreIgnored) {
  files::TempDir dir;
  const std::string path = dir.Path("muster.db");
  MakeFile(path, Testdata("version_13.sql"));
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
