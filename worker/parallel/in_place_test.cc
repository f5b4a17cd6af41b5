#include "worker/parallel/in_place.h"

#include <gtest/gtest.h>

#include <vector>

#include "ATen/core/Tensor.h"
#include "ATen/ops/empty.h"
#include "ATen/ops/full.h"
#include "ATen/ops/ones.h"

namespace muster::parallel {
namespace {

// A flat of 64 elements with three tensors: [0, 20), [32, 42), [48, 64).
class InPlaceTest : public testing::Test {
 protected:
  WantedGroup Group(const std::vector<WantedGroup::Member>& members, int64_t elements) {
    return {.members = members, .elements = elements, .type = at::kFloat};
  }
  WantedGroup All() { return Group({{0, 0, 20}, {1, 32, 10}, {2, 48, 16}}, 64); }
  InPlace Find(const std::vector<WantedGroup>& groups, Unwanted unwanted = Unwanted::kStays) {
    return FindInPlace({flat_}, tensors_, groups, unwanted);
  }
  int64_t Offset(const at::Tensor& group) {
    EXPECT_TRUE(group.is_alias_of(flat_));
    return group.storage_offset();
  }

  at::Tensor flat_ = at::empty({64});
  std::vector<at::Tensor> tensors_ = {flat_.narrow(0, 0, 20), flat_.narrow(0, 32, 10),
                                      flat_.narrow(0, 48, 16)};
};

TEST_F(InPlaceTest, AGroupThatDidNotChangeStays) {
  const InPlace found = Find({All()});
  ASSERT_TRUE(found.groups[0].defined());
  EXPECT_EQ(Offset(found.groups[0]), 0);
  EXPECT_EQ(found.groups[0].numel(), 64);
  EXPECT_EQ(found.flats.size(), 1u);
}

TEST_F(InPlaceTest, WhatIsFrozenBehindOrBeforeAGroupStaysBesideIt) {
  const InPlace front = Find({Group({{0, 0, 20}, {1, 32, 10}}, 48)});
  ASSERT_TRUE(front.groups[0].defined());
  EXPECT_EQ(Offset(front.groups[0]), 0);
  const InPlace back = Find({Group({{1, 0, 10}, {2, 16, 16}}, 32)});
  ASSERT_TRUE(back.groups[0].defined());
  EXPECT_EQ(Offset(back.groups[0]), 32);
  EXPECT_TRUE(back.displaced.empty());
  EXPECT_EQ(back.flats.size(), 1u);
}

TEST_F(InPlaceTest, AGroupWhosePaddingWouldCoverAnotherTensorIsLaidOutAnew) {
  const InPlace found = Find({Group({{0, 0, 20}, {1, 32, 10}}, 64)});
  EXPECT_FALSE(found.groups[0].defined());
  EXPECT_EQ(found.displaced, std::vector<size_t>{2});
  EXPECT_TRUE(found.flats.empty());
}

TEST_F(InPlaceTest, AGroupWithoutAMemberInBetweenIsLaidOutAnewAndTheRestIsDisplaced) {
  const InPlace found = Find({Group({{0, 0, 20}, {2, 32, 16}}, 64)});
  EXPECT_FALSE(found.groups[0].defined());
  EXPECT_EQ(found.displaced, std::vector<size_t>{1});
}

TEST_F(InPlaceTest, TheSameMembersInAnotherOrderAreLaidOutAnew) {
  EXPECT_FALSE(Find({Group({{0, 0, 20}, {2, 32, 16}, {1, 48, 10}}, 64)}).groups[0].defined());
}

TEST_F(InPlaceTest, MemoryThatOneTensorLeavesIsLeftByAll) {
  // The first group could stay, but the second group has to leave.
  const InPlace found =
      Find({Group({{0, 0, 20}}, 32), Group({{1, 0, 10}, {2, 32, 16}}, 48)}, Unwanted::kLeaves);
  EXPECT_FALSE(found.groups[0].defined());
  EXPECT_FALSE(found.groups[1].defined());
  EXPECT_TRUE(found.flats.empty());
}

TEST_F(InPlaceTest, ATensorThatNoGroupWantsLeavesWhereItIsAskedFor) {
  const std::vector<WantedGroup> groups = {Group({{0, 0, 20}, {1, 32, 10}}, 48)};
  EXPECT_FALSE(Find(groups, Unwanted::kLeaves).groups[0].defined());
  EXPECT_TRUE(Find(groups, Unwanted::kLeaves).displaced.empty());
}

TEST_F(InPlaceTest, MemoryWithoutAnyTrainedTensorStays) {
  const InPlace found = Find({});
  EXPECT_EQ(found.flats.size(), 1u);
  EXPECT_TRUE(found.displaced.empty());
}

TEST_F(InPlaceTest, OtherLengthsTypesAndMemoryAreLaidOutAnew) {
  EXPECT_FALSE(Find({Group({{0, 0, 19}, {1, 32, 10}, {2, 48, 16}}, 64)}).groups[0].defined());
  EXPECT_FALSE(Find({Group({{0, 0, 20}, {-1, 32, 10}, {2, 48, 16}}, 64)}).groups[0].defined());
  WantedGroup wide = All();
  wide.type = at::kDouble;
  EXPECT_FALSE(Find({wide}).groups[0].defined());
  tensors_[1] = at::empty({10});
  EXPECT_FALSE(Find({All()}).groups[0].defined());
}

TEST(NewFlat, IsZeroBetweenItsMembers) {
  WantedGroup group{.members = {{0, 0, 3}, {1, 16, 20}}, .elements = 48, .type = at::kFloat};
  { const at::Tensor used = at::ones({48}); }  // the allocator may return this memory again
  const at::Tensor flat = NewFlat(group);
  const float* values = flat.const_data_ptr<float>();
  for (int i = 3; i < 16; ++i) EXPECT_EQ(values[i], 0) << i;
  for (int i = 36; i < 48; ++i) EXPECT_EQ(values[i], 0) << i;
}

TEST(MoveInto, MakesTheTensorsViewsWithTheirValues) {
  const WantedGroup group{.members = {{1, 0, 3}, {0, 16, 4}}, .elements = 32, .type = at::kFloat};
  const std::vector<at::Tensor> tensors = {at::ones({2, 2}), at::full({3}, 5.0)};
  const at::Tensor flat = NewFlat(group);
  MoveInto(flat, group, tensors);
  for (const at::Tensor& tensor : tensors) EXPECT_TRUE(tensor.is_alias_of(flat));
  EXPECT_TRUE(tensors[0].equal(at::ones({2, 2})));
  EXPECT_TRUE(tensors[1].equal(at::full({3}, 5.0)));
  EXPECT_EQ(tensors[0].storage_offset(), 16);
  EXPECT_EQ(tensors[1].storage_offset(), 0);
}

TEST(MoveInto, ATensorWithoutElementsDoesNotKeepTheFlatAllocated) {
  const WantedGroup group{.members = {{0, 0, 3}, {1, 16, 0}}, .elements = 32, .type = at::kFloat};
  const std::vector<at::Tensor> tensors = {at::ones({3}), at::empty({0})};
  at::Tensor flat = NewFlat(group);
  MoveInto(flat, group, tensors);
  const auto storage = flat.storage().getWeakStorageImpl();
  flat.reset();
  EXPECT_FALSE(storage.expired());
  tensors[0].set_data(at::ones({3}));  // this tensor leaves the flat, as in a new plan
  EXPECT_TRUE(storage.expired());
}

}  // namespace
}  // namespace muster::parallel
