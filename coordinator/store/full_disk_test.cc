// The SQLite store on a full disk, its ballast, and copies of the store.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sqlite3.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/files/files.h"
#include "coordinator/store/store_fixture.h"

namespace muster::store {
namespace {

// A separate small disk.
class FullDisk : public testing::Test {
 protected:
  void SetUp() override {
    if (mount("tmpfs", dir_.path().c_str(), "tmpfs", 0, "size=24m,mode=0700") != 0) {
      GTEST_SKIP() << "a small disk needs root: " << strerror(errno);
    }
    mounted_ = true;
    auto opened = SqliteStore::Open(dir_.path());
    ASSERT_TRUE(opened.ok()) << opened.status();
    store_ = std::move(*opened);
  }
  void TearDown() override {
    store_.reset();
    if (mounted_) umount2(dir_.path().c_str(), MNT_DETACH);
  }
  void Fill() {
    const int fd = open(dir_.Path("filler").c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    for (const size_t size : {size_t{1} << 16, size_t{1} << 12}) {
      const std::string block(size, 'x');
      while (write(fd, block.data(), block.size()) > 0) {
      }
    }
    close(fd);
  }
  void Free() { unlink(dir_.Path("filler").c_str()); }
  // Commits log lines until a commit fails.
  absl::Status WriteUntilFull() {
    for (uint64_t i = 1; i < 1000; ++i) {
      LogRow row = Line(i);
      row.text = std::string(100000, 'y');
      if (const absl::Status status = store_->Commit({.logs = {row}}); !status.ok()) return status;
    }
    return absl::OkStatus();
  }

  files::TempDir dir_;
  bool mounted_ = false;
  std::unique_ptr<SqliteStore> store_;
};

TEST_F(FullDisk, IsReportedAndTheBallastGivesSpaceForOneMoreCommit) {
  Fill();
  const absl::Status full = WriteUntilFull();
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted) << full;
  const Batch batch{.jobs = {NewRows(FullJob("a", 1))}};
  EXPECT_FALSE(store_->Commit(batch).ok());
  ASSERT_TRUE(store_->ReleaseReserve());
  EXPECT_TRUE(store_->Commit(batch).ok());
  EXPECT_FALSE(store_->ReleaseReserve()) << "there is only one";
  EXPECT_EQ(store_->Load()->jobs.size(), 1);
}

TEST_F(FullDisk, TheBallastIsMadeAgainOnceThereIsSpace) {
  Fill();
  ASSERT_TRUE(store_->ReleaseReserve());
  Fill();
  EXPECT_FALSE(store_->RestoreReserve());
  EXPECT_FALSE(std::filesystem::exists(dir_.Path("ballast"))) << "half of it would only take room";
  Free();
  EXPECT_TRUE(store_->RestoreReserve());
  EXPECT_EQ(std::filesystem::file_size(dir_.Path("ballast")), DiskReserve::kBytes);
}

TEST_F(FullDisk, IsOpenedWithTheSpaceOfTheBallastAndReported) {
  EXPECT_FALSE(store_->OpenedShortOfRoom());
  store_.reset();
  Fill();
  auto opened = SqliteStore::Open(dir_.path());
  ASSERT_TRUE(opened.ok()) << opened.status();
  store_ = std::move(*opened);
  EXPECT_TRUE(store_->OpenedShortOfRoom());
  EXPECT_FALSE(std::filesystem::exists(dir_.Path("ballast")));
  EXPECT_TRUE(store_->Commit({.jobs = {NewRows(FullJob("a", 1))}}).ok());
  EXPECT_FALSE(store_->RestoreReserve());
  Free();
  EXPECT_TRUE(store_->RestoreReserve());
  store_.reset();
  opened = SqliteStore::Open(dir_.path());
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_FALSE((*opened)->OpenedShortOfRoom());
}

// The musterd was killed after it had deleted the ballast.
TEST_F(FullDisk, WithoutABallastIsReportedToo) {
  ASSERT_TRUE(store_->ReleaseReserve());
  store_.reset();
  Fill();
  // The free space is enough to open the store, and less than the ballast.
  ASSERT_EQ(
      truncate(dir_.Path("filler").c_str(),
               static_cast<off_t>(std::filesystem::file_size(dir_.Path("filler"))) - (1 << 20)),
      0);
  auto opened = SqliteStore::Open(dir_.path());
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_TRUE((*opened)->OpenedShortOfRoom());
}

TEST(SqliteOpen, AnErrorOtherThanAFullDiskKeepsTheBallast) {
  files::TempDir dir;
  ASSERT_TRUE(SqliteStore::Open(dir.path()).ok());
  ASSERT_TRUE(std::filesystem::exists(dir.Path("ballast")));
  std::filesystem::create_directory(dir.Path("muster.db-wal"));  // the place of its log
  const auto opened = SqliteStore::Open(dir.path());
  EXPECT_EQ(opened.status().code(), absl::StatusCode::kUnavailable) << opened.status();
  EXPECT_TRUE(std::filesystem::exists(dir.Path("ballast")));
  EXPECT_FALSE(std::filesystem::exists(dir.Path("ballast.probe")));
}

TEST_F(FullDisk, SpaceOfDeletedRowsCountsAsFree) {
  // One job has 9 MB of log lines.
  store_->ReleaseReserve();
  Batch batch{.jobs = {NewRows(FullJob("a", 1))}};
  for (uint64_t i = 1; i <= 90; ++i) {
    batch.logs = {Line(i)};
    batch.logs[0].text = std::string(100000, 'y');
    ASSERT_TRUE(store_->Commit(batch).ok());
    batch.jobs.clear();
  }
  Fill();
  EXPECT_FALSE(store_->RestoreReserve());
  // The ballast provides the space for the deletion.
  ASSERT_EQ(truncate(dir_.Path("filler").c_str(), 0), 0);
  ASSERT_TRUE(store_->Commit({.removed_jobs = {"a"}, .last_number = 1}).ok());
  Fill();
  EXPECT_TRUE(store_->RestoreReserve());
}

TEST_F(FullDisk, AFileOfTheVersionBeforeIsNotChangedWhereItCannotGrow) {
  store_.reset();
  const std::string path = dir_.Path("muster.db");
  for (const char* suffix : {"", "-wal", "-shm"}) std::filesystem::remove(path + suffix);
  std::filesystem::remove(dir_.Path("ballast"));
  const auto sql = files::ReadFile("coordinator/store/testdata/version_19.sql");
  ASSERT_TRUE(sql.ok()) << sql.status();
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open(path.c_str(), &db), SQLITE_OK);
  ASSERT_EQ(sqlite3_exec(db, sql->c_str(), nullptr, nullptr, nullptr), SQLITE_OK)
      << sqlite3_errmsg(db);
  sqlite3_close(db);
  const auto before = files::ReadFile(path);
  ASSERT_TRUE(before.ok()) << before.status();
  Fill();
  for (int start = 0; start < 2; ++start) {
    const absl::Status opened = SqliteStore::Open(dir_.path()).status();
    EXPECT_EQ(opened.code(), absl::StatusCode::kResourceExhausted) << opened;
    EXPECT_EQ(*files::ReadFile(path), *before);
  }
  Free();
  const auto opened = SqliteStore::Open(dir_.path());
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_GE((*opened)->Load()->jobs.size(), 4);
}

TEST(SqliteBackup, IsOneConsistentStateThatCanBeOpened) {
  files::TempDir dir;
  auto store = SqliteStore::Open(dir.path());
  ASSERT_TRUE(store.ok()) << store.status();
  ASSERT_TRUE((*store)->Commit({.jobs = {NewRows(FullJob("a", 1))}, .steps = {Step(1, 0.5)}}).ok());
  const auto copy = (*store)->Backup();
  ASSERT_TRUE(copy.ok()) << copy.status();
  // Later changes are not in the copy.
  ASSERT_TRUE((*store)->Commit({.jobs = {NewRows(FullJob("b", 2))}}).ok());
  struct stat attributes;
  ASSERT_EQ(stat(copy->c_str(), &attributes), 0);
  EXPECT_EQ(attributes.st_mode & 0777, 0600);
  files::TempDir other;
  std::filesystem::copy_file(*copy, other.Path("muster.db"));
  auto restored = SqliteStore::Open(other.path());
  ASSERT_TRUE(restored.ok()) << restored.status();
  const auto image = (*restored)->Load();
  ASSERT_TRUE(image.ok()) << image.status();
  ASSERT_EQ(image->jobs.size(), 1);
  ExpectSame(image->jobs[0], FullJob("a", 1));
  EXPECT_EQ((*restored)->ReadMetrics(MetricsOf::kSteps, "a", 0, 10)->size(), 1);
}

TEST(SqliteBackup, TheFileOfAKilledMusterdIsRemoved) {
  files::TempDir dir;
  std::string copy;
  {
    auto store = SqliteStore::Open(dir.path());
    copy = *(*store)->Backup();
    EXPECT_TRUE(std::filesystem::exists(copy));
  }
  auto store = SqliteStore::Open(dir.path());
  EXPECT_FALSE(std::filesystem::exists(copy));
}

}  // namespace
}  // namespace muster::store
