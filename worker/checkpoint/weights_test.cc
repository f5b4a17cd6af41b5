#include "worker/checkpoint/weights.h"

#include <filesystem>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "ATen/ops/arange.h"
#include "ATen/ops/full.h"
#include "common/files/files.h"
#include "common/files/temp_dir.h"
#include "common/safetensors/safetensors.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "worker/models/registry.h"

namespace muster::checkpoint {
namespace {

using safetensors::DType;
using ::testing::HasSubstr;

std::unique_ptr<models::Model> Gpt2(uint64_t seed, bool tied = true) {
  return *models::Create("gpt2",
                         {{"vocab_size", 5},
                          {"context", 3},
                          {"layers", 1},
                          {"heads", 1},
                          {"width", 2},
                          {"tied", tied}},
                         seed);
}

bool Same(const models::Model& a, const models::Model& b) {
  const auto x = a.Parameters(), y = b.Parameters();
  for (size_t i = 0; i < x.size(); ++i) {
    if (!x[i].tensor.equal(y[i].tensor)) return false;
  }
  return true;
}

class WeightsTest : public ::testing::Test {
 protected:
  // Writes tensors of any type under these names.
  std::string File(const std::vector<std::pair<std::string, at::Tensor>>& tensors) {
    std::vector<safetensors::Entry> entries;
    std::string data;
    for (const auto& [name, tensor] : tensors) {
      const DType dtype = tensor.scalar_type() == at::kHalf       ? DType::kF16
                          : tensor.scalar_type() == at::kBFloat16 ? DType::kBF16
                          : tensor.scalar_type() == at::kLong     ? DType::kI64
                                                                  : DType::kF32;
      entries.push_back({name, dtype, tensor.sizes().vec()});
      data.append(static_cast<const char*>(tensor.data_ptr()), tensor.nbytes());
    }
    const std::string text = safetensors::Plan(entries, {})->prefix + data;
    EXPECT_TRUE(files::WriteAtomically(dir_.Path("w.safetensors"), text).ok());
    return dir_.Path("w.safetensors");
  }

  // All parameters of `model` under changed names.
  static std::vector<std::pair<std::string, at::Tensor>> Tensors(
      const models::Model& model, const std::string& prefix_to_drop = "") {
    std::vector<std::pair<std::string, at::Tensor>> tensors;
    for (const auto& parameter : model.Parameters()) {
      tensors.emplace_back(parameter.name.substr(prefix_to_drop.size()), parameter.tensor.detach());
    }
    return tensors;
  }

  static std::string ErrorOf(const std::string& path, const models::Model& model) {
    const absl::Status status = LoadWeights(path, model);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_TRUE(Same(model, *Gpt2(2))) << "touched";
    return std::string(status.message());
  }

  files::TempDir dir_;
};

TEST_F(WeightsTest, SavedWeightsLoadBackBitwise) {
  const auto saved = Gpt2(1), loaded = Gpt2(2);
  const std::string path = dir_.Path("out/deep/model.safetensors");
  ASSERT_TRUE(SaveWeights(path, saved->Parameters()).ok());
  ASSERT_TRUE(LoadWeights(path, *loaded).ok());
  EXPECT_TRUE(Same(*saved, *loaded));
  EXPECT_EQ(safetensors::File::Open(path)->header().metadata.at("format"), "pt");
  EXPECT_FALSE(std::filesystem::exists(path + ".tmp"));
}

TEST_F(WeightsTest, ExportAddsTheConfigWhereThereIsOne) {
  ASSERT_TRUE(ExportModel(dir_.Path("a/model.safetensors"), *Gpt2(1)).ok());
  const auto config = nlohmann::json::parse(*files::ReadFile(dir_.Path("a/config.json")));
  EXPECT_EQ(config["n_positions"], 3);
  EXPECT_EQ(config["tie_word_embeddings"], true);
  const auto mlp = models::Create(
      "mlp", {{"inputs", 2}, {"hidden", nlohmann::json::array()}, {"classes", 2}}, 1);
  ASSERT_TRUE(ExportModel(dir_.Path("b/model.safetensors"), **mlp).ok());
  EXPECT_FALSE(std::filesystem::exists(dir_.Path("b/config.json")));
}

TEST_F(WeightsTest, HalfAndBfloat16AreConverted) {
  for (const at::ScalarType type : {at::kHalf, at::kBFloat16}) {
    auto tensors = Tensors(*Gpt2(1));
    for (auto& [name, tensor] : tensors) tensor = at::full(tensor.sizes(), 1.5, type);
    const auto model = Gpt2(2);
    ASSERT_TRUE(LoadWeights(File(tensors), *model).ok());
    for (const auto& parameter : model->Parameters()) {
      EXPECT_EQ(parameter.tensor.scalar_type(), at::kFloat);
      EXPECT_TRUE(parameter.tensor.eq(1.5).all().item<bool>());
      EXPECT_TRUE(parameter.tensor.requires_grad());
    }
  }
}

TEST_F(WeightsTest, FilesOfTheBareTransformerWithOldBuffersLoad) {
  auto tensors = Tensors(*Gpt2(1), "transformer.");
  tensors.emplace_back("h.0.attn.bias", at::full({1, 1, 3, 3}, 1, at::kLong));
  tensors.emplace_back("lm_head.weight", tensors[0].second.clone());
  const auto model = Gpt2(2);
  ASSERT_TRUE(LoadWeights(File(tensors), *model).ok());
  EXPECT_TRUE(Same(*model, *Gpt2(1)));
}

TEST_F(WeightsTest, UntiedFileIsRefusedByATiedModel) {
  auto tensors = Tensors(*Gpt2(1));
  tensors.emplace_back("lm_head.weight", tensors[0].second.add(1));
  EXPECT_THAT(ErrorOf(File(tensors), *Gpt2(2)),
              HasSubstr("'transformer.wte.weight' and 'lm_head.weight' are one parameter of this "
                        "model, but differ in the file"));
}

TEST_F(WeightsTest, EveryProblemIsReportedAtOnceCappedAtThree) {
  auto tensors = Tensors(*Gpt2(1));
  tensors[0].second = at::full({4, 2}, 1, at::kFloat);
  tensors[1].first = "transformer.wpe.wieght";
  tensors[2].second = tensors[2].second.to(at::kLong);
  EXPECT_EQ(
      ErrorOf(File(tensors), *Gpt2(2)),
      dir_.Path("w.safetensors") +
          ": 'transformer.wte.weight': expected the shape [5, 2], found [4, 2]; unexpected "
          "'transformer.wpe.wieght'; 'transformer.h.0.ln_1.weight': expected F32, F16 or BF16, "
          "found I64; and 1 more");
  tensors = Tensors(*Gpt2(1));
  tensors.pop_back();
  EXPECT_THAT(ErrorOf(File(tensors), *Gpt2(2)), HasSubstr(": missing 'transformer.ln_f.bias'"));
}

TEST_F(WeightsTest, BrokenAndMissingFilesAreToldApart) {
  const std::string path = File(Tensors(*Gpt2(1)));
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 1);
  EXPECT_EQ(LoadWeights(path, *Gpt2(2)).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(LoadWeights(dir_.Path("none"), *Gpt2(2)).code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(LoadWeights(dir_.path(), *Gpt2(2)).message()),
              HasSubstr("expected a regular file, found a directory"));
}

}  // namespace
}  // namespace muster::checkpoint
