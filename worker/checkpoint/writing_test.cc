#include "worker/checkpoint/writing.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <vector>

#include "common/activity/activity.h"
#include "common/files/files.h"
#include "common/files/temp_dir.h"

namespace muster::checkpoint {
namespace {

using Now = Writing::Now;

TEST(WritingTest, SaysHowFarItIs) {
  Writing writing;
  EXPECT_EQ(writing.Read(), Now());
  writing.Begin(5, 100);
  EXPECT_EQ(writing.Read(), (Now{.command = 5, .total = 100}));
  writing.Add(60);
  EXPECT_EQ(writing.Read(), (Now{.command = 5, .total = 100, .written = 60}));
  writing.Add(60);
  EXPECT_EQ(writing.Read().written, 100u) << "the header of a file is not part of the total";
  writing.End();
  EXPECT_EQ(writing.Read(), Now());
}

TEST(WritingTest, ADiskCountsWhatIsWrittenBlockByBlock) {
  const files::TempDir folder;
  const std::string path = folder.Path("file");
  const std::string bytes(2 * activity::kBlockBytes + 3, 'x');
  Writing writing;
  writing.Begin(0, bytes.size());
  CountingDisk disk(&writing);
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
  ASSERT_GE(fd, 0);
  EXPECT_TRUE(disk.Write(fd, bytes.data(), bytes.size(), path).ok());
  close(fd);
  EXPECT_EQ(writing.Read().written, bytes.size());
  EXPECT_EQ(*files::ReadFile(path), bytes);
}

}  // namespace
}  // namespace muster::checkpoint
