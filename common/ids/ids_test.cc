#include "common/ids/ids.h"

#include <gtest/gtest.h>

#include <regex>

namespace muster {
namespace {

TEST(NewUuid, IsAVersion4UuidAndNeverTheSame) {
  const std::regex form("[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}");
  const std::string a = NewUuid();
  EXPECT_TRUE(std::regex_match(a, form)) << a;
  EXPECT_NE(a, NewUuid());
}

}  // namespace
}  // namespace muster
