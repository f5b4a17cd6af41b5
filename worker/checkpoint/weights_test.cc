#include "worker/checkpoint/weights.h"

#include <filesystem>
#include <limits>
#include <string>

#include "ATen/core/Tensor.h"
#include "common/files/files.h"
#include "common/safetensors/safetensors.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "worker/checkpoint/weights_fixture.h"
#include "worker/models/spec_from_json.h"

namespace muster::checkpoint {
namespace {

using safetensors::DType;
using ::testing::HasSubstr;

TEST_F(WeightsTest, SavedWeightsLoadBackBitwise) {
  const auto saved = Gpt2(1), loaded = Gpt2(2);
  const std::string path = dir_.Path("out/deep/model.safetensors");
  ASSERT_TRUE(SaveWeights(path, saved->Parameters()).ok());
  ASSERT_TRUE(Load(path, *loaded).ok());
  EXPECT_TRUE(Same(*saved, *loaded));
  EXPECT_EQ(safetensors::File::Open(path)->header().metadata.at("format"), "pt");
  EXPECT_FALSE(std::filesystem::exists(path + ".tmp"));
}

TEST_F(WeightsTest, ExportAddsTheConfigWhereThereIsOne) {
  ASSERT_TRUE(ExportModel(dir_.Path("a/model.safetensors"), *Gpt2(1)).ok());
  const auto config = nlohmann::json::parse(*files::ReadFile(dir_.Path("a/config.json")));
  EXPECT_EQ(config["n_positions"], 3);
  EXPECT_EQ(config["tie_word_embeddings"], true);
  const auto mlp = models::CreateFromJson(
      "mlp", {{"inputs", 2}, {"hidden", nlohmann::json::array()}, {"classes", 2}}, 1);
  ASSERT_TRUE(ExportModel(dir_.Path("b/model.safetensors"), **mlp).ok());
  EXPECT_FALSE(std::filesystem::exists(dir_.Path("b/config.json")));
}

// The same weights with 2 heads are another model, which only config.json tells.
TEST_F(WeightsTest, AConfigBesideTheWeightsMustBeTheModels) {
  const auto other = *models::CreateFromJson(
      "gpt2", {{"vocab_size", 5}, {"context", 3}, {"layers", 1}, {"heads", 2}, {"width", 2}}, 1);
  const std::string path = dir_.Path("model.safetensors");
  ASSERT_TRUE(ExportModel(path, *other).ok());
  EXPECT_EQ(ErrorOf(path, *Gpt2(2)), dir_.Path("config.json") +
                                         ": describes another model than gpt2 with these options: "
                                         "n_head: expected 1, found 2");
  EXPECT_THAT(ErrorOf(ShardedFile(Tensors(*other)), *Gpt2(2)),
              HasSubstr("n_head: expected 1, found 2"));
  EXPECT_TRUE(Load(path, *other).ok());
  // The config.json does not apply to files with other names.
  EXPECT_TRUE(Load(File(Tensors(*other), "mine.safetensors"), *Gpt2(2)).ok());
  std::filesystem::remove(dir_.Path("config.json"));
  EXPECT_TRUE(Load(path, *Gpt2(2)).ok());
}

TEST_F(WeightsTest, BuffersAreSavedAndLoadedWithTheParameters) {
  const std::string path = dir_.Path("m/model.safetensors");
  ASSERT_TRUE(ExportModel(path, Normed(7)).ok());
  const auto file = safetensors::File::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->Find("bn.num_batches_tracked")->dtype, DType::kI64);
  EXPECT_EQ(file->Find("bn.num_batches_tracked")->begin % 8, 0u);
  EXPECT_EQ(file->Find("bn.running_var")->dtype, DType::kF32);
  const Normed loaded(1);
  ASSERT_TRUE(Load(path, loaded).ok());
  EXPECT_TRUE(Same(loaded, Normed(7)));
  for (const models::Buffer& buffer : loaded.Buffers()) {
    EXPECT_TRUE(buffer.tensor.eq(7).all().item<bool>()) << buffer.name;
    EXPECT_FALSE(buffer.tensor.requires_grad());
  }
  EXPECT_EQ(loaded.Buffers()[2].tensor.scalar_type(), at::kLong);
}

// For example a mask. Training can start from exported weights.
TEST_F(WeightsTest, ABufferThatIsNotFiniteInTheModelItselfMayBeSoInTheFile) {
  const Normed saved(7), loaded(7), finite(7);
  for (const Normed* model : {&saved, &loaded}) {
    model->Buffers()[0].tensor[1].fill_(-std::numeric_limits<float>::infinity());
  }
  ASSERT_TRUE(SaveWeights(dir_.Path("w"), saved.Parameters(), saved.Buffers()).ok());
  const absl::Status status = Load(dir_.Path("w"), loaded);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_THAT(std::string(Load(dir_.Path("w"), finite).message()),
              HasSubstr("'bn.running_mean': expected finite numbers, found -inf as number 1"));
}

}  // namespace
}  // namespace muster::checkpoint
