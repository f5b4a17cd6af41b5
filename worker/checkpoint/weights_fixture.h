// Small models, and files of any tensors, for tests of weights.
#ifndef MUSTER_WORKER_CHECKPOINT_WEIGHTS_FIXTURE_H_
#define MUSTER_WORKER_CHECKPOINT_WEIGHTS_FIXTURE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "ATen/ops/full.h"
#include "absl/status/status.h"
#include "common/files/files.h"
#include "common/files/temp_dir.h"
#include "common/safetensors/safetensors.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "worker/checkpoint/load_weights.h"
#include "worker/models/model.h"
#include "worker/models/spec_from_json.h"
#include "worker/models/unit.h"

namespace muster::checkpoint {

inline std::unique_ptr<models::Model> Gpt2(uint64_t seed, bool tied = true) {
  return *models::CreateFromJson("gpt2",
                                 {{"vocab_size", 5},
                                  {"context", 3},
                                  {"layers", 1},
                                  {"heads", 1},
                                  {"width", 2},
                                  {"tied", tied}},
                                 seed);
}

inline bool Same(const models::Model& a, const models::Model& b) {
  const auto x = a.Parameters(), y = b.Parameters();
  for (size_t i = 0; i < x.size(); ++i) {
    if (!x[i].tensor.equal(y[i].tensor)) return false;
  }
  return true;
}

// A model with one weight and the three buffers of a BatchNorm. The odd number of channels makes
// later tensors unaligned.
class Normed : public models::Model {
 public:
  explicit Normed(double value) : Model("normed", std::make_unique<Root>(value)) {}

  models::InputSpec UnitsInput() const override { return {}; }

 private:
  class Root : public models::Unit {
   public:
    explicit Root(double value) : Unit("") {
      AddParameter("bn.weight", at::full({3}, value, at::kFloat));
      AddBuffer("bn.running_mean", at::full({3}, value, at::kFloat));
      AddBuffer("bn.running_var", at::full({3}, value, at::kFloat));
      AddBuffer("bn.num_batches_tracked", at::full({}, static_cast<int64_t>(value), at::kLong));
    }
    at::Tensor Forward(const at::Tensor& x, models::ForwardContext&) override { return x; }
  };
};

class WeightsTest : public ::testing::Test {
 protected:
  // Writes tensors of any type under these names, and returns the path.
  std::string File(const std::vector<std::pair<std::string, at::Tensor>>& tensors,
                   const std::string& name_of_file = "w.safetensors") {
    std::vector<safetensors::Entry> entries;
    std::string data;
    for (const auto& [name, tensor] : tensors) {
      using safetensors::DType;
      const DType dtype = tensor.scalar_type() == at::kHalf            ? DType::kF16
                          : tensor.scalar_type() == at::kBFloat16      ? DType::kBF16
                          : tensor.scalar_type() == at::kDouble        ? DType::kF64
                          : tensor.scalar_type() == at::kLong          ? DType::kI64
                          : tensor.scalar_type() == at::kFloat8_e4m3fn ? DType::kF8E4M3
                                                                       : DType::kF32;
      entries.push_back({name, dtype, tensor.sizes().vec()});
      data.append(static_cast<const char*>(tensor.data_ptr()), tensor.nbytes());
    }
    const std::string text = safetensors::Plan(entries, {})->prefix + data;
    EXPECT_TRUE(files::WriteAtomically(dir_.Path(name_of_file), text).ok());
    return dir_.Path(name_of_file);
  }

  // Writes two files with these tensors in turn, and their index.
  std::string ShardedFile(const std::vector<std::pair<std::string, at::Tensor>>& tensors) {
    std::vector<std::pair<std::string, at::Tensor>> shards[2];
    nlohmann::json weight_map;
    for (size_t i = 0; i < tensors.size(); ++i) {
      shards[i % 2].push_back(tensors[i]);
      weight_map[tensors[i].first] = i % 2 == 0 ? "even.safetensors" : "odd.safetensors";
    }
    File(shards[0], "even.safetensors");
    File(shards[1], "odd.safetensors");
    const std::string path = dir_.Path("model.safetensors.index.json");
    const nlohmann::json index = {{"metadata", {{"total_size", 1}}}, {"weight_map", weight_map}};
    EXPECT_TRUE(files::WriteAtomically(path, index.dump()).ok());
    return path;
  }

  // Returns all parameters of `model` under changed names.
  static std::vector<std::pair<std::string, at::Tensor>> Tensors(
      const models::Model& model, const std::string& prefix_to_drop = "") {
    std::vector<std::pair<std::string, at::Tensor>> tensors;
    for (const auto& parameter : model.Parameters()) {
      tensors.emplace_back(parameter.name.substr(prefix_to_drop.size()), parameter.tensor.detach());
    }
    return tensors;
  }

  static absl::Status Load(const std::string& path, const models::Model& model) {
    return LoadWeights({.path = path}, model).status();
  }

  // Returns an error about names, shapes and types, which must leave the model unchanged.
  static std::string ErrorOf(const WeightsOptions& options, const models::Model& model) {
    const absl::Status status = LoadWeights(options, model).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_TRUE(Same(model, *Gpt2(2))) << "touched";
    return std::string(status.message());
  }
  static std::string ErrorOf(const std::string& path, const models::Model& model) {
    return ErrorOf(WeightsOptions{.path = path}, model);
  }

  files::TempDir dir_;
};

}  // namespace muster::checkpoint

#endif  // MUSTER_WORKER_CHECKPOINT_WEIGHTS_FIXTURE_H_
