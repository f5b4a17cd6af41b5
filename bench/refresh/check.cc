// The cost of the check before each step that no parameter was frozen or unfrozen: microseconds per
// 1000 parameters.
#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

#include "absl/strings/str_cat.h"
#include "worker/train/step/trained_parameters.h"

int main() {
  using Clock = std::chrono::steady_clock;
  for (const int count : {100, 1000, 10000, 100000}) {
    std::vector<muster::models::Parameter> parameters;
    for (int i = 0; i < count; ++i) {
      parameters.push_back({absl::StrCat("layers.", i, ".weight"), at::zeros({2})});
      parameters.back().tensor.requires_grad_(i % 3 != 0);
    }
    const auto trained = *muster::train::TrainedParameters::Create(parameters, {});
    double best = 1e9;
    for (int repeat = 0; repeat < 20; ++repeat) {
      const auto start = Clock::now();
      bool differ = false;
      for (int i = 0; i < 100; ++i) differ |= trained->FirstFlipped() >= 0;
      const double seconds = std::chrono::duration<double>(Clock::now() - start).count() / 100;
      if (differ) return 1;
      best = std::min(best, seconds);
    }
    std::printf("%6d parameters: %.2f us, %.2f us per 1000\n", count, 1e6 * best,
                1e9 * best / count);
  }
}
