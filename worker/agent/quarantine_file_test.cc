#include "worker/agent/hanging_processes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "common/files/files.h"
#include "common/files/temp_dir.h"
#include "common/process/process_stat.h"

namespace muster::agent {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

const HangingProcess kFirst = {
    .slot = 3,
    .worker = {.worker = {.job = "a\tb\n c", .generation = 2, .rank = 1, .incarnation = "1b4e"},
               .pid = 4711},
    .start_time = 987654321012};
const HangingProcess kSecond = {
    .slot = 0,
    .worker = {.worker = {.job = "", .generation = 1, .rank = 0, .incarnation = ""}, .pid = 5},
    .start_time = 1};

TEST(QuarantineFile, TheNextAgentReadsWhatWasWrittenLast) {
  const files::TempDir dir;
  const QuarantineFile file(dir.path());
  EXPECT_THAT(file.Read(), IsEmpty());
  ASSERT_TRUE(file.Write({kFirst}).ok());
  ASSERT_TRUE(file.Write({kFirst, kSecond}).ok());
  EXPECT_THAT(QuarantineFile(dir.path()).Read(), ElementsAre(kFirst, kSecond));
}

TEST(QuarantineFile, WithTheLastProcessTheFileGoes) {
  const files::TempDir dir;
  const QuarantineFile file(dir.path());
  ASSERT_TRUE(file.Write({kFirst}).ok());
  ASSERT_TRUE(file.Write({}).ok());
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
  EXPECT_TRUE(file.Write({}).ok());
}

TEST(QuarantineFile, OfADamagedFileTheWholeLinesCount) {
  const files::TempDir dir;
  const QuarantineFile file(dir.path());
  ASSERT_TRUE(file.Write({kFirst}).ok());
  const std::string whole = *files::ReadFile(dir.Path("quarantine"));
  const std::string damaged = "nonsense\n1\t2\t3\n-1\t2\t3\t4\t5\ti\tj\n1\t0\t3\t4\t5\ti\tj\n";
  ASSERT_TRUE(
      files::WriteAtomically(dir.Path("quarantine"), damaged + std::string("\0\xff\n", 3) + whole)
          .ok());
  EXPECT_THAT(file.Read(), ElementsAre(kFirst));
}

TEST(QuarantineFile, OneThatCannotBeReadCountsAsEmpty) {
  const files::TempDir dir;
  // A directory cannot be read as a file, like a file on a disk that reports EIO.
  std::filesystem::create_directory(dir.Path("quarantine"));
  EXPECT_THAT(QuarantineFile(dir.path()).Read(), IsEmpty());
}

TEST(QuarantineFile, WithoutADirectoryNothingIsKept) {
  const QuarantineFile file("");
  EXPECT_TRUE(file.Write({kFirst}).ok());
  EXPECT_THAT(file.Read(), IsEmpty());
}

TEST(StillHangs, OnlyTheSameProcessDoes) {
  HangingProcess own = {.slot = 0, .worker = {.worker = {}, .pid = getpid()}};
  own.start_time = process::ReadProcessStat(getpid())->start_time;
  EXPECT_TRUE(StillHangs(own));
  ++own.start_time;
  EXPECT_FALSE(StillHangs(own)) << "its number was given out again";
}

}  // namespace
}  // namespace muster::agent
