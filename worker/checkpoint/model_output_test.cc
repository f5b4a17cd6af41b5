// The contents of model folders and weights files, and the files that are left, whatever fails.
// Python's transformers reads them in tests/parity/consolidate_test.
#include "worker/checkpoint/model_output.h"

#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "ATen/ops/arange.h"
#include "ATen/ops/full.h"
#include "ATen/ops/randn.h"
#include "absl/strings/match.h"
#include "common/files/disk.h"
#include "common/files/files.h"
#include "common/modelfolder/plan.h"
#include "common/safetensors/safetensors.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/checkpoint/joint_fixture.h"

namespace muster::checkpoint {
namespace {

namespace fs = std::filesystem;
using safetensors::DType;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kElements = 100;

// The expected bits, which come independently from at::Half and at::BFloat16.
std::vector<uint16_t> ByTorch(const at::Tensor& values, at::ScalarType type) {
  const at::Tensor narrow = values.to(type).view(at::kShort);
  const auto* data = reinterpret_cast<const uint16_t*>(narrow.const_data_ptr<int16_t>());
  return {data, data + narrow.numel()};
}

TEST(ConvertFloats, RoundsAsTorchDoes) {
  std::vector<float> numbers = {0.0f,
                                -0.0f,
                                1.0f,
                                65504.0f,
                                65519.9f,
                                6.1e-5f,
                                5.96e-8f,
                                2.98e-8f,
                                2.99e-8f,
                                1e-10f,
                                -1e-45f,
                                3.3e38f,
                                std::numeric_limits<float>::infinity(),
                                -std::numeric_limits<float>::infinity()};
  // The values lie halfway between neighbours of both types, and just beside.
  for (const float base : {1.0f, 3.0f, 1024.0f, 1e-3f, 6.2e-5f, 3e-6f}) {
    for (int bits = 7; bits <= 13; ++bits) {
      const float half = base * (1 + std::ldexp(1.0f, -bits));
      numbers.insert(numbers.end(), {half, std::nextafter(half, 0.0f), std::nextafter(half, 9e9f)});
    }
  }
  const at::Tensor random = at::randn({100000}) * at::randn({100000}).mul(8).exp();
  for (const auto& [dtype, type, most] :
       {std::tuple{DType::kBF16, at::kBFloat16, 3.3e38f}, {DType::kF16, at::kHalf, 65519.9f}}) {
    std::vector<float> values = numbers;
    const float* data = random.const_data_ptr<float>();
    values.insert(values.end(), data, data + random.numel());
    std::erase_if(values,
                  [most = most](float v) { return std::isfinite(v) && std::abs(v) > most; });
    const at::Tensor tensor = at::empty({static_cast<int64_t>(values.size())});
    std::copy(values.begin(), values.end(), tensor.mutable_data_ptr<float>());
    std::vector<uint16_t> converted(values.size());
    ASSERT_TRUE(
        modelfolder::ConvertFloats(values.data(), values.size(), dtype, converted.data()).ok());
    const auto expected = ByTorch(tensor, type);
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(converted[i], expected[i]) << values[i] << " as " << safetensors::Name(dtype);
    }
  }
  const float nan = std::numeric_limits<float>::quiet_NaN();
  uint16_t bits = 0;
  ASSERT_TRUE(modelfolder::ConvertFloats(&nan, 1, DType::kF16, &bits).ok());
  EXPECT_EQ(bits & 0x7c00, 0x7c00);
  EXPECT_NE(bits & 0x03ff, 0);
}

TEST(ConvertFloats, ANumberThatIsTooLargeIsRefused) {
  uint16_t bits = 0;
  const float large = 65520;
  EXPECT_THAT(std::string(modelfolder::ConvertFloats(&large, 1, DType::kF16, &bits).message()),
              HasSubstr("the number 65520 is too large for float16"));
  const float largest = std::numeric_limits<float>::max();
  EXPECT_TRUE(absl::IsOutOfRange(modelfolder::ConvertFloats(&largest, 1, DType::kBF16, &bits)));
}

// A state with a parameter in slices, a parameter that all ranks have, and a count.
State WeightsOf(int rank, float first) {
  StateBuilder builder(3);
  builder.AddReplicated("param", "bias", at::full({3}, 1.5f));
  builder.AddReplicated("buffer", "count", at::full({}, int64_t{1} << 40, at::kLong));
  std::vector<StateBuilder::Part> parts;
  for (int r = 0; r < 3; ++r) parts.push_back({r, kElements * r / 3, kElements * (r + 1) / 3});
  builder.AddSharded({"param", "weight", {kElements}}, parts);
  builder.Hold(parts[rank].begin,
               at::arange(parts[rank].begin, parts[rank].end, at::kFloat) + first);
  return builder.Build();
}

ModelRecords Records() {
  return {.optimizer = {},
          .parameters = {{"weight", {kElements}, "F32", true, true, 0},
                         {"bias", {3}, "F32", true, true, 0}},
          .config = R"({"model_type": "gpt2", "dtype": "float32"})",
          .first_weights = ""};
}

class ModelFolderTest : public JointTest {
 protected:
  absl::StatusOr<std::unique_ptr<JointOutput>> Output(int rank) override {
    ModelFolderOptions options = options_;
    options.temporary = Temporary(rank, ".model.tmp");
    return ModelFolderOutput(options, StateOf(rank), records_, &contents_[rank]);
  }
  State StateOf(int rank) override { return WeightsOf(rank, first_); }
  bool NothingElseIsLeft() const { return NothingIsLeftBut(options_.path); }

  float first_ = 0;
  ModelFolderOptions options_{
      .path = dir_.Path("model"), .temporary = "", .metadata = {{"format", "pt"}}};
  ModelRecords records_ = Records();
  std::map<int, ModelFolderContents> contents_ = {{0, {}}, {1, {}}, {2, {}}};
};

TEST_F(ModelFolderTest, TheRanksPartsAreTheModel) {
  const auto outcomes = Run();
  ASSERT_TRUE(outcomes[0].status.ok()) << outcomes[0].status;
  EXPECT_THAT(contents_[0].files, ElementsAre("model.safetensors", "config.json"));
  EXPECT_TRUE(contents_[0].notes.empty());
  const auto file = safetensors::File::Open(options_.path + "/model.safetensors");
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(outcomes[0].bytes, fs::file_size(options_.path + "/model.safetensors"));
  const auto* weight = reinterpret_cast<const float*>(file->data(*file->Find("weight")));
  for (int64_t i = 0; i < kElements; ++i) EXPECT_EQ(weight[i], static_cast<float>(i));
  const auto* bias = reinterpret_cast<const float*>(file->data(*file->Find("bias")));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(bias[i], 1.5f);
  EXPECT_EQ(*reinterpret_cast<const int64_t*>(file->data(*file->Find("count"))), int64_t{1} << 40);
  EXPECT_TRUE(NothingElseIsLeft());
}

TEST_F(ModelFolderTest, ShardsInANarrowTypeAndRanksThatDoNotSeeTheFolder) {
  options_.dtype = DType::kBF16;
  options_.max_shard_bytes = 20;
  elsewhere_ = {1};
  const auto outcomes = Run();
  ASSERT_TRUE(outcomes[0].status.ok()) << outcomes[0].status;
  EXPECT_THAT(contents_[0].files,
              ElementsAre("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
                          "model.safetensors.index.json", "config.json"));
  EXPECT_THAT(*files::ReadFile(options_.path + "/config.json"), HasSubstr("bfloat16"));
  const auto file = safetensors::File::Open(options_.path + "/model-00001-of-00002.safetensors");
  ASSERT_TRUE(file.ok()) << file.status();
  const auto* weight = reinterpret_cast<const uint16_t*>(file->data(*file->Find("weight")));
  const auto expected = ByTorch(at::arange(kElements, at::kFloat), at::kBFloat16);
  for (int64_t i = 0; i < kElements; ++i) EXPECT_EQ(weight[i], expected[i]) << i;
}

TEST_F(ModelFolderTest, ANumberThatIsTooLargeForTheTypeIsNamedAndNothingIsLeft) {
  options_.dtype = DType::kF16;
  first_ = 65500;
  EXPECT_THAT(Error(Run()), HasSubstr("rank 0: param/weight: the number 65520 is too large"));
  EXPECT_FALSE(fs::exists(options_.path));
  EXPECT_TRUE(NothingElseIsLeft());
}

TEST_F(ModelFolderTest, EveryFailureOfTheDiskLeavesTheOldFolderOrTheNewOne) {
  ASSERT_TRUE(Run()[0].status.ok());
  const std::string old = *files::ReadFile(options_.path + "/model.safetensors");
  options_.overwrite = true;
  first_ = 1;
  int failures = 0;
  for (int at = 1;; ++at) {
    FailingDisk disk(at);
    const auto outcomes = Run(disk);
    EXPECT_TRUE(NothingElseIsLeft()) << at;
    if (disk.calls() < at) {
      EXPECT_TRUE(outcomes[0].status.ok()) << outcomes[0].status;
      break;
    }
    ++failures;
    EXPECT_FALSE(outcomes[0].status.ok()) << at;
    if (*files::ReadFile(options_.path + "/model.safetensors") != old) {
      EXPECT_EQ(Error(outcomes), dir_.path() + ": fsync") << "only when it had its name";
      break;
    }
  }
  EXPECT_GE(failures, 12) << "writes and syncs of the ranks, of config.json, of the folder, the "
                             "exchange and the sync of the folder above";
}

TEST_F(ModelFolderTest, AKillBeforeAnyWriteOrSyncLeavesTheOldFolderOrTheNewOne) {
  ASSERT_TRUE(Run()[0].status.ok());
  const std::string old = *files::ReadFile(options_.path + "/model.safetensors");
  options_.overwrite = true;
  first_ = 1;
  int kills = 0;
  bool killed = true;
  for (int at = 1; killed; ++at) {
    killed = Killed(at);
    kills += killed;
    const auto file = safetensors::File::Open(options_.path + "/model.safetensors");
    ASSERT_TRUE(file.ok()) << file.status();
    const auto* weight = reinterpret_cast<const float*>(file->data(*file->Find("weight")));
    const bool is_old = *files::ReadFile(options_.path + "/model.safetensors") == old;
    for (int64_t i = 0; i < kElements; ++i) ASSERT_EQ(weight[i], i + (is_old ? 0 : 1));
    EXPECT_TRUE(fs::exists(options_.path + "/config.json"));
    EXPECT_EQ(is_old, killed && at < kills + 1 && is_old);
    // The next generation removes this leftover (common/exports).
    fs::remove_all(dir_.Path(".model.tmp"));
    EXPECT_TRUE(NothingElseIsLeft()) << at;
  }
  EXPECT_GE(kills, 12);
  EXPECT_NE(*files::ReadFile(options_.path + "/model.safetensors"), old);
}

class WeightsFileTest : public JointTest {
 protected:
  absl::StatusOr<std::unique_ptr<JointOutput>> Output(int rank) override {
    WeightsFileOptions options = options_;
    options.temporary = Temporary(rank, ".weights.tmp");
    return WeightsFileOutput(options, StateOf(rank), Records());
  }
  State StateOf(int rank) override { return WeightsOf(rank, first_); }

  float first_ = 0;
  WeightsFileOptions options_{.path = dir_.Path("model.safetensors"),
                              .temporary = "",
                              .job_name = "mine",
                              .metadata = {{"muster_job_name", "mine"}}};
};

TEST_F(WeightsFileTest, ReplacesOnlyWhatAJobOfTheSameNameWrote) {
  ASSERT_TRUE(Run()[0].status.ok());
  first_ = 1;
  ASSERT_TRUE(Run()[0].status.ok());
  const auto file = safetensors::File::Open(options_.path);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(*reinterpret_cast<const float*>(file->data(*file->Find("weight"))), 1.0f);
  EXPECT_EQ(file->header().entries.size(), 3);
  EXPECT_TRUE(fs::exists(dir_.Path("config.json")));
  options_.job_name = "another";
  EXPECT_TRUE(absl::IsFailedPrecondition(Run()[0].status));
}

TEST_F(WeightsFileTest, AConfigOfSomebodyElseIsNotReplaced) {
  ASSERT_TRUE(files::WriteAtomically(dir_.Path("config.json"), "theirs").ok());
  options_.overwrite = true;
  EXPECT_TRUE(absl::IsFailedPrecondition(Run()[0].status));
  EXPECT_FALSE(fs::exists(options_.path));
  EXPECT_EQ(*files::ReadFile(dir_.Path("config.json")), "theirs");
}

}  // namespace
}  // namespace muster::checkpoint
