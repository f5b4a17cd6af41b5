#include "worker/data/elements.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

namespace muster::data {
namespace {

using ::testing::ElementsAre;

template <typename T>
Elements Of(ElementType type, const std::vector<T>& numbers, std::vector<int64_t> shape,
            ElementOrder order = ElementOrder::kC) {
  return {.type = type,
          .order = order,
          .shape = std::move(shape),
          .data = reinterpret_cast<const uint8_t*>(numbers.data())};
}

std::vector<float> Row(const Elements& array, int64_t row) {
  std::vector<float> out(static_cast<size_t>(array.row_elements()));
  CopyRow(array, row, out.data());
  return out;
}

TEST(Elements, ARowOfFortranOrderIsThatOfCOrder) {
  // The arrays have shape [2, 3, 4] and values 100 n + 10 i + j.
  std::vector<float> c, fortran;
  for (int n = 0; n < 2; ++n) {
    for (int i = 0; i < 3; ++i) {
      for (int j = 0; j < 4; ++j) c.push_back(static_cast<float>(100 * n + 10 * i + j));
    }
  }
  for (int j = 0; j < 4; ++j) {
    for (int i = 0; i < 3; ++i) {
      for (int n = 0; n < 2; ++n) fortran.push_back(static_cast<float>(100 * n + 10 * i + j));
    }
  }
  const Elements a = Of(ElementType::kFloat32, c, {2, 3, 4});
  const Elements b = Of(ElementType::kFloat32, fortran, {2, 3, 4}, ElementOrder::kFortran);
  for (int64_t row : {0, 1}) {
    EXPECT_EQ(Row(a, row), Row(b, row));
    for (int64_t i = 0; i < 12; ++i) {
      EXPECT_EQ(NumberAt(a, OffsetOf(a, row, i)), Row(a, row)[static_cast<size_t>(i)]);
      EXPECT_EQ(NumberAt(b, OffsetOf(b, row, i)), Row(a, row)[static_cast<size_t>(i)]);
    }
  }
  EXPECT_THAT(Row(Of(ElementType::kFloat32, c, {24}, ElementOrder::kFortran), 5), ElementsAre(11));
}

TEST(Elements, FloatsAreRoundedToTheNearest) {
  const std::vector<double> doubles = {0.1, 1 + std::ldexp(1, -24), 1 + 3 * std::ldexp(1, -24),
                                       -2.5};
  EXPECT_THAT(Row(Of(ElementType::kFloat64, doubles, {1, 4}), 0),
              ElementsAre(0.1f, 1.0f, 1 + std::ldexp(1.0f, -22), -2.5f));
  const std::vector<uint16_t> halves = {0x3c00, 0xc100, 0x0001, 0x7bff};
  EXPECT_THAT(Row(Of(ElementType::kFloat16, halves, {1, 4}), 0),
              ElementsAre(1.0f, -2.5f, std::ldexp(1.0f, -24), 65504.0f));
  const std::vector<uint16_t> bfloats = {0x3f80, 0xc020};
  EXPECT_THAT(Row(Of(ElementType::kBFloat16, bfloats, {1, 2}), 0), ElementsAre(1.0f, -2.5f));
}

TEST(Elements, WhatFloat32CannotHoldIsInfinite) {
  const std::vector<double> doubles = {1e300, -1e300, std::nan("")};
  const std::vector<float> row = Row(Of(ElementType::kFloat64, doubles, {1, 3}), 0);
  EXPECT_EQ(row[0], std::numeric_limits<float>::infinity());
  EXPECT_EQ(row[1], -std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(row[2]));
}

TEST(Elements, WholeNumbersOfEveryTypeAreRead) {
  const auto second = [](ElementType type, const auto& numbers) {
    const Elements array = Of(type, numbers, {2});
    return IntegerAt(array, OffsetOf(array, 1, 0));
  };
  EXPECT_EQ(second(ElementType::kBool, std::vector<uint8_t>{0, 1}), 1);
  EXPECT_EQ(second(ElementType::kUint8, std::vector<uint8_t>{0, 200}), 200);
  EXPECT_EQ(second(ElementType::kInt8, std::vector<int8_t>{0, -100}), -100);
  EXPECT_EQ(second(ElementType::kUint16, std::vector<uint16_t>{0, 60000}), 60000);
  EXPECT_EQ(second(ElementType::kInt16, std::vector<int16_t>{0, -100}), -100);
  EXPECT_EQ(second(ElementType::kUint32, std::vector<uint32_t>{0, 4000000000}), 4000000000);
  EXPECT_EQ(second(ElementType::kInt32, std::vector<int32_t>{0, -100}), -100);
  EXPECT_EQ(second(ElementType::kInt64, std::vector<int64_t>{0, -100}), -100);
}

}  // namespace
}  // namespace muster::data
