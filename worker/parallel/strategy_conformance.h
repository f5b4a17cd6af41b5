// The parts that the conformance tests of strategies share. The tests run every strategy at several
// world sizes. The core suite is for all strategies and trains a model of units (test_net.h). The
// extended suite is for the strategies whose ranks hold all parameters, and trains plain tensors.
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
#include "worker/parallel/fsdp/fsdp.h"
#include "worker/parallel/sharded_ddp/sharded_ddp.h"
#include "worker/parallel/strategy.h"

namespace muster::parallel {

struct Implementation {
  const char* name;
  // Whether every rank holds all parameters, and the strategy can be made without a root.
  bool whole_model;
  // Whether gradients of micro-batches are first added on each rank, in order, and reduced once.
  bool local_sums;
  std::function<absl::StatusOr<std::unique_ptr<Strategy>>(
      const std::vector<models::Parameter>&, const std::vector<models::Buffer>&,
      const models::Unit* root, comm::Communicator*, int64_t bucket_bytes, KeptMemory kept)>
      create;
};

inline Implementation Sharded(const char* name, ReduceEvery every) {
  return {
      name, true, every == ReduceEvery::kStep,
      [every](const auto& parameters, const auto& buffers, const auto* root, auto* ranks,
              int64_t bytes, KeptMemory kept) {
        return CreateShardedDdp(
            parameters, buffers, root, ranks,
            {.bucket_bytes = bytes, .first_bucket_bytes = (bytes + 1) / 2, .reduce_every = every},
            std::move(kept));
      }};
}

inline Implementation FullySharded(const char* name, const FsdpOptions& options) {
  return {name, false, options.reduce_every == ReduceEvery::kStep,
          [options](const auto& parameters, const auto& buffers, const auto* root, auto* ranks,
                    int64_t, KeptMemory kept) {
            FsdpOptions own = options;
            // The values lie in `kept`; MovePieces fills the other slices.
            if (!kept.flats.empty()) {
              own.values = [](const at::Tensor&, int64_t, int64_t) { return at::Tensor(); };
            }
            return CreateFsdp(parameters, buffers, root, ranks, own, std::move(kept));
          }};
}

// Strategies whose ranks hold all parameters come first.
inline const std::vector<Implementation>& Implementations() {
  static const std::vector<Implementation> all = {
      {"Ddp", true, true,
       [](const auto& parameters, const auto& buffers, const auto*, auto* ranks, int64_t bytes,
          KeptMemory) {
         return CreateDdp(parameters, buffers, ranks,
                          {.bucket_bytes = bytes, .first_bucket_bytes = (bytes + 1) / 2});
       }},
      Sharded("ShardedDdp", ReduceEvery::kStep),
      Sharded("ShardedDdpPerMicroBatch", ReduceEvery::kMicroBatch),
      FullySharded("Fsdp", {}),
      FullySharded("FsdpPerMicroBatch", {.reduce_every = ReduceEvery::kMicroBatch}),
      FullySharded("FsdpWholeUntilBackward",
                   {.reshard_after_forward = false, .frozen_resident = true}),
  };
  return all;
}

inline constexpr int64_t kOneBucketPerType = 1 << 20;
inline constexpr int64_t kUnevenBuckets = 500;
inline constexpr int64_t kOneBucketEach = 1;

class StrategyTest : public testing::TestWithParam<std::tuple<int, int>> {
 protected:
  const Implementation& implementation() const {
    return Implementations()[std::get<0>(GetParam())];
  }
  int world_size() const { return std::get<1>(GetParam()); }

  std::unique_ptr<Strategy> Create(const models::Unit& net, comm::Communicator* ranks,
                                   int64_t bucket_bytes = kUnevenBuckets, KeptMemory kept = {}) {
    return Checked(implementation().create(net.Parameters(), net.Buffers(), &net, ranks,
                                           bucket_bytes, std::move(kept)));
  }

  static std::unique_ptr<Strategy> Checked(absl::StatusOr<std::unique_ptr<Strategy>> strategy) {
    EXPECT_TRUE(strategy.ok()) << strategy.status();
    return strategy.ok() ? *std::move(strategy) : nullptr;
  }
};

// The core suite, for all strategies.
class StrategyConformance : public StrategyTest {};

// The extended suite, for strategies whose ranks hold all parameters.
class WholeModelConformance : public StrategyTest {
 protected:
  std::unique_ptr<Strategy> Create(const std::vector<models::Parameter>& parameters,
                                   const std::vector<models::Buffer>& buffers,
                                   comm::Communicator* ranks,
                                   int64_t bucket_bytes = kUnevenBuckets) {
    return Checked(implementation().create(parameters, buffers, nullptr, ranks, bucket_bytes, {}));
  }
};

inline auto StrategiesThat(const std::function<bool(const Implementation&)>& fit) {
  std::vector<int> numbers;
  for (size_t i = 0; i < Implementations().size(); ++i) {
    if (fit(Implementations()[i])) numbers.push_back(static_cast<int>(i));
  }
  return testing::Combine(testing::ValuesIn(numbers), testing::Values(1, 2, 3, 4));
}

inline auto EveryStrategy() {
  return StrategiesThat([](const Implementation&) { return true; });
}
inline auto EveryWholeModelStrategy() {
  return StrategiesThat([](const Implementation& one) { return one.whole_model; });
}

inline std::string StrategyName(const testing::TestParamInfo<std::tuple<int, int>>& info) {
  return Implementations()[std::get<0>(info.param)].name + std::to_string(std::get<1>(info.param));
}

}  // namespace muster::parallel

#endif  // MUSTER_WORKER_PARALLEL_STRATEGY_CONFORMANCE_H_
