#include "common/safetensors/safetensors.h"

#include <string>
#include <vector>

#include "common/files/files.h"
#include "common/files/temp_dir.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::safetensors {
namespace {

using ::testing::HasSubstr;

std::string WithHeader(const std::string& header, size_t data_bytes) {
  std::string file;
  for (int i = 0; i < 8; ++i) file += static_cast<char>(header.size() >> (8 * i));
  return file + header + std::string(data_bytes, '\1');
}

absl::StatusOr<Header> Parse(const std::string& file) {
  return ParseHeader(reinterpret_cast<const uint8_t*>(file.data()), file.size(), "f");
}

std::string ErrorOf(const std::string& file) {
  const auto header = Parse(file);
  EXPECT_EQ(header.status().code(), absl::StatusCode::kDataLoss);
  return std::string(header.status().message());
}

TEST(SafetensorsTest, PlannedFileParsesBack) {
  const auto plan =
      Plan({{"b", DType::kF32, {2, 3}}, {"a", DType::kI64, {}}, {"z", DType::kU8, {0}}},
           {{"format", "pt"}});
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->prefix.size() % 8, 0u);
  const auto header = Parse(plan->prefix + std::string(32, 'x'));
  ASSERT_TRUE(header.ok()) << header.status();
  EXPECT_EQ(header->metadata.at("format"), "pt");
  ASSERT_EQ(header->entries.size(), 3u);
  EXPECT_EQ(header->entries[0].name, "b");
  EXPECT_EQ(header->entries[0].shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(header->entries[1].name, "a");
  EXPECT_EQ(header->entries[1].begin, 24u);
  EXPECT_EQ(header->entries[1].dtype, DType::kI64);
  EXPECT_EQ(header->entries[2].bytes(), 0u);
}

TEST(SafetensorsTest, EveryTruncationOfAFileIsRefused) {
  const std::string file = Plan({{"a", DType::kF32, {4}}, {"b", DType::kF16, {3, 1}}}, {})->prefix +
                           std::string(22, 'x');
  ASSERT_TRUE(Parse(file).ok());
  for (size_t size = 0; size < file.size(); ++size) {
    EXPECT_EQ(Parse(file.substr(0, size)).status().code(), absl::StatusCode::kDataLoss) << size;
  }
  EXPECT_THAT(ErrorOf(file + "x"), HasSubstr("expected 22 bytes of data, found 23"));
}

TEST(SafetensorsTest, BrokenHeadersSayWhatWasExpectedAndFound) {
  EXPECT_THAT(ErrorOf("abc"), HasSubstr("f: not a whole safetensors file: expected at least 8"));
  EXPECT_THAT(ErrorOf(std::string(8, '\xff')),
              HasSubstr("at most 100000000 bytes, found a length"));
  EXPECT_THAT(ErrorOf(WithHeader("[1]", 0)), HasSubstr("start with '{'"));
  EXPECT_THAT(ErrorOf(WithHeader("{\"a\":", 0)), HasSubstr("not valid JSON"));
  EXPECT_THAT(ErrorOf(WithHeader("{\"a\":1}", 0)), HasSubstr("expected dtype, shape"));
  const std::string entry = R"({"dtype":"F32","shape":[2],"data_offsets":[0,8]})";
  EXPECT_THAT(ErrorOf(WithHeader("{\"a\":" + entry + ",\"a\":" + entry + "}", 8)),
              HasSubstr("'a' appears twice"));
  EXPECT_THAT(ErrorOf(WithHeader("{\"a\":" + entry + ",\"b\":" + entry + "}", 8)),
              HasSubstr("entry 'b': expected its data at 8, found 0"));
  EXPECT_THAT(ErrorOf(WithHeader("{\"__metadata__\":{\"a\":1}}", 0)), HasSubstr("not a string"));
}

std::string EntryError(const std::string& dtype, const std::string& shape,
                       const std::string& offsets, size_t data_bytes) {
  return ErrorOf(WithHeader("{\"a\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape +
                                ",\"data_offsets\":" + offsets + "}}",
                            data_bytes));
}

TEST(SafetensorsTest, BrokenEntriesAreRefused) {
  EXPECT_THAT(EntryError("F33", "[1]", "[0,4]", 4), HasSubstr("unknown dtype 'F33'"));
  EXPECT_THAT(EntryError("F32", "[2]", "[0,4]", 4), HasSubstr("F32 [2] takes 8 bytes, found 4"));
  EXPECT_THAT(EntryError("F32", "[-1]", "[0,4]", 4), HasSubstr("shape is not a list of sizes"));
  EXPECT_THAT(EntryError("F32", "[1.5]", "[0,4]", 4), HasSubstr("shape is not a list of sizes"));
  EXPECT_THAT(EntryError("F32", "[1]", "[4,0]", 4), HasSubstr("found [4, 0)"));
  EXPECT_THAT(EntryError("F32", "[1]", "[0,4,8]", 4), HasSubstr("not two offsets"));
  EXPECT_THAT(EntryError("F32", "[1]", "[4,8]", 8), HasSubstr("expected its data at 0, found 4"));
  EXPECT_THAT(EntryError("F32", "[4294967296, 4294967296]", "[0,4]", 4), HasSubstr("overflows"));
  EXPECT_THAT(EntryError("F32", "[1]", "[0,18446744073709551615]", 4), HasSubstr("two offsets"));
}

TEST(SafetensorsTest, PlanRefusesDuplicateAndReservedNames) {
  EXPECT_FALSE(Plan({{"a", DType::kF32, {}}, {"a", DType::kF32, {}}}, {}).ok());
  EXPECT_FALSE(Plan({{"__metadata__", DType::kF32, {}}}, {}).ok());
  EXPECT_FALSE(Plan({{"a", DType::kF32, {-1}}}, {}).ok());
  EXPECT_FALSE(Plan({{"\xff", DType::kF32, {1}}}, {}).ok());
}

TEST(SafetensorsTest, FileFindsEntriesByName) {
  files::TempDir dir;
  const auto plan = Plan({{"a", DType::kU8, {1}}, {"b", DType::kU8, {2}}}, {});
  ASSERT_TRUE(files::WriteAtomically(dir.Path("x"), plan->prefix + "ABC").ok());
  const auto file = File::Open(dir.Path("x"));
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_NE(file->Find("b"), nullptr);
  EXPECT_EQ(file->data(*file->Find("b"))[1], 'C');
  EXPECT_EQ(file->Find("c"), nullptr);
}

}  // namespace
}  // namespace muster::safetensors
