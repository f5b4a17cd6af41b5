// The time to plan one million parameters on 4096 ranks, and to plan their move to 4095 ranks.
//
// Buckets have three sizes, with five runs of each. The output has the best and the worst total,
// and the parts of the best.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "common/sharding/placement.h"
#include "worker/layout/groups.h"

namespace muster::layout {
namespace {

constexpr int kParameters = 1000000;
constexpr int kRanks = 4096;
constexpr int kRanksAfter = 4095;
constexpr int kRuns = 5;

class Stopwatch {
 public:
  double Lap() {
    const auto now = std::chrono::steady_clock::now();
    return std::chrono::duration<double>(now - std::exchange(last_, now)).count();
  }

 private:
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

struct Times {
  double sharded, complete, sharded_after, redistribute;
  double total() const { return sharded + complete + sharded_after + redistribute; }
};

size_t CountRanges(const sharding::Placement& placement) {
  size_t count = 0;
  for (const auto& ranges : placement.holders) count += ranges.size();
  return count;
}

void Measure(const std::string& what, const std::vector<ParameterSpec>& specs,
             const BucketLimits& limits) {
  const auto before = AssignBuckets(specs, kRanks, limits);
  const auto after = AssignBuckets(specs, kRanksAfter, limits);
  std::vector<Times> runs;
  size_t ranges = 0, moves = 0;
  for (int run = 0; run < kRuns; ++run) {
    Times times;
    Stopwatch watch;
    const sharding::Placement from = Sharded(before, specs, kRanks);
    times.sharded = watch.Lap();
    const absl::Status complete = sharding::CheckComplete(from);
    times.complete = watch.Lap();
    const sharding::Placement to = Sharded(after, specs, kRanksAfter);
    times.sharded_after = watch.Lap();
    const auto plan = sharding::Redistribute(from, to);
    times.redistribute = watch.Lap();
    if (!complete.ok() || !plan.ok()) {
      std::fprintf(stderr, "the plan is wrong\n");
      std::exit(1);
    }
    runs.push_back(times);
    ranges = CountRanges(from);
    moves = plan->size();
  }
  const auto [best, worst] =
      std::minmax_element(runs.begin(), runs.end(),
                          [](const Times& a, const Times& b) { return a.total() < b.total(); });
  std::printf("| %s | %zu | %.2f M | %.2f M | %.0f | %.0f | %.0f | %.0f | **%.0f** | %.0f |\n",
              what.c_str(), before.size(), ranges / 1e6, moves / 1e6, 1e3 * best->sharded,
              1e3 * best->complete, 1e3 * best->sharded_after, 1e3 * best->redistribute,
              1e3 * best->total(), 1e3 * worst->total());
}

void Main() {
  std::mt19937_64 random(1);
  std::vector<ParameterSpec> specs(kParameters);
  int64_t total = 0;
  for (int i = 0; i < kParameters; ++i) {
    specs[i].name = "layers." + std::to_string(i) + ".weight";
    total += specs[i].elements = 1 + random() % 2000;
  }
  std::printf(
      "%d parameters of 1 to 2000 elements, %.2e in all; %d ranks, then %d; milliseconds\n\n",
      kParameters, static_cast<double>(total), kRanks, kRanksAfter);
  std::printf(
      "| buckets of | buckets | ranges | moves | Sharded | CheckComplete | Sharded again | "
      "Redistribute | all | worst |\n|---|---|---|---|---|---|---|---|---|---|\n");
  Measure("4 GiB, all in one", specs, {.first_bytes = int64_t{1} << 50, .bytes = int64_t{1} << 50});
  Measure("64 MiB", specs, {.first_bytes = 1 << 20, .bytes = 64 << 20});
  Measure("4 MiB (default)", specs, {});
}

}  // namespace
}  // namespace muster::layout

int main() { muster::layout::Main(); }
