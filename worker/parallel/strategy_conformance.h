// What the conformance tests of strategies share: those whose ranks hold all parameters, and a
// fixture for each of them and each world size.
#ifndef MUSTER_WORKER_PARALLEL_STRATEGY_CONFORMANCE_H_
#define MUSTER_WORKER_PARALLEL_STRATEGY_CONFORMANCE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "gtest/gtest.h"
#include "worker/comm/communicator.h"
#include "worker/models/unit.h"
#include "worker/parallel/ddp/ddp.h"
#include "worker/parallel/sharded_ddp/sharded_ddp.h"
#include "worker/parallel/strategy.h"

namespace muster::parallel {

struct Implementation {
  const char* name;
  // As sums over micro-batches are taken: locally, in order.
  bool local_sums;
  std::function<absl::StatusOr<std::unique_ptr<Strategy>>(
      const std::vector<models::Parameter>&, const std::vector<models::Buffer>&,
      comm::Communicator*, int64_t bucket_bytes)>
      create;
};

inline Implementation Sharded(const char* name, ShardedDdpOptions::ReduceEvery every) {
  return {
      name, every == ShardedDdpOptions::ReduceEvery::kStep,
      [every](const auto& parameters, const auto& buffers, auto* ranks, int64_t bytes) {
        return CreateShardedDdp(
            parameters, buffers, nullptr, ranks,
            {.bucket_bytes = bytes, .first_bucket_bytes = (bytes + 1) / 2, .reduce_every = every});
      }};
}

inline const Implementation kImplementations[] = {
    {"Ddp", true,
     [](const auto& parameters, const auto& buffers, auto* ranks, int64_t bytes) {
       return CreateDdp(parameters, buffers, ranks,
                        {.bucket_bytes = bytes, .first_bucket_bytes = (bytes + 1) / 2});
     }},
    Sharded("ShardedDdp", ShardedDdpOptions::ReduceEvery::kStep),
    Sharded("ShardedDdpPerMicroBatch", ShardedDdpOptions::ReduceEvery::kMicroBatch),
};

inline constexpr int64_t kOneBucketPerType = 1 << 20;
inline constexpr int64_t kUnevenBuckets = 500;
inline constexpr int64_t kOneBucketEach = 1;

class StrategyConformance : public testing::TestWithParam<std::tuple<int, int>> {
 protected:
  const Implementation& implementation() const { return kImplementations[std::get<0>(GetParam())]; }
  int world_size() const { return std::get<1>(GetParam()); }

  std::unique_ptr<Strategy> Create(const std::vector<models::Parameter>& parameters,
                                   const std::vector<models::Buffer>& buffers,
                                   comm::Communicator* ranks,
                                   int64_t bucket_bytes = kUnevenBuckets) {
    auto strategy = implementation().create(parameters, buffers, ranks, bucket_bytes);
    EXPECT_TRUE(strategy.ok()) << strategy.status();
    return strategy.ok() ? *std::move(strategy) : nullptr;
  }
};

inline auto EveryStrategy() {
  return testing::Combine(testing::Range(0, 3), testing::Values(1, 2, 3, 4));
}

inline std::string StrategyName(const testing::TestParamInfo<std::tuple<int, int>>& info) {
  return kImplementations[std::get<0>(info.param)].name + std::to_string(std::get<1>(info.param));
}

}  // namespace muster::parallel

#endif  // MUSTER_WORKER_PARALLEL_STRATEGY_CONFORMANCE_H_
