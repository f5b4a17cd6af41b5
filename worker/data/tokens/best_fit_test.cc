#include "worker/data/tokens/best_fit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace muster::data {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::vector<int64_t>> Samples(const Packing& packing) {
  std::vector<std::vector<int64_t>> samples;
  for (int64_t i = 0; i < packing.samples(); ++i) {
    const auto of = packing.Of(i);
    samples.emplace_back(of.begin(), of.end());
  }
  return samples;
}

TEST(BestFitTest, ADocumentGoesWhereTheLeastRoomIsLeft) {
  const std::vector<int64_t> lengths = {3, 7, 4, 6, 2, 10, 1};
  EXPECT_THAT(Samples(PackBestFit(lengths, 10)),
              ElementsAre(ElementsAre(5), ElementsAre(1, 0), ElementsAre(3, 2), ElementsAre(4, 6)));
}

TEST(BestFitTest, OfEqualDocumentsAndEqualRoomsTheFirstComesFirst) {
  const std::vector<int64_t> lengths = {6, 6, 3, 3, 3};
  EXPECT_THAT(Samples(PackBestFit(lengths, 10)),
              ElementsAre(ElementsAre(0, 2), ElementsAre(1, 3), ElementsAre(4)));
}

TEST(BestFitTest, NoDocumentIsNoSample) {
  EXPECT_THAT(Samples(PackBestFit({}, 10)), IsEmpty());
  EXPECT_THAT(Samples(PackEach(0)), IsEmpty());
}

TEST(BestFitTest, EachDocumentMayBeASample) {
  EXPECT_THAT(Samples(PackEach(3)), ElementsAre(ElementsAre(0), ElementsAre(1), ElementsAre(2)));
}

// Tries all samples for each document, in place of an ordered map.
std::vector<std::vector<int64_t>> Plain(const std::vector<int64_t>& lengths, int64_t room) {
  std::vector<std::vector<int64_t>> samples;
  std::vector<int64_t> left;
  for (int64_t length = room; length >= 1; --length) {
    for (size_t document = 0; document < lengths.size(); ++document) {
      if (lengths[document] != length) continue;
      size_t best = left.size();
      for (size_t i = 0; i < left.size(); ++i) {
        if (left[i] >= length && (best == left.size() || left[i] < left[best])) best = i;
      }
      if (best == left.size()) {
        left.push_back(room);
        samples.emplace_back();
      }
      left[best] -= length;
      samples[best].push_back(static_cast<int64_t>(document));
    }
  }
  return samples;
}

TEST(BestFitTest, RandomDocumentsArePackedAsByASearchOfAllSamples) {
  std::mt19937 dice(7);
  for (int round = 0; round < 200; ++round) {
    const int64_t room = 1 + dice() % 30;
    std::vector<int64_t> lengths(dice() % 60);
    for (int64_t& length : lengths) length = 1 + dice() % room;
    EXPECT_EQ(Samples(PackBestFit(lengths, room)), Plain(lengths, room));
  }
}

}  // namespace
}  // namespace muster::data
