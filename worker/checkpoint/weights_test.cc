#include "worker/checkpoint/weights.h"

#include <filesystem>
#include <limits>
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
#include "worker/models/spec_from_json.h"
#include "worker/models/unit.h"

namespace muster::checkpoint {
namespace {

using safetensors::DType;
using ::testing::HasSubstr;

std::unique_ptr<models::Model> Gpt2(uint64_t seed, bool tied = true) {
  return *models::CreateFromJson("gpt2",
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

// One weight, and the three buffers of a BatchNorm: an odd number of channels, which aligns nothing
// by itself.
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
  // Writes tensors of any type under these names.
  std::string File(const std::vector<std::pair<std::string, at::Tensor>>& tensors,
                   const std::string& name_of_file = "w.safetensors") {
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
    EXPECT_TRUE(files::WriteAtomically(dir_.Path(name_of_file), text).ok());
    return dir_.Path(name_of_file);
  }

  // Two files with these tensors in turn, and their index.
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
  EXPECT_TRUE(LoadWeights(path, *other).ok());
  // The config.json does not apply to files with other names.
  EXPECT_TRUE(LoadWeights(File(Tensors(*other), "mine.safetensors"), *Gpt2(2)).ok());
  std::filesystem::remove(dir_.Path("config.json"));
  EXPECT_TRUE(LoadWeights(path, *Gpt2(2)).ok());
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

TEST_F(WeightsTest, ShardedWeightsLoadThroughTheirIndex) {
  const auto model = Gpt2(2);
  ASSERT_TRUE(LoadWeights(ShardedFile(Tensors(*Gpt2(1), "transformer.")), *model).ok());
  EXPECT_TRUE(Same(*model, *Gpt2(1)));
}

TEST_F(WeightsTest, ProblemsOfShardedWeightsNameTheFile) {
  auto tensors = Tensors(*Gpt2(1));
  tensors[0].second = at::full({4, 2}, 1, at::kFloat);
  tensors[1].first = "transformer.wpe.wieght";
  const std::string path = ShardedFile(tensors);
  EXPECT_EQ(ErrorOf(path, *Gpt2(2)),
            path +
                ": 'transformer.wte.weight' in even.safetensors: expected the shape [5, 2], found "
                "[4, 2]; "
                "unexpected 'transformer.wpe.wieght' in odd.safetensors; missing "
                "'transformer.wpe.weight'");
  std::filesystem::remove(dir_.Path("odd.safetensors"));
  const absl::Status status = LoadWeights(path, *Gpt2(2));
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr(dir_.Path("odd.safetensors")));
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
  ASSERT_TRUE(LoadWeights(path, loaded).ok());
  EXPECT_TRUE(Same(loaded, Normed(7)));
  for (const models::Buffer& buffer : loaded.Buffers()) {
    EXPECT_TRUE(buffer.tensor.eq(7).all().item<bool>()) << buffer.name;
    EXPECT_FALSE(buffer.tensor.requires_grad());
  }
  EXPECT_EQ(loaded.Buffers()[2].tensor.scalar_type(), at::kLong);
}

TEST_F(WeightsTest, OnlyTheCountOfBatchesMayBeMissing) {
  const auto value = [](double x) { return at::full({3}, x, at::kFloat); };
  const Normed model(1);
  ASSERT_TRUE(LoadWeights(File({{"bn.weight", value(3)},
                                {"bn.running_mean", value(4).to(at::kHalf)},
                                {"bn.running_var", value(5)}}),
                          model)
                  .ok());
  EXPECT_EQ(model.Buffers()[0].tensor[1].item<float>(), 4);
  EXPECT_EQ(model.Buffers()[2].tensor.item<int64_t>(), 1);
  const absl::Status status = LoadWeights(
      File({{"bn.weight", value(6)}, {"bn.num_batches_tracked", at::full({}, 2.0, at::kFloat)}}),
      model);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(
      std::string(status.message()),
      dir_.Path("w.safetensors") +
          ": 'bn.num_batches_tracked': expected I64, found F32; missing 'bn.running_mean'; missing "
          "'bn.running_var'");
  EXPECT_EQ(model.Parameters()[0].tensor[0].item<float>(), 3);
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

TEST_F(WeightsTest, NumbersThatAreNotFiniteAreRefused) {
  auto tensors = Tensors(*Gpt2(1));
  tensors[1].second = tensors[1].second.to(at::kHalf);
  tensors[1].second.data_ptr<at::Half>()[3] = std::numeric_limits<float>::infinity();
  EXPECT_THAT(
      ErrorOf(File(tensors), *Gpt2(2)),
      HasSubstr("'transformer.wpe.weight': expected finite numbers, found inf as number 3"));
}

// For example a mask. Training can start from exported weights.
TEST_F(WeightsTest, ABufferThatIsNotFiniteInTheModelItselfMayBeSoInTheFile) {
  const Normed saved(7), loaded(7), finite(7);
  for (const Normed* model : {&saved, &loaded}) {
    model->Buffers()[0].tensor[1].fill_(-std::numeric_limits<float>::infinity());
  }
  ASSERT_TRUE(SaveWeights(dir_.Path("w"), saved.Parameters(), saved.Buffers()).ok());
  const absl::Status status = LoadWeights(dir_.Path("w"), loaded);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_THAT(std::string(LoadWeights(dir_.Path("w"), finite).message()),
              HasSubstr("'bn.running_mean': expected finite numbers, found -inf as number 1"));
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
