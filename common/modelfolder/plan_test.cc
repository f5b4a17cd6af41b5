#include "common/modelfolder/plan.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "common/safetensors/safetensors.h"
#include "nlohmann/json.hpp"

namespace muster::modelfolder {
namespace {

using safetensors::DType;

const std::vector<Tensor> kTensors = {
    {"a", {10, 10}}, {"b", {50}}, {"count", {}, DType::kI64}, {"c", {3, 100}}, {"d", {1}}};

// The files as a reader sees them. Every byte of tensor i has the value i.
std::map<std::string, std::string> Contents(const std::vector<Tensor>& tensors,
                                            const FolderPlan& plan) {
  std::map<std::string, std::string> contents;
  for (const PlannedFile& file : plan.files) {
    contents[file.name] = file.prefix;
    contents[file.name].resize(file.size, '?');
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    uint64_t bytes = safetensors::ElementSize(plan.places[i].dtype);
    for (const int64_t size : tensors[i].shape) bytes *= size;
    contents[plan.files[plan.places[i].file].name].replace(plan.places[i].offset, bytes, bytes,
                                                           static_cast<char>(i));
  }
  return contents;
}

TEST(PlanFolder, ASmallModelIsOneFileThatAReaderAccepts) {
  const auto plan = PlanFolder(kTensors, {.metadata = {{"format", "pt"}}});
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_EQ(plan->files.size(), 1);
  EXPECT_EQ(plan->files[0].name, "model.safetensors");
  EXPECT_EQ(plan->index, "");
  const std::string bytes = Contents(kTensors, *plan)["model.safetensors"];
  const auto header = safetensors::ParseHeader(reinterpret_cast<const uint8_t*>(bytes.data()),
                                               bytes.size(), "model.safetensors");
  ASSERT_TRUE(header.ok()) << header.status();
  EXPECT_EQ(header->metadata, (safetensors::Metadata{{"format", "pt"}}));
  // The wide tensor is first.
  std::vector<std::string> names;
  for (const auto& entry : header->entries) names.push_back(entry.name);
  EXPECT_EQ(names, (std::vector<std::string>{"count", "a", "b", "c", "d"}));
  for (size_t i = 0; i < kTensors.size(); ++i) {
    for (const auto& entry : header->entries) {
      if (entry.name != kTensors[i].name) continue;
      EXPECT_EQ(entry.shape, kTensors[i].shape);
      EXPECT_EQ(bytes.substr(header->data_offset + entry.begin, entry.bytes()),
                std::string(entry.bytes(), static_cast<char>(i)));
    }
  }
}

TEST(PlanFolder, ALargeModelIsDividedAndAnIndexNamesTheFileOfEachTensor) {
  // In bfloat16: 200, 100, 8 (I64), 600 and 2 bytes.
  const auto plan = PlanFolder(kTensors, {.dtype = DType::kBF16, .max_shard_bytes = 310});
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_EQ(plan->files.size(), 3);
  EXPECT_EQ(plan->files[1].name, "model-00002-of-00003.safetensors");
  const auto index = nlohmann::json::parse(plan->index);
  EXPECT_EQ(index["metadata"]["total_size"], 910);
  const nlohmann::json expected = {{"a", "model-00001-of-00003.safetensors"},
                                   {"b", "model-00001-of-00003.safetensors"},
                                   {"count", "model-00001-of-00003.safetensors"},
                                   {"c", "model-00002-of-00003.safetensors"},
                                   {"d", "model-00003-of-00003.safetensors"}};
  EXPECT_EQ(index["weight_map"], expected);
  for (const auto& [name, bytes] : Contents(kTensors, *plan)) {
    const auto header = safetensors::ParseHeader(reinterpret_cast<const uint8_t*>(bytes.data()),
                                                 bytes.size(), name);
    ASSERT_TRUE(header.ok()) << header.status();
    for (const auto& entry : header->entries) {
      EXPECT_EQ(entry.dtype, entry.name == "count" ? DType::kI64 : DType::kBF16);
    }
  }
}

TEST(PlanFolder, ATensorThatIsLargerThanAFileMayBeHasOneOfItsOwn) {
  const auto plan = PlanFolder(kTensors, {.max_shard_bytes = 1});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->files.size(), kTensors.size());
}

TEST(PlanFolder, ANameThatAppearsTwiceAndAnotherTypeAreRefused) {
  EXPECT_EQ(PlanFolder({{"a", {1}}, {"a", {2}}}, {}).status().message(),
            "the model has two tensors with the name 'a'");
  EXPECT_EQ(PlanFolder({{"a", {1}, DType::kU8}}, {}).status().message(),
            "tensor 'a': expected F32 or I64, found U8");
}

}  // namespace
}  // namespace muster::modelfolder
