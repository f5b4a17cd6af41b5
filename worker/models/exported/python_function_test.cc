#include "worker/models/exported/python_function.h"

#include <cstdint>
#include <limits>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::models::exported {
namespace {

using Values = std::vector<c10::IValue>;

c10::IValue Call(const char* name, const Values& arguments) {
  const auto function = PythonFunctionOf(name);
  EXPECT_TRUE(function.has_value()) << name;
  auto result = CallPython(*function, arguments);
  EXPECT_TRUE(result.ok()) << name << ": " << result.status();
  return result.ok() ? *result : c10::IValue();
}

TEST(PythonFunctionTest, RoundsDownAsPythonDoes) {
  for (const auto& [a, b, quotient, rest] : std::vector<std::array<int64_t, 4>>{
           {7, 2, 3, 1}, {-7, 2, -4, 1}, {7, -2, -4, -1}, {-7, -2, 3, -1}, {6, 3, 2, 0}}) {
    EXPECT_EQ(Call("floordiv", {a, b}).toInt(), quotient) << a << " // " << b;
    EXPECT_EQ(Call("mod", {a, b}).toInt(), rest) << a << " % " << b;
  }
  EXPECT_EQ(Call("floordiv", {-7.5, int64_t{2}}).toDouble(), -4.0);
  EXPECT_EQ(Call("mod", {-7.5, int64_t{2}}).toDouble(), 0.5);
}

TEST(PythonFunctionTest, KeepsWholeNumbersWhole) {
  EXPECT_EQ(Call("add", {int64_t{2}, int64_t{3}}).toInt(), 5);
  EXPECT_EQ(Call("mul", {int64_t{2}, 0.5}).toDouble(), 1.0);
  EXPECT_EQ(Call("truediv", {int64_t{1}, int64_t{2}}).toDouble(), 0.5);
  EXPECT_EQ(Call("pow", {int64_t{3}, int64_t{4}}).toInt(), 81);
  EXPECT_EQ(Call("pow", {int64_t{-1}, int64_t{1} << 40}).toInt(), 1);
  EXPECT_EQ(Call("max", {int64_t{2}, int64_t{3}}).toInt(), 3);
  EXPECT_EQ(Call("max", {int64_t{3}, 2.5}).toInt(), 3);
  EXPECT_EQ(Call("floordiv", {1.0, 0.1}).toDouble(), 9.0);
  EXPECT_EQ(Call("neg", {int64_t{2}}).toInt(), -2);
  EXPECT_EQ(Call("ceil", {1.5}).toInt(), 2);
  EXPECT_EQ(Call("int", {-1.5}).toInt(), -1);
}

TEST(PythonFunctionTest, ComparesExactly) {
  const int64_t large = (int64_t{1} << 53) + 1;
  EXPECT_TRUE(Call("gt", {large, large - 1}).toBool());
  EXPECT_FALSE(Call("eq", {large, large - 1}).toBool());
  EXPECT_TRUE(Call("and", {true, true}).toBool());
  EXPECT_FALSE(Call("not", {int64_t{4}}).toBool());
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_FALSE(Call("eq", {nan, nan}).toBool());
}

TEST(PythonFunctionTest, RefusesWhatHasNoResult) {
  const int64_t most = std::numeric_limits<int64_t>::max();
  const int64_t least = std::numeric_limits<int64_t>::min();
  for (const auto& [name, arguments] :
       std::vector<std::pair<const char*, Values>>{{"floordiv", {int64_t{1}, int64_t{0}}},
                                                   {"mod", {int64_t{1}, int64_t{0}}},
                                                   {"truediv", {int64_t{1}, int64_t{0}}},
                                                   {"add", {most, int64_t{1}}},
                                                   {"mul", {most, int64_t{2}}},
                                                   {"neg", {least}},
                                                   {"floordiv", {least, int64_t{-1}}},
                                                   {"pow", {int64_t{10}, int64_t{30}}},
                                                   {"int", {1e30}},
                                                   {"add", {c10::IValue(), int64_t{1}}}}) {
    const auto result = CallPython(*PythonFunctionOf(name), arguments);
    EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument) << name;
    EXPECT_THAT(std::string(result.status().message()), ::testing::HasSubstr(name));
  }
  EXPECT_FALSE(PythonFunctionOf("system").has_value());
}

}  // namespace
}  // namespace muster::models::exported
