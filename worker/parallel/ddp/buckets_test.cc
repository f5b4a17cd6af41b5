#include "worker/parallel/ddp/buckets.h"

#include <algorithm>
#include <string>

#include "gtest/gtest.h"

namespace muster::parallel {
namespace {

// "2@0 1@16 |48": pieces of a bucket as parameter@offset, then its padded size.
std::string Show(const std::vector<Bucket>& buckets) {
  std::string text;
  for (const Bucket& bucket : buckets) {
    for (const auto& piece : bucket.pieces) {
      text += std::to_string(piece.parameter) + "@" + std::to_string(piece.offset) + " ";
    }
    text += "|" + std::to_string(bucket.elements) + " ";
  }
  return text;
}

TEST(AssignBuckets, Table) {
  struct Case {
    std::vector<int64_t> elements;
    int world_size;
    BucketLimits limits;  // float32
    std::string expected;
  };
  const std::vector<Case> cases = {
      {{}, 2, {64, 256}, ""},
      {{5}, 1, {64, 256}, "0@0 |16 "},
      {{5}, 3, {64, 256}, "0@0 |48 "},
      // Reverse order; the first is closed at 64 bytes, later ones at 256.
      {{64, 16, 16, 16, 16}, 1, {64, 256}, "4@0 |16 3@0 2@16 1@32 0@48 |112 "},
      // A piece begins at a multiple of 16.
      {{3, 17, 1}, 2, {1024, 1024}, "2@0 1@16 0@48 |64 "},
      // A huge parameter closes its bucket.
      {{1, 1000, 1}, 1, {1, 256}, "2@0 |16 1@0 |1008 0@0 |16 "},
      // Empty parameters have a place too.
      {{0, 4, 0}, 1, {1024, 1024}, "2@0 1@0 0@16 |16 "},
      {{0}, 2, {1024, 1024}, "0@0 |0 "},
      // All in one.
      {{10, 20, 30}, 4, {1 << 20, 1 << 20}, "2@0 1@32 0@64 |128 "},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(Show(AssignBuckets(c.elements, 4, c.world_size, c.limits)), c.expected);
  }
}

TEST(AssignBuckets, EveryParameterHasOnePlaceOfItsOwn) {
  std::vector<int64_t> elements;
  for (int i = 0; i < 500; ++i) elements.push_back((i * 7919) % 3000);
  for (int world_size : {1, 2, 3, 4}) {
    const auto buckets = AssignBuckets(elements, 4, world_size, {1000, 50000});
    int next = static_cast<int>(elements.size()) - 1;
    for (const Bucket& bucket : buckets) {
      int64_t end = 0;
      for (const auto& piece : bucket.pieces) {
        EXPECT_EQ(piece.parameter, next--);
        EXPECT_EQ(piece.offset % 16, 0);
        EXPECT_GE(piece.offset, end);
        end = piece.offset + elements[piece.parameter];
      }
      EXPECT_LE(end, bucket.elements);
      EXPECT_EQ(bucket.elements % (16 * world_size), 0);
    }
    EXPECT_EQ(next, -1);
  }
}

TEST(AssignBuckets, BordersDoNotDependOnTheWorldSize) {
  std::vector<int64_t> elements;
  for (int i = 0; i < 100; ++i) elements.push_back(1 + (i * 7919) % 300);
  const auto one = AssignBuckets(elements, 4, 1, {1000, 5000});
  const auto four = AssignBuckets(elements, 4, 4, {1000, 5000});
  ASSERT_EQ(one.size(), four.size());
  for (size_t i = 0; i < one.size(); ++i) EXPECT_EQ(one[i].pieces.size(), four[i].pieces.size());
}

}  // namespace
}  // namespace muster::parallel
