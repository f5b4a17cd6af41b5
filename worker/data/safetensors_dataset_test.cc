#include "worker/data/safetensors_dataset.h"

#include <cmath>
#include <string>
#include <tuple>
#include <vector>

#include "ATen/core/Tensor.h"
#include "ATen/ops/zeros.h"
#include "common/files/files.h"
#include "common/files/temp_dir.h"
#include "common/safetensors/safetensors.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::data {
namespace {

using safetensors::DType;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

constexpr InputSpec kSpec{.kind = InputSpec::Kind::kRows, .row_elements = 4, .classes = 3};

class SafetensorsDatasetTest : public ::testing::Test {
 protected:
  // Writes rows [first, first + n) of four numbers each, shaped `row`; labels row % 3.
  std::string Rows(const std::string& name, int64_t first, int64_t n,
                   std::vector<int64_t> row = {2, 2}, int64_t label_offset = 0) {
    std::vector<float> inputs;
    std::vector<int64_t> labels;
    for (int64_t i = first; i < first + n; ++i) {
      for (int j = 0; j < 4; ++j) inputs.push_back(10 * i + j);
      labels.push_back(i % 3 + label_offset);
    }
    std::vector<int64_t> shape = {n};
    shape.insert(shape.end(), row.begin(), row.end());
    const auto plan =
        safetensors::Plan({{"inputs", DType::kF32, shape}, {"labels", DType::kI64, {n}}}, {});
    std::string file = plan->prefix;
    file.append(reinterpret_cast<const char*>(inputs.data()), inputs.size() * 4);
    file.append(reinterpret_cast<const char*>(labels.data()), labels.size() * 8);
    EXPECT_TRUE(files::WriteAtomically(dir_.Path(name), file).ok());
    return dir_.Path(name);
  }

  // The error of opening or, after success, of Check.
  static std::string ErrorOf(const std::vector<std::string>& paths, const InputSpec& spec = kSpec) {
    const auto dataset = OpenSafetensors(paths, spec);
    const absl::Status status = dataset.ok() ? (*dataset)->Check({}) : dataset.status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    return std::string(status.message());
  }

  files::TempDir dir_;
};

TEST_F(SafetensorsDatasetTest, RowsOfSeveralFilesFollowOneAnother) {
  const auto dataset = OpenSafetensors({Rows("a", 0, 2), Rows("b", 2, 3)}, kSpec);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->size(), 5);
  const std::vector<int64_t> samples = {4, 1};
  const auto batch = (*dataset)->Read(samples);
  ASSERT_TRUE(batch.ok());
  EXPECT_EQ(batch->inputs.sizes(), (at::IntArrayRef{2, 2, 2}));
  EXPECT_EQ(batch->inputs[0][1][1].item<float>(), 43);
  EXPECT_EQ(batch->inputs[1][0][0].item<float>(), 10);
  EXPECT_EQ(batch->targets[0].item<int64_t>(), 1);
  const std::vector<int64_t> outside = {5};
  EXPECT_EQ((*dataset)->Read(outside).status().code(), absl::StatusCode::kOutOfRange);
}

TEST_F(SafetensorsDatasetTest, DataThatDoNotFitAreRefusedWithExpectedAndFound) {
  EXPECT_THAT(
      ErrorOf({Rows("a", 0, 2)}, {.kind = InputSpec::Kind::kRows, .row_elements = 5, .classes = 3}),
      HasSubstr("inputs: expected [N, ...] with 5 numbers per row, found [2, 2, 2]"));
  EXPECT_THAT(ErrorOf({Rows("a", 0, 2), Rows("b", 0, 2, {4})}),
              HasSubstr("expected rows of [2, 2]"));
  EXPECT_THAT(
      ErrorOf({Rows("a", 0, 2, {2, 2}, 2)}),
      ContainsRegex("labels: row 1, byte offset [0-9]+: expected a class in \\[0, 3\\), found 3"));
  EXPECT_THAT(ErrorOf({Rows("a", 0, 0)}), HasSubstr("expected a row, found none"));
  EXPECT_THAT(ErrorOf({}), HasSubstr("at least one path"));
  EXPECT_THAT(ErrorOf({Rows("a", 0, 1)}, {.kind = InputSpec::Kind::kTokens}),
              HasSubstr("takes tokens"));
}

TEST_F(SafetensorsDatasetTest, EachPartIsCheckedByItself) {
  // The labels are 0, 1, 2 in the first file and 1, 2, 3 in the second file, where the last label
  // is wrong.
  const auto dataset = OpenSafetensors({Rows("a", 0, 3), Rows("b", 0, 3, {2, 2}, 1)}, kSpec);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  for (const int64_t index : {0, 1}) EXPECT_TRUE((*dataset)->Check({index, 3}).ok()) << index;
  const absl::Status last = (*dataset)->Check({2, 3});
  EXPECT_EQ(last.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(last.message()), HasSubstr(dir_.Path("b") + ": labels: row 2, "));
}

TEST_F(SafetensorsDatasetTest, TheIgnoredLabelIsAllowed) {
  InputSpec ignoring = kSpec;
  ignoring.ignored = -1;
  const auto dataset = OpenSafetensors({Rows("a", 0, 2, {2, 2}, -1)}, ignoring);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_TRUE((*dataset)->Check({}).ok());
  const std::vector<int64_t> samples = {0};
  EXPECT_EQ((*dataset)->Read(samples)->targets[0].item<int64_t>(), -1);
  EXPECT_THAT(ErrorOf({Rows("a", 0, 2, {2, 2}, -2)}, ignoring), HasSubstr("found -2"));
  EXPECT_THAT(ErrorOf({Rows("a", 0, 2, {2, 2}, -1)}), HasSubstr("found -1"));
}

TEST_F(SafetensorsDatasetTest, TargetsMayBeNumbersAndBadOnesAreLocated) {
  const auto plan =
      safetensors::Plan({{"inputs", DType::kF32, {2, 4}}, {"labels", DType::kF32, {2, 1}}}, {});
  const std::vector<float> numbers = {0, 1, 2, 3, 4, 5, 6, 7, 0.5, -NAN};
  ASSERT_TRUE(files::WriteAtomically(
                  dir_.Path("a"),
                  plan->prefix + std::string(reinterpret_cast<const char*>(numbers.data()), 40))
                  .ok());
  InputSpec spec = kSpec;
  spec.target_numbers = 1;
  const auto dataset = OpenSafetensors({dir_.Path("a")}, spec);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  const std::vector<int64_t> samples = {0};
  EXPECT_EQ((*dataset)->Read(samples)->targets[0][0].item<float>(), 0.5);
  const std::vector<int64_t> bad = {1};
  const absl::Status status = (*dataset)->Read(bad).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr(dir_.Path("a") + ": labels: row 1, byte offset " +
                        std::to_string(plan->prefix.size() + 36) + ": expected finite numbers"));
  spec.target_numbers = 2;
  EXPECT_THAT(
      ErrorOf({dir_.Path("a")}, spec),
      HasSubstr("labels: expected float32 [2, 2] (numbers, one row for each row of inputs), "
                "found float32 [2, 1]"));
}

TEST_F(SafetensorsDatasetTest, OtherTypesAreRefused) {
  for (const auto& [name, inputs, labels] :
       std::vector<std::tuple<std::string, DType, DType>>{{"inputs", DType::kI64, DType::kI64},
                                                          {"inputs", DType::kU8, DType::kI64},
                                                          {"labels", DType::kF32, DType::kF64},
                                                          {"labels", DType::kF32, DType::kU64}}) {
    const auto plan = safetensors::Plan({{"inputs", inputs, {1, 4}}, {"labels", labels, {1}}}, {});
    const size_t bytes = 4 * safetensors::ElementSize(inputs) + safetensors::ElementSize(labels);
    ASSERT_TRUE(
        files::WriteAtomically(dir_.Path("a"), plan->prefix + std::string(bytes, '\0')).ok());
    EXPECT_THAT(ErrorOf({dir_.Path("a")}), HasSubstr(dir_.Path("a") + ": " + name + ": expected "));
  }
}

TEST_F(SafetensorsDatasetTest, OtherFloatsAndWholeNumbersAreConvertedAndNoted) {
  const auto plan =
      safetensors::Plan({{"inputs", DType::kBF16, {1, 4}}, {"labels", DType::kI32, {1}}}, {});
  std::string data = plan->entries[0].name == "inputs" ? "" : std::string("\x02\0\0\0", 4);
  for (int i = 0; i < 4; ++i) data += std::string("\x20\xc0", 2);  // -2.5
  if (data.size() == 8) data += std::string("\x02\0\0\0", 4);
  ASSERT_TRUE(files::WriteAtomically(dir_.Path("a"), plan->prefix + data).ok());
  const auto dataset = OpenSafetensors({dir_.Path("a")}, kSpec);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  const std::vector<int64_t> samples = {0};
  const auto batch = (*dataset)->Read(samples);
  EXPECT_EQ(batch->inputs[0][3].item<float>(), -2.5f);
  EXPECT_EQ(batch->targets[0].item<int64_t>(), 2);
  ASSERT_EQ((*dataset)->notes().size(), 2u);
  EXPECT_THAT((*dataset)->notes()[0].text, HasSubstr("inputs: bfloat16 is read as float32"));
}

TEST_F(SafetensorsDatasetTest, MissingKeyAndBrokenFileAreRefused) {
  const auto plan = safetensors::Plan({{"inputs", DType::kF32, {1, 4}}}, {});
  ASSERT_TRUE(files::WriteAtomically(dir_.Path("a"), plan->prefix + std::string(16, '\0')).ok());
  EXPECT_THAT(ErrorOf({dir_.Path("a")}), HasSubstr("found no 'labels'"));
  ASSERT_TRUE(files::WriteAtomically(dir_.Path("a"), "junk").ok());
  EXPECT_EQ(OpenSafetensors({dir_.Path("a")}, kSpec).status().code(), absl::StatusCode::kDataLoss);
}

TEST_F(SafetensorsDatasetTest, WithoutLabelsInputsAloneAreEnough) {
  const auto plan = safetensors::Plan({{"inputs", DType::kF32, {1, 4}}}, {});
  const std::vector<float> inputs = {5, 6, 7, 8};
  const std::string file =
      plan->prefix + std::string(reinterpret_cast<const char*>(inputs.data()), 16);
  ASSERT_TRUE(files::WriteAtomically(dir_.Path("plain"), file).ok());
  EXPECT_THAT(ErrorOf({dir_.Path("plain")}), HasSubstr("found no 'labels'"));
  // Existing labels need not even be classes of the model.
  const auto dataset =
      OpenSafetensors({dir_.Path("plain"), Rows("labelled", 0, 2, {4}, /*label_offset=*/9)}, kSpec,
                      Emptiness::kRefused, Labels::kIgnored);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_TRUE((*dataset)->Check({}).ok());
  const std::vector<int64_t> samples = {0, 2};
  const auto batch = (*dataset)->Read(samples);
  ASSERT_TRUE(batch.ok()) << batch.status();
  EXPECT_EQ(batch->inputs[0][3].item<float>(), 8);
  EXPECT_EQ(batch->inputs[1][0].item<float>(), 10);
  EXPECT_TRUE(batch->targets.equal(at::zeros({2}, at::kLong)));
}

}  // namespace
}  // namespace muster::data
