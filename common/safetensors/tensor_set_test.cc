#include "common/safetensors/tensor_set.h"

#include <filesystem>
#include <string>
#include <vector>

#include "common/files/files.h"
#include "common/files/temp_dir.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace muster::safetensors {
namespace {

using ::testing::HasSubstr;

std::string IndexError(const std::string& text,
                       absl::StatusCode code = absl::StatusCode::kDataLoss) {
  const auto index =
      ParseIndex(reinterpret_cast<const uint8_t*>(text.data()), text.size(), "i.json");
  EXPECT_EQ(index.status().code(), code) << text;
  return std::string(index.status().message());
}

TEST(PathOfModelTest, OneFileComesBeforeAnIndex) {
  const files::TempDir folder;
  const std::string file = folder.Path("model.safetensors"), index = file + ".index.json";
  EXPECT_EQ(PathOfModel(folder.path()), file);
  ASSERT_TRUE(files::WriteAtomically(index, "{}").ok());
  EXPECT_EQ(PathOfModel(folder.path()), index);
  ASSERT_TRUE(files::WriteAtomically(file, "").ok());
  EXPECT_EQ(PathOfModel(folder.path()), file);
}

TEST(IndexTest, WhatIsNoIndexSaysWhatWasExpectedAndFound) {
  const std::string start = "i.json: not a safetensors index: ";
  for (const char* text :
       {"", "{", "{\"weight_map\": {\"a\": \"x\"}", "model.safetensors", "{}{}"}) {
    EXPECT_EQ(IndexError(text), start + "not valid JSON");
  }
  EXPECT_EQ(IndexError("{\"weight_map\": {\"a\": \"\xff\"}}"), start + "not valid JSON");
  EXPECT_EQ(IndexError("[1]"), start + "expected an object with weight_map, found array");
  EXPECT_EQ(IndexError("{\"metadata\": {}}"),
            start + "expected an object with weight_map, found one without");
  EXPECT_EQ(IndexError("{\"weight_map\": []}"),
            start + "weight_map: expected an object from tensors to files, found array");
  EXPECT_EQ(IndexError("{\"weight_map\": {}}"),
            start + "weight_map: expected an object from tensors to files, found an empty one");
  EXPECT_EQ(IndexError("{\"weight_map\": {\"a\": 1}}"),
            start + "weight_map 'a': expected a file's name, found number");
  EXPECT_EQ(IndexError("{\"weight_map\": {\"a\": \"x\", \"a\": \"y\"}}"),
            start + "'a' appears twice");
}

TEST(IndexTest, NamesThatLeaveTheFolderAreRefused) {
  for (const char* name : {"/etc/passwd", "../x", "a/../../x", "..", "a/..", "", "a\\u0000b"}) {
    EXPECT_THAT(
        IndexError(std::string("{\"weight_map\": {\"t\": \"") + name + "\"}}",
                   absl::StatusCode::kInvalidArgument),
        HasSubstr("i.json: weight_map: expected names of files in the index's folder, found \""))
        << name;
  }
  EXPECT_EQ(
      IndexError(
          R"({"weight_map": {"a": "/1", "b": "x", "c": "/2", "d": "/1", "e": "/3", "f": "/4"}})",
          absl::StatusCode::kInvalidArgument),
      "i.json: weight_map: expected names of files in the index's folder, found \"/1\"; "
      "weight_map: expected names of files in the index's folder, found \"/2\"; weight_map: "
      "expected names of files in the index's folder, found \"/3\"; and 1 more");
  for (const std::string name : {"a..b", "sub/x", "..x", "./x"}) {
    const std::string text = "{\"weight_map\": {\"t\": \"" + name + "\"}}";
    const auto index = ParseIndex(reinterpret_cast<const uint8_t*>(text.data()), text.size(), "");
    ASSERT_TRUE(index.ok()) << index.status();
    EXPECT_EQ(index->at("t"), name);
  }
}

class TensorSetTest : public ::testing::Test {
 protected:
  // Writes a file of U8 tensors with one element each: the first letter of the tensor's name.
  void Shard(const std::string& name, const std::vector<std::string>& tensors) {
    std::vector<Entry> entries;
    std::string data;
    for (const std::string& tensor : tensors) {
      entries.push_back({tensor, DType::kU8, {1}});
      data += tensor[0];
    }
    ASSERT_TRUE(files::WriteAtomically(dir_.Path(name), Plan(entries, {})->prefix + data).ok());
  }

  std::string WriteIndex(const std::map<std::string, std::string>& weight_map) {
    const nlohmann::json json = {{"metadata", {{"total_size", 3}}}, {"weight_map", weight_map}};
    EXPECT_TRUE(files::WriteAtomically(dir_.Path("m.index.json"), json.dump()).ok());
    return dir_.Path("m.index.json");
  }

  static std::string ErrorOf(const std::string& path,
                             absl::StatusCode code = absl::StatusCode::kInvalidArgument) {
    const auto set = TensorSet::Open(path);
    EXPECT_EQ(set.status().code(), code) << set.status();
    return std::string(set.status().message());
  }

  files::TempDir dir_;
};

TEST_F(TensorSetTest, TensorsComeFromTheFilesThatTheIndexNames) {
  Shard("1.safetensors", {"c", "a"});
  Shard("2.safetensors", {"b"});
  Shard("other.safetensors", {"a", "b", "c"});
  auto opened = TensorSet::Open(
      WriteIndex({{"a", "1.safetensors"}, {"b", "2.safetensors"}, {"c", "1.safetensors"}}));
  ASSERT_TRUE(opened.ok()) << opened.status();
  const TensorSet set = *std::move(opened);
  std::string names, values;
  for (const StoredTensor& tensor : set.tensors()) {
    names += tensor.name();
    values += static_cast<char>(*tensor.data());
  }
  EXPECT_EQ(names, "cab");
  EXPECT_EQ(values, names);
  EXPECT_EQ(set.Describe(set.tensors()[2]), "'b' in 2.safetensors");
}

TEST_F(TensorSetTest, OneFileIsASetToo) {
  Shard("model.safetensors", {"a", "b"});
  const auto set = TensorSet::Open(dir_.Path("model.safetensors"));
  ASSERT_TRUE(set.ok()) << set.status();
  ASSERT_EQ(set->tensors().size(), 2u);
  EXPECT_EQ(set->Describe(set->tensors()[1]), "'b'");
  EXPECT_THAT(ErrorOf(dir_.Path("none.safetensors"), absl::StatusCode::kNotFound),
              HasSubstr("none.safetensors"));
  EXPECT_THAT(ErrorOf(dir_.Path("none.json"), absl::StatusCode::kNotFound), HasSubstr("none.json"));
}

TEST_F(TensorSetTest, LinkedFilesAreFine) {
  // A folder as in Hugging Face's cache, in which names link to files in another folder.
  files::TempDir blobs;
  Shard("1.safetensors", {"a"});
  std::filesystem::rename(dir_.Path("1.safetensors"), blobs.Path("blob"));
  std::filesystem::create_symlink(blobs.Path("blob"), dir_.Path("1.safetensors"));
  EXPECT_TRUE(TensorSet::Open(WriteIndex({{"a", "1.safetensors"}})).ok());
}

TEST_F(TensorSetTest, MissingAndBrokenFilesAreNamedTogether) {
  Shard("1.safetensors", {"a"});
  Shard("2.safetensors", {"b"});
  std::filesystem::resize_file(dir_.Path("2.safetensors"), 5);
  const std::string index = WriteIndex({{"a", "1.safetensors"},
                                        {"b", "2.safetensors"},
                                        {"c", "3.safetensors"},
                                        {"d", "1.safetensors"}});
  const std::string error = ErrorOf(index, absl::StatusCode::kDataLoss);
  EXPECT_EQ(
      error.find(index + ": " + dir_.Path("2.safetensors") + ": not a whole safetensors file"), 0u)
      << error;
  EXPECT_THAT(error, HasSubstr(dir_.Path("3.safetensors")));
  EXPECT_THAT(error, HasSubstr("'d': expected in 1.safetensors, found nowhere"));
  std::filesystem::remove(dir_.Path("2.safetensors"));
  EXPECT_THAT(ErrorOf(index, absl::StatusCode::kNotFound), HasSubstr(dir_.Path("2.safetensors")));
}

TEST_F(TensorSetTest, TensorsInOtherPlacesThanTheIndexSaysAreRefused) {
  Shard("1.safetensors", {"a", "b", "e"});
  Shard("2.safetensors", {"b", "c"});
  const std::string index = WriteIndex({{"a", "2.safetensors"},
                                        {"b", "1.safetensors"},
                                        {"c", "2.safetensors"},
                                        {"d", "2.safetensors"}});
  EXPECT_EQ(
      ErrorOf(index),
      index +
          ": 'a': expected in 2.safetensors, found in 1.safetensors; 'b': expected in "
          "1.safetensors "
          "alone, found in 1.safetensors and 2.safetensors; 'd': expected in 2.safetensors, found "
          "nowhere; and 1 more");
  EXPECT_EQ(ErrorOf(WriteIndex({{"a", "1.safetensors"}, {"b", "1.safetensors"}})),
            index + ": 'e' in 1.safetensors: expected in weight_map, found nothing");
}

}  // namespace
}  // namespace muster::safetensors
