#include "common/jobfile/near_name.h"

#include <gtest/gtest.h>

namespace muster::jobfile {
namespace {

const std::vector<std::string> kNames = {
    "transformer.wte.weight", "transformer.h.11.attn.c_attn.weight",
    "transformer.h.11.attn.c_attn.bias", "transformer.ln_f.weight"};

TEST(NearPattern, KeepsTheStarsAndMendsWhatIsBetween) {
  EXPECT_EQ(NearPattern("transfomer.h.11.*", kNames), "transformer.h.11.*");
  EXPECT_EQ(NearPattern("transformer.h.11x*", kNames), "transformer.h.11*");
  EXPECT_EQ(NearPattern("*bais", kNames), "*bias");
  EXPECT_EQ(NearPattern("*.atn.*", kNames), "*.attn.*");
  EXPECT_EQ(NearPattern("transformer.wte.wieght", kNames), "transformer.wte.weight");
}

TEST(NearPattern, SaysNothingWhereNothingIsNear) {
  EXPECT_EQ(NearPattern("encoder.layers.3.*", kNames), "");
  EXPECT_EQ(NearPattern("*", kNames), "");
  EXPECT_EQ(NearPattern("x", {}), "");
}

}  // namespace
}  // namespace muster::jobfile
