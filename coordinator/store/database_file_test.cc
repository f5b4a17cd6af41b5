// Files that are no store, and the making of a new file.
#include "coordinator/store/database_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "common/files/files.h"
#include "common/files/temp_dir.h"
#include "coordinator/store/sqlite_store.h"

namespace muster::store {
namespace {

using testing::HasSubstr;

class DatabaseFile : public testing::Test {
 protected:
  std::string path() const { return dir_.Path("muster.db"); }
  void Write(const std::string& name, const std::string& contents) {
    ASSERT_TRUE(files::WriteAtomically(dir_.Path(name), contents).ok());
  }
  // Runs SQL text on the file, which need not exist.
  void Run(const std::string& sql) {
    sqlite3* db = nullptr;
    ASSERT_EQ(sqlite3_open(path().c_str(), &db), SQLITE_OK);
    ASSERT_EQ(sqlite3_exec(db, sql.c_str(), nullptr, nullptr, nullptr), SQLITE_OK)
        << sqlite3_errmsg(db);
    sqlite3_close(db);
  }
  // Returns the message with which the file is refused, and checks that the file does not change.
  std::string Refusal() {
    const auto bytes = files::ReadFile(path());
    const absl::Status status = SqliteStore::Open(dir_.path()).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    if (bytes.ok()) {
      EXPECT_EQ(*files::ReadFile(path()), *bytes);
    }
    EXPECT_THAT(std::string(status.message()), HasSubstr(path()));
    return std::string(status.message());
  }

  files::TempDir dir_;
};

TEST_F(DatabaseFile, AnEmptyOneIsNoNewStore) {
  Write("muster.db", "");
  const std::string refusal = Refusal();
  EXPECT_THAT(refusal, HasSubstr("is empty (0 bytes)"));
  EXPECT_THAT(refusal, HasSubstr("Backup and restore"));
  EXPECT_THAT(refusal, HasSubstr("remove it"));
}

TEST_F(DatabaseFile, OfAnotherProgramIsRefused) {
  Run("CREATE TABLE jobs (id TEXT); PRAGMA application_id=252006674; PRAGMA user_version=3");
  EXPECT_THAT(Refusal(),
              HasSubstr("another program's SQLite database (application_id 0x0f055112)"));
}

TEST_F(DatabaseFile, WithoutTheTablesOfTheStoreIsRefused) {
  for (const char* sql :
       {"PRAGMA user_version=0; CREATE TABLE songs (title TEXT)", "DROP TABLE songs",
        "CREATE TABLE jobs (id TEXT); PRAGMA user_version=1000"}) {
    Run(sql);
    EXPECT_THAT(Refusal(), HasSubstr("a SQLite database without musterd's tables")) << sql;
  }
}

TEST_F(DatabaseFile, ThatIsMissingBesideItsLogIsRefused) {
  Write("muster.db-wal", "steps");
  EXPECT_THAT(Refusal(), HasSubstr("is missing, but its log"));
  EXPECT_EQ(*files::ReadFile(dir_.Path("muster.db-wal")), "steps");
}

TEST_F(DatabaseFile, ThatIsNoRegularFileIsRefused) {
  ASSERT_EQ(mkfifo(path().c_str(), 0600), 0);
  EXPECT_TRUE(absl::IsFailedPrecondition(SqliteStore::Open(dir_.path()).status()));
  ASSERT_EQ(unlink(path().c_str()), 0);
  ASSERT_EQ(symlink("nothing", path().c_str()), 0);
  EXPECT_TRUE(absl::IsFailedPrecondition(SqliteStore::Open(dir_.path()).status()));
  EXPECT_TRUE(std::filesystem::is_symlink(path()));
}

TEST_F(DatabaseFile, OfAStoreIsKnownByItsApplicationIdOrItsTables) {
  ASSERT_TRUE(SqliteStore::Open(dir_.path()).ok());
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open(path().c_str(), &db), SQLITE_OK);
  sqlite3_stmt* id = nullptr;
  ASSERT_EQ(sqlite3_prepare_v2(db, "PRAGMA application_id", -1, &id, nullptr), SQLITE_OK);
  ASSERT_EQ(sqlite3_step(id), SQLITE_ROW);
  EXPECT_EQ(sqlite3_column_int64(id, 0), kApplicationId);
  sqlite3_finalize(id);
  sqlite3_close(db);
  // The file is as older musterds wrote it.
  Run("PRAGMA application_id=0");
  EXPECT_TRUE(SqliteStore::Open(dir_.path()).ok());
}

// A musterd was killed before its new file was complete.
TEST_F(DatabaseFile, WhatWasLeftOfAnUnfinishedOneIsReplaced) {
  Write("muster.db.new", "half");
  ASSERT_TRUE(SqliteStore::Open(dir_.path()).ok());
  EXPECT_FALSE(std::filesystem::exists(dir_.Path("muster.db.new")));
}

TEST_F(DatabaseFile, MayBeReadOnlyByItsOwner) {
  const mode_t before = umask(0);
  const auto store = SqliteStore::Open(dir_.Path("state"));
  umask(before);
  ASSERT_TRUE(store.ok()) << store.status();
  size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(dir_.Path("state"))) {
    struct stat info = {};
    ASSERT_EQ(stat(entry.path().c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0600u) << entry.path();
    ++files;
  }
  EXPECT_GE(files, 4u) << "the database, its logs, the lock";
  struct stat info = {};
  ASSERT_EQ(stat(dir_.Path("state").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
}

}  // namespace
}  // namespace muster::store
