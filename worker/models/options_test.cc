#include "worker/models/options.h"

#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace muster::models {
namespace {

TEST(OptionReaderTest, ReadsValuesAndDefaults) {
  const auto json = nlohmann::json::parse(R"({"a": 3, "list": [1, 2], "p": 0.5, "x": 1e5, "flag": true})");
  OptionReader reader("toy", json);
  EXPECT_EQ(reader.Size("a"), 3);
  EXPECT_EQ(reader.Size("b", 7), 7);
  EXPECT_EQ(reader.Sizes("list"), (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(reader.Probability("p", 0), 0.5);
  EXPECT_EQ(reader.Positive("x", 1), 1e5);
  EXPECT_EQ(reader.Positive("y", 2), 2);
  EXPECT_TRUE(reader.Flag("flag", false));
  EXPECT_TRUE(reader.Finish().ok());
}

TEST(OptionReaderTest, AllProblemsAreReportedAtOnceAndCapped) {
  const auto json =
      nlohmann::json::parse(R"({"a": 0, "p": 1, "flag": 1, "hidden": "x", "wdth": 1})");
  OptionReader reader("toy", json);
  reader.Size("a");
  reader.Probability("p", 0);
  reader.Flag("flag", false);
  reader.Sizes("hidden");
  const absl::Status status = reader.Finish();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(std::string(status.message()),
            "model toy: a: expected an integer from 1 on, found 0; p: expected a number in [0, 1), "
            "found 1; flag: expected true or false, found 1; and 2 more");
}

TEST(OptionReaderTest, NumbersThatAreNotAbove0AreRefused) {
  for (const char* bad : {"0", "-1", "\"1\"", "null"}) {
    const auto json = nlohmann::json::parse(absl::StrCat("{\"x\": ", bad, "}"));
    OptionReader reader("toy", json);
    EXPECT_EQ(reader.Positive("x", 3), 3);
    EXPECT_EQ(std::string(reader.Finish().message()),
              absl::StrCat("model toy: x: expected a number above 0, found ", bad));
  }
}

TEST(OptionReaderTest, ReadsTexts) {
  const auto json = nlohmann::json::parse(R"({"path": "/x", "of": {"a": "1", "b": ""}})");
  OptionReader reader("toy", json);
  EXPECT_TRUE(reader.Has("path"));
  EXPECT_FALSE(reader.Has("size"));
  EXPECT_EQ(reader.Text("path"), "/x");
  EXPECT_EQ(reader.Texts("of"), (std::map<std::string, std::string>{{"a", "1"}, {"b", ""}}));
  EXPECT_TRUE(reader.Texts("none").empty());
  EXPECT_TRUE(reader.Finish().ok());
}

TEST(OptionReaderTest, WhatIsNoTextIsRefused) {
  const auto json = nlohmann::json::parse(R"({"path": "", "of": {"a": 1}, "pth": 2})");
  OptionReader reader("toy", json);
  reader.Has("path");
  reader.Text("path");
  reader.Texts("of");
  EXPECT_EQ(std::string(reader.Finish().message()),
            "model toy: path: expected a text, found \"\"; of: expected an object of texts, found "
            "{\"a\":1}; pth: unknown option, allowed are path, of");
}

TEST(OptionReaderTest, UnknownKeyNamesTheAllowedOnes) {
  const auto json = nlohmann::json::parse(R"({"wdth": 1, "width": 4})");
  OptionReader reader("toy", json);
  reader.Size("width");
  reader.Flag("tied", true);
  EXPECT_EQ(std::string(reader.Finish().message()),
            "model toy: wdth: unknown option, allowed are width, tied");
}

TEST(OptionReaderTest, MissingRequiredOptionAndNonObjectAreErrors) {
  const nlohmann::json nothing;
  OptionReader reader("toy", nothing);
  reader.Size("width");
  EXPECT_EQ(std::string(reader.Finish().message()),
            "model toy: width: expected an integer from 1 on, found nothing");
  const nlohmann::json list = nlohmann::json::array();
  OptionReader bad("toy", list);
  EXPECT_EQ(std::string(bad.Finish().message()),
            "model toy: expected an object of options, found []");
}

}  // namespace
}  // namespace muster::models
