#include "common/files/mapped_file.h"

#include <signal.h>

#include <filesystem>
#include <string>
#include <utility>

#include "common/files/files.h"
#include "common/files/temp_dir.h"
#include "gtest/gtest.h"

namespace muster::files {
namespace {

TEST(MappedFileTest, ShowsTheBytesAndMoves) {
  TempDir dir;
  ASSERT_TRUE(WriteAtomically(dir.Path("a"), "hello").ok());
  auto opened = MappedFile::Open(dir.Path("a"));
  ASSERT_TRUE(opened.ok());
  MappedFile file = *std::move(opened);
  MappedFile moved = std::move(file);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(moved.data()), moved.size()), "hello");
  EXPECT_EQ(moved.path(), dir.Path("a"));
}

TEST(MappedFileTest, EmptyFileIsFine) {
  TempDir dir;
  ASSERT_TRUE(WriteAtomically(dir.Path("a"), "").ok());
  EXPECT_EQ(MappedFile::Open(dir.Path("a"))->size(), 0u);
}

TEST(MappedFileTest, MissingFileAndDirectoryAreNamed) {
  TempDir dir;
  EXPECT_EQ(MappedFile::Open(dir.Path("a")).status().code(), absl::StatusCode::kNotFound);
  const absl::Status status = MappedFile::Open(dir.path()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(std::string(status.message()),
            dir.path() + ": expected a regular file, found a directory");
}

TEST(MappedFileTest, AFileThatShrinksInPlaceIsNoticedAndAReplacedOneIsNot) {
  TempDir dir;
  ASSERT_TRUE(WriteAtomically(dir.Path("a"), std::string(10000, 'x')).ok());
  const auto file = MappedFile::Open(dir.Path("a"));
  EXPECT_TRUE(file->CheckNotShrunk().ok());
  ASSERT_TRUE(WriteAtomically(dir.Path("a"), "another file").ok());
  EXPECT_TRUE(file->CheckNotShrunk().ok());
  EXPECT_EQ(file->data()[9999], 'x');

  const auto another = MappedFile::Open(dir.Path("a"));
  std::filesystem::resize_file(dir.Path("a"), 3);
  const absl::Status status = another->CheckNotShrunk();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(std::string(status.message()),
            dir.Path("a") +
                ": shortened while in use: expected the 12 bytes it had when it was "
                "opened, found 3");
}

TEST(MappedFileTest, AReadBehindTheEndOfAShrunkFileEndsTheProcessWithAWord) {
  TempDir dir;
  ASSERT_TRUE(WriteAtomically(dir.Path("a"), std::string(10000, 'x')).ok());
  const auto file = MappedFile::Open(dir.Path("a"));
  std::filesystem::resize_file(dir.Path("a"), 0);
  const volatile uint8_t* byte = file->data() + 9999;
  EXPECT_EXIT(
      {
        ExplainBusErrors();
        static_cast<void>(*byte);
      },
      ::testing::KilledBySignal(SIGBUS),
      "SIGBUS: a file that is mapped into memory .* was shortened");
}

}  // namespace
}  // namespace muster::files
