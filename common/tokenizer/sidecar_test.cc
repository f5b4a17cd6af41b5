#include "common/tokenizer/sidecar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/files/files.h"
#include "common/files/temp_dir.h"

namespace muster::tokenizer {
namespace {

using ::testing::HasSubstr;

constexpr char kText[] =
    R"({"format": "muster-tokens", "tokens": 40, "dtype": "uint16", "vocab_size": 300,
        "tokenizer": {"path": "/t/tokenizer.json", "xxh3_128": "0a0b"}})";

class SidecarTest : public ::testing::Test {
 protected:
  absl::StatusOr<std::optional<Sidecar>> Read(const std::string& text) {
    EXPECT_TRUE(files::WriteAtomically(folder_.Path("train.bin.tokenizer.json"), text).ok());
    return ReadSidecar(folder_.Path("train.bin"));
  }

  files::TempDir folder_;
};

TEST_F(SidecarTest, SaysWhichTokenizerMadeTheTokens) {
  const auto sidecar = Read(kText);
  ASSERT_TRUE(sidecar.ok() && sidecar->has_value()) << sidecar.status();
  EXPECT_EQ((*sidecar)->tokenizer, (Source{"/t/tokenizer.json", "0a0b"}));
  EXPECT_TRUE(CheckSidecar(**sidecar, "train.bin", "uint16", 40, 300).ok());
  EXPECT_TRUE(CheckSidecar(**sidecar, "train.bin", "uint16", 40, 301).ok());
}

TEST_F(SidecarTest, TokensWithoutOneAreOfAnUnknownTokenizer) {
  const auto sidecar = ReadSidecar(folder_.Path("train.bin"));
  ASSERT_TRUE(sidecar.ok()) << sidecar.status();
  EXPECT_FALSE(sidecar->has_value());
}

TEST_F(SidecarTest, AnotherTypeLengthOrVocabularyIsRefusedByName) {
  const auto sidecar = Read(kText);
  ASSERT_TRUE(sidecar.ok()) << sidecar.status();
  const auto message = [&](const std::string& dtype, int64_t tokens, int64_t vocabulary) {
    const absl::Status status = CheckSidecar(**sidecar, "a.bin", dtype, tokens, vocabulary);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_THAT(message("uint32", 40, 300), HasSubstr("a.bin: dtype: expected uint16"));
  EXPECT_THAT(message("uint16", 39, 300), HasSubstr("number of tokens: expected 40"));
  EXPECT_THAT(message("uint16", 40, 299), HasSubstr("expected at least 300"));
}

TEST_F(SidecarTest, WhatDescribesNoTokensIsRefused) {
  for (const char* text :
       {"", "[]", "{}", R"({"format": "other"})", R"({"format": "muster-tokens"})",
        R"({"format": "muster-tokens", "tokens": "40", "dtype": "uint16", "vocab_size": 300,
            "tokenizer": {"path": "/t", "xxh3_128": "0a"}})",
        R"({"format": "muster-tokens", "tokens": 40, "dtype": "uint16", "vocab_size": 300,
            "tokenizer": {"path": "", "xxh3_128": "0a"}})"}) {
    EXPECT_EQ(Read(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

TEST_F(SidecarTest, TwoTokenizersAreRefusedIfTheirContentsDiffer) {
  const Source a{"/a", "01"};
  EXPECT_TRUE(CheckSameTokenizer(a, "one", {"/b", "01"}, "other").ok());
  EXPECT_TRUE(CheckSameTokenizer(a, "one", {}, "other").ok());
  EXPECT_TRUE(CheckSameTokenizer({}, "one", a, "other").ok());
  const absl::Status status = CheckSameTokenizer(a, "data.train", {"/b", "02"}, "data.test");
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("data.train with /a"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("data.test with /b"));
}

}  // namespace
}  // namespace muster::tokenizer
