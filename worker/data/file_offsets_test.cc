#include "worker/data/file_offsets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <vector>

#include "worker/data/part.h"

namespace muster::data {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

FileOffsets Files(const std::vector<int64_t>& sizes) {
  FileOffsets files;
  for (const int64_t size : sizes) files.Append(size);
  return files;
}

TEST(Part, PartsFollowOneAnotherAndDifferByAtMostOne) {
  constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();
  for (const int64_t total : {int64_t{0}, int64_t{1}, int64_t{6}, int64_t{7}, kHuge}) {
    for (const int64_t count : {1, 2, 3, 7, 10}) {
      int64_t at = 0;
      for (int64_t index = 0; index < count; ++index) {
        const Part part{index, count};
        EXPECT_EQ(part.Begin(total), at);
        at = part.End(total);
        const int64_t more = at - part.Begin(total) - total / count;
        EXPECT_TRUE(more == 0 || more == 1) << more;
      }
      EXPECT_EQ(at, total);
    }
  }
}

TEST(FileOffsets, APartGoesOverFilesAndLeavesOutEmptyOnes) {
  const FileOffsets files = Files({5, 0, 2, 8});
  using Range = FileOffsets::Range;
  EXPECT_THAT(files.Of({0, 1}), ElementsAre(Range{0, 0, 5}, Range{2, 0, 2}, Range{3, 0, 8}));
  EXPECT_THAT(files.Of({0, 3}), ElementsAre(Range{0, 0, 5}));
  EXPECT_THAT(files.Of({1, 3}), ElementsAre(Range{2, 0, 2}, Range{3, 0, 3}));
  EXPECT_THAT(files.Of({2, 3}), ElementsAre(Range{3, 3, 8}));
}

TEST(FileOffsets, MorePartsThanElementsLeaveSomeWithoutAny) {
  const FileOffsets files = Files({1, 1});
  using Range = FileOffsets::Range;
  EXPECT_THAT(files.Of({0, 3}), ElementsAre(Range{0, 0, 1}));
  EXPECT_THAT(files.Of({1, 3}), ElementsAre(Range{1, 0, 1}));
  EXPECT_THAT(files.Of({2, 3}), IsEmpty());
  EXPECT_THAT(Files({}).Of({0, 1}), IsEmpty());
}

}  // namespace
}  // namespace muster::data
