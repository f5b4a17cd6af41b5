#include "worker/comm/slices.h"

#include "gtest/gtest.h"

namespace muster::comm {
namespace {

TEST(SliceOf, CoversEveryElementOnceInRankOrderAtAlignedCuts) {
  for (int world_size : {1, 2, 3, 4, 7}) {
    for (int64_t elements : {0, 1, 15, 16, 17, 31, 33, 100, 1000, 4096, 65537}) {
      int64_t next = 0;
      for (int rank = 0; rank < world_size; ++rank) {
        const Slice slice = SliceOf(elements, rank, world_size);
        EXPECT_EQ(slice.begin, next);
        EXPECT_LE(slice.begin, slice.end);
        if (slice.begin != elements) EXPECT_EQ(slice.begin % kSliceAlignment, 0);
        next = slice.end;
      }
      EXPECT_EQ(next, elements);
    }
  }
}

TEST(SliceOf, IsCutWhereFusedKernelsGiveTheSameBits) {
  // Cuts are at multiples of 16 elements, for any number of ranks. With other cuts a fused
  // optimizer would give other last bits.
  EXPECT_EQ(SliceOf(40, 0, 2).end, 32);
  EXPECT_EQ(SliceOf(40, 1, 2).size(), 8);
}

TEST(SliceOf, IsEvenWhenTheBufferIsPaddedForTheRanks) {
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(SliceOf(3 * 16 * 5, rank, 3).size(), 80);
}

}  // namespace
}  // namespace muster::comm
