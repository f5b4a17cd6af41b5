#include "common/jobfile/near_name.h"

#include <gtest/gtest.h>

namespace muster::jobfile {
namespace {

TEST(NearName, FindsTheSlipOfThePen) {
  const std::vector<std::string> names = {"world_size", "weight_decay", "lr", "model"};
  EXPECT_EQ(NearName("wrld_size", names), "world_size");
  EXPECT_EQ(NearName("world-size", names), "world_size");
  EXPECT_EQ(NearName("WorldSize", names), "world_size");
  EXPECT_EQ(NearName("modle", names), "model");
  EXPECT_EQ(NearName("lr_", names), "lr");
}

TEST(NearName, GivesNothingWhereNothingIsNear) {
  EXPECT_EQ(NearName("zzz", {"world_size", "lr"}), "");
  EXPECT_EQ(NearName("", {"a"}), "");
  EXPECT_EQ(NearName("ab", {"cd"}), "");
  EXPECT_EQ(NearName(std::string(1000, 'x'), {"x"}), "");
}

}  // namespace
}  // namespace muster::jobfile
