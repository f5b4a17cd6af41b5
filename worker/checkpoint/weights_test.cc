#include "worker/checkpoint/weights.h"

#include <filesystem>
#include <limits>
#include <string>

#include "ATen/core/Tensor.h"
#include "common/files/files.h"
#include "common/files/hash.h"
#include "common/manifest/manifest.h"
#include "common/manifest/tensor_reader.h"
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

// The same weights with 2 heads are another model. Only config.json shows the difference.
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

// A checkpoint of Normed(value): its weight lies in two files.
class StoredWeightsTest : public WeightsTest {
 protected:
  void Store(double value) {
    const float weight = static_cast<float>(value);
    const int64_t count = static_cast<int64_t>(value);
    std::string bytes(reinterpret_cast<const char*>(&count), sizeof(count));
    for (int i = 0; i < 8; ++i) {
      bytes.append(reinterpret_cast<const char*>(&weight), sizeof(weight));
    }
    AddFile("a", bytes);
    AddFile("b", bytes.substr(8, 4));
    manifest_.pieces = {{.slot = "param",
                         .parameter = "bn.weight",
                         .shape = {3},
                         .end = 2,
                         .file = "a",
                         .offset = 8},
                        {.slot = "param",
                         .parameter = "bn.weight",
                         .shape = {3},
                         .begin = 2,
                         .end = 3,
                         .file = "b",
                         .offset = 0},
                        {.slot = "buffer",
                         .parameter = "bn.running_mean",
                         .shape = {3},
                         .end = 3,
                         .file = "a",
                         .offset = 16},
                        {.slot = "buffer",
                         .parameter = "bn.running_var",
                         .shape = {3},
                         .end = 3,
                         .file = "a",
                         .offset = 28},
                        {.slot = "buffer",
                         .parameter = "bn.num_batches_tracked",
                         .shape = {},
                         .end = 1,
                         .file = "a",
                         .dtype = "I64",
                         .offset = 0}};
  }
  absl::Status Export(const std::string& path) {
    EXPECT_TRUE(manifest::Write(manifest_, dir_.path()).ok());
    auto reader = manifest::TensorReader::Open(dir_.path());
    EXPECT_TRUE(reader.ok()) << reader.status();
    if (!reader.ok()) return reader.status();
    const Normed model(1);  // only the names and shapes count
    return WriteStoredWeights(path, model.Parameters(), model.Buffers(), {{"format", "pt"}},
                              "param", &*reader);
  }

  manifest::Manifest manifest_;

 private:
  void AddFile(const std::string& name, const std::string& bytes) {
    ASSERT_TRUE(files::WriteAtomically(dir_.Path(name), bytes).ok());
    const std::string hash = files::HashBytes(bytes.data(), bytes.size());
    manifest_.files.push_back({name, bytes.size(), hash, {hash}});
  }
};

TEST_F(StoredWeightsTest, TheFileIsTheOneThatTheModelItselfWouldGive) {
  Store(7);
  ASSERT_TRUE(Export(dir_.Path("stored.safetensors")).ok());
  ASSERT_TRUE(
      SaveWeights(dir_.Path("own.safetensors"), Normed(7).Parameters(), Normed(7).Buffers()).ok());
  EXPECT_EQ(*files::ReadFile(dir_.Path("stored.safetensors")),
            *files::ReadFile(dir_.Path("own.safetensors")));
}

TEST_F(StoredWeightsTest, ACheckpointOfAnotherModelIsRefusedAndLeavesNoFile) {
  Store(7);
  manifest_.pieces[2].parameter = "other";
  const std::string path = dir_.Path("stored.safetensors");
  absl::Status status = Export(path);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("buffer/bn.running_mean"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("found none"));
  EXPECT_FALSE(std::filesystem::exists(path));
  // The manifest was damaged after it was written.
  manifest_.pieces[2].parameter = "bn.running_mean";
  ASSERT_TRUE(files::WriteAtomically(dir_.Path("a"), std::string(40, 'x')).ok());
  status = Export(path);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
  EXPECT_FALSE(std::filesystem::exists(path));
}

// An example is a mask. Training can start from exported weights.
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
