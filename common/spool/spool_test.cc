#include "common/spool/spool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

namespace muster {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::string PathOf(const std::string& name) {
  return std::string(getenv("TEST_TMPDIR")) + "/" + name;
}

TEST(Spool, WhatIsWrittenAndAddedIsReadInOrder) {
  const std::string path = PathOf("whole");
  const std::string binary("\0\n\xff", 3);
  ASSERT_TRUE(WriteSpool(path, {.worker = "who", .reports = {"one", binary}}).ok());
  ASSERT_TRUE(AppendToSpool(path, {"", "three"}).ok());
  ASSERT_TRUE(SyncSpool(path).ok());
  const auto read = ReadSpool(path);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->worker, "who");
  EXPECT_THAT(read->reports, ElementsAre("one", binary, "", "three"));
}

TEST(Spool, AnotherWriteReplacesAll) {
  const std::string path = PathOf("again");
  ASSERT_TRUE(WriteSpool(path, {.worker = "who", .reports = {"one", "two"}}).ok());
  ASSERT_TRUE(WriteSpool(path, {.worker = "who", .reports = {"two"}}).ok());
  EXPECT_THAT(ReadSpool(path)->reports, ElementsAre("two"));
}

TEST(Spool, WhereverTheWriterWasKilledWhatWasWholeIsRead) {
  const std::string path = PathOf("torn");
  ASSERT_TRUE(WriteSpool(path, {.worker = "who", .reports = {"one"}}).ok());
  const auto whole = std::filesystem::file_size(path);
  ASSERT_TRUE(AppendToSpool(path, {"two"}).ok());
  for (auto size = std::filesystem::file_size(path) - 1; size >= whole; --size) {
    std::filesystem::resize_file(path, size);
    EXPECT_THAT(ReadSpool(path)->reports, ElementsAre("one")) << size;
  }
  std::filesystem::resize_file(path, 20);
  EXPECT_EQ(ReadSpool(path).status().code(), absl::StatusCode::kDataLoss);
}

TEST(Spool, ADamagedRecordEndsIt) {
  const std::string path = PathOf("damaged");
  ASSERT_TRUE(WriteSpool(path, {.worker = "who", .reports = {"one"}}).ok());
  FILE* file = fopen(path.c_str(), "r+");
  fseek(file, -1, SEEK_END);
  fputc('x', file);
  fclose(file);
  EXPECT_THAT(ReadSpool(path)->reports, IsEmpty());
}

TEST(Spool, OtherFilesAreNone) {
  EXPECT_EQ(ReadSpool(PathOf("missing")).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ReadSpool("/proc/self/cmdline").status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(AppendToSpool(PathOf("missing"), {"one"}).code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace muster
