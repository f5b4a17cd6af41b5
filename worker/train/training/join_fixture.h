// Test fixture for ranks with different amounts of input. The ranks are threads.
#ifndef MUSTER_WORKER_TRAIN_TRAINING_JOIN_FIXTURE_H_
#define MUSTER_WORKER_TRAIN_TRAINING_JOIN_FIXTURE_H_

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/files/files.h"
#include "common/files/temp_dir.h"
#include "common/safetensors/safetensors.h"
#include "worker/models/spec_from_json.h"
#include "worker/train/job/job.h"

namespace muster::train {

// The model is a convnet, because a convnet has BatchNorm. Each rank has its own data file.
class JoinFixture : public testing::TestWithParam<int> {
 protected:
  std::string WriteRows(int64_t rank, int64_t count) {
    std::vector<int64_t> shape = row_;
    shape.insert(shape.begin(), count);
    const int64_t numbers =
        std::accumulate(row_.begin(), row_.end(), int64_t{1}, std::multiplies<>());
    const auto plan = safetensors::Plan({{"inputs", safetensors::DType::kF32, shape},
                                         {"labels", safetensors::DType::kI64, {count}}},
                                        {});
    std::string file = plan->prefix;
    for (int64_t i = 0; i < count * numbers; ++i) {
      float value = std::sin(static_cast<float>(i * (rank + 3)));
      if (bad_row_ == std::pair(rank, i / numbers)) value = bad_value_;
      file.append(reinterpret_cast<const char*>(&value), sizeof(value));
    }
    for (int64_t i = 0; i < count; ++i) {
      const int64_t label = (i * 7 + rank) % classes_;
      file.append(reinterpret_cast<const char*>(&label), sizeof(label));
    }
    const std::string path = folder_.Path(absl::StrCat(rank, ".safetensors"));
    EXPECT_TRUE(files::WriteAtomically(path, file).ok());
    return path;
  }

  Job JobOn(const std::vector<int64_t>& sizes, int64_t steps) {
    Job job;
    job.seed = 5;
    *job.spec.mutable_model() = models::SpecFromText(
        "convnet", R"({"inputs": [1, 4, 4], "widths": [4], "blocks": [2], "classes": 3})");
    RowFiles files{.per_rank = true};
    for (size_t rank = 0; rank < sizes.size(); ++rank) {
      files.paths.push_back(WriteRows(rank, sizes[rank]));
    }
    job.data.train = files;
    job.strategy = Strategy();
    job.optimizer = OptimizerConfig{0.01, optim::AdamWOptions{}};
    job.batch = {.per_rank = 4, .accumulate = 2, .last = data::Last::kUneven};
    job.stages = {FitStage{steps, 0}};
    return job;
  }

  static StrategyConfig Strategy() {
    switch (GetParam()) {
      case 0:
        return parallel::DdpOptions{.bucket_bytes = 500, .first_bucket_bytes = 100};
      case 1:
        return parallel::ShardedDdpOptions{.bucket_bytes = 500, .first_bucket_bytes = 100};
      case 2:
        return parallel::FsdpOptions{};
      case 3:
        return parallel::ShardedDdpOptions{.bucket_bytes = 500,
                                           .first_bucket_bytes = 100,
                                           .reduce_every = parallel::ReduceEvery::kMicroBatch};
      default:
        return parallel::FsdpOptions{.reduce_every = parallel::ReduceEvery::kMicroBatch};
    }
  }

  files::TempDir folder_;
  std::vector<int64_t> row_ = {1, 4, 4};
  int64_t classes_ = 3;
  std::pair<int64_t, int64_t> bad_row_ = {-1, -1};
  float bad_value_ = 0;
};

inline std::string NameOfStrategy(const testing::TestParamInfo<int>& info) {
  constexpr const char* kNames[] = {"Ddp", "ShardedDdp", "Fsdp", "ShardedDdpEveryMicroBatch",
                                    "FsdpEveryMicroBatch"};
  return kNames[info.param];
}

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_TRAINING_JOIN_FIXTURE_H_
