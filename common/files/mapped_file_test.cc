#include "common/files/mapped_file.h"

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

}  // namespace
}  // namespace muster::files
