#include "worker/models/language/rotary.h"

#include <gtest/gtest.h>

#include <cmath>

#include "ATen/core/Tensor.h"
#include "ATen/ops/arange.h"

namespace muster::models {
namespace {

TEST(RotaryTest, TurnsTheHalvesOfAHeadAgainstEachOther) {
  Rotary rotary(5, 4, {.theta = 100});
  const at::Tensor x = at::arange(1, 5, at::kFloat).view({1, 1, 1, 4}).expand({1, 5, 1, 4});
  const at::Tensor turned = rotary.Turn(x);
  for (int64_t position = 0; position < 5; ++position) {
    const at::Tensor found = turned[0][position][0];
    for (int64_t i = 0; i < 2; ++i) {
      const double angle =
          static_cast<double>(position) / std::pow(100, 2.0 * static_cast<double>(i) / 4);
      const double a = static_cast<double>(i) + 1, b = a + 2;
      EXPECT_NEAR(found[i].item<float>(), a * std::cos(angle) - b * std::sin(angle), 1e-5);
      EXPECT_NEAR(found[i + 2].item<float>(), b * std::cos(angle) + a * std::sin(angle), 1e-5);
    }
  }
}

}  // namespace
}  // namespace muster::models
