#include "common/files/hashing_writer.h"

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "common/activity/activity.h"
#include "common/files/files.h"
#include "common/files/temp_dir.h"
#include "gtest/gtest.h"

namespace muster::files {
namespace {

TEST(HashingWriterTest, HashIsXxhsumsOfTheWholeFile) {
  TempDir dir;
  const auto writer = HashingWriter::Create(dir.Path("a"));
  ASSERT_TRUE(writer.ok());
  ASSERT_TRUE((*writer)->Append("hel", 3).ok());
  ASSERT_TRUE((*writer)->Append("", 0).ok());
  ASSERT_TRUE((*writer)->Append("lo", 2).ok());
  const auto digest = (*writer)->Finish();
  ASSERT_TRUE(digest.ok());
  EXPECT_EQ(digest->size, 5u);
  // The output of: printf hello | xxhsum -H2
  EXPECT_EQ(digest->hash, "b5e9c1ad071b3e7fc779cfaa5e523818");
  EXPECT_EQ(HashBytes("hello", 5), digest->hash);
  EXPECT_EQ(*ReadFile(dir.Path("a")), "hello");
}

TEST(HashingWriterTest, EachBlockThatIsHashedWrittenOrSyncedMoves) {
  TempDir dir;
  activity::Activity activity;
  const activity::Scope scope(&activity);
  const std::string data(3 * activity::kBlockBytes, 'x');
  const auto writer = HashingWriter::Create(dir.Path("a"));
  ASSERT_TRUE((*writer)->Append(data.data(), data.size()).ok());
  EXPECT_EQ(activity.count(), 9u) << "twice hashed, and written";
  const auto digest = (*writer)->Finish();
  ASSERT_TRUE(digest.ok());
  EXPECT_EQ(digest->hash, HashBytes(data.data(), data.size()));
  EXPECT_GE(activity.count(), 12u);
  EXPECT_EQ(*ReadFile(dir.Path("a")), data);
}

TEST(HashingWriterTest, EachBlockHasAHash) {
  TempDir dir;
  for (const size_t size :
       {size_t{0}, size_t{5}, size_t{kHashedBlock}, size_t{2 * kHashedBlock + 7}}) {
    std::string data;
    for (size_t i = 0; i < size; ++i) data += static_cast<char>(i / 1000);
    const auto writer = HashingWriter::Create(dir.Path("a"));
    // Writes pieces that do not end at the ends of blocks.
    for (size_t at = 0; at < size; at += 3'000'001) {
      ASSERT_TRUE((*writer)->Append(data.data() + at, std::min<size_t>(3'000'001, size - at)).ok());
    }
    std::vector<std::string> expected;
    for (size_t at = 0; at < size; at += kHashedBlock) {
      expected.push_back(HashBytes(data.data() + at, std::min<size_t>(kHashedBlock, size - at)));
    }
    EXPECT_EQ((*writer)->Finish()->blocks, expected) << size;
  }
}

TEST(HashingWriterTest, EmptyFileHasTheHashOfNothing) {
  TempDir dir;
  const auto digest = (*HashingWriter::Create(dir.Path("a")))->Finish();
  ASSERT_TRUE(digest.ok());
  EXPECT_EQ(digest->hash, "99aa06d3014798d86001c324468d497f");
}

TEST(HashingWriterTest, AbandonedFileIsRemoved) {
  TempDir dir;
  {
    ASSERT_TRUE((*HashingWriter::Create(dir.Path("a")))->Append("x", 1).ok());
  }
  EXPECT_FALSE(std::filesystem::exists(dir.Path("a")));
}

class UnsyncableDisk : public Disk {
 public:
  absl::Status Sync(int, const std::string& path) override { return ErrnoStatus(5, "fsync", path); }
};

TEST(HashingWriterTest, FailedSyncRemovesTheFile) {
  TempDir dir;
  UnsyncableDisk disk;
  const auto writer = HashingWriter::Create(dir.Path("a"), disk);
  ASSERT_TRUE((*writer)->Append("x", 1).ok());
  EXPECT_EQ(std::string((*writer)->Finish().status().message()),
            "fsync " + dir.Path("a") + ": Input/output error");
  EXPECT_FALSE(std::filesystem::exists(dir.Path("a")));
}

TEST(HashingWriterTest, OldFileOfThatNameIsNotWrittenInto) {
  TempDir dir;
  ASSERT_TRUE(WriteAtomically(dir.Path("a"), "old").ok());
  std::filesystem::create_hard_link(dir.Path("a"), dir.Path("b"));
  const auto writer = HashingWriter::Create(dir.Path("a"));
  ASSERT_TRUE((*writer)->Append("new", 3).ok());
  ASSERT_TRUE((*writer)->Finish().ok());
  EXPECT_EQ(*ReadFile(dir.Path("a")), "new");
  EXPECT_EQ(*ReadFile(dir.Path("b")), "old");
}

}  // namespace
}  // namespace muster::files
