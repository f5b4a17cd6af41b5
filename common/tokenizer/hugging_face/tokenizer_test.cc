#include "common/tokenizer/hugging_face/tokenizer.h"

#include <string>
#include <utility>
#include <vector>

#include "common/tokenizer/hugging_face/pattern.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace muster::tokenizer {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Around = Tokenizer::Around;

// "ab" is a token, and "<s>" a special one.
json Small() {
  return {{"version", "1.0"},
          {"added_tokens", {{{"id", 3}, {"content", "<s>"}, {"special", true}}}},
          {"normalizer", nullptr},
          {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
          {"post_processor", nullptr},
          {"decoder", {{"type", "ByteLevel"}}},
          {"model",
           {{"type", "BPE"}, {"vocab", {{"a", 0}, {"b", 1}, {"ab", 2}}}, {"merges", {"a b"}}}}};
}

// Reads the file as it is on a disk, where a number has no sign without a -.
absl::StatusOr<Tokenizer> Parse(const json& file) {
  return Tokenizer::Read(json::parse(file.dump()));
}

Tokenizer Read(const json& file) {
  auto tokenizer = Parse(file);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return *std::move(tokenizer);
}

TEST(Tokenizer, JoinsNeighboursAndFindsAddedTokens) {
  const Tokenizer tokenizer = Read(Small());
  EXPECT_THAT(*tokenizer.Encode("aab<s>ba", Around::kAdded), ElementsAre(0, 2, 3, 1, 0));
  EXPECT_THAT(*tokenizer.Encode("", Around::kAdded), IsEmpty());
  EXPECT_EQ(tokenizer.size(), 4);
}

TEST(Tokenizer, TextsAreWithoutSpecialTokensAndUnknownIds) {
  EXPECT_EQ(Read(Small()).Decode({3, 2, 99, -1, int64_t{1} << 40, 0}), "aba");
}

TEST(Tokenizer, AddsTheTokensAroundATextOnlyWhereAskedTo) {
  json file = Small();
  file["post_processor"] = {{"type", "TemplateProcessing"},
                            {"single",
                             {{{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}},
                              {{"Sequence", {{"id", "A"}, {"type_id", 0}}}},
                              {{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}}}},
                            {"pair", json::array()},
                            {"special_tokens", {{"<s>", {{"id", "<s>"}, {"ids", {3}}}}}}};
  const Tokenizer tokenizer = Read(file);
  EXPECT_THAT(*tokenizer.Encode("ab", Around::kAdded), ElementsAre(3, 2, 3));
  EXPECT_THAT(*tokenizer.Encode("ab", Around::kNone), ElementsAre(2));
}

TEST(Tokenizer, AFileOfAFormerVersionIsRead) {
  json file = Small();
  file["model"].erase("type");
  file["model"]["merges"] = {"#version: 0.2", "a b"};
  file["decoder"] = nullptr;
  const Tokenizer tokenizer = Read(file);
  EXPECT_THAT(*tokenizer.Encode("ab", Around::kAdded), ElementsAre(2));
  EXPECT_EQ(tokenizer.Decode({2, 0}), "ab a");
}

TEST(Tokenizer, OfTwoRulesAboutOnePairTheLastOneCounts) {
  json file = Small();
  file["model"]["vocab"] = {{"a", 0}, {"b", 1}, {"c", 2}, {"ab", 3}, {"bc", 4}};
  file["model"]["merges"] = {"a b", "b c", "a b"};
  file["added_tokens"] = json::array();
  EXPECT_THAT(*Read(file).Encode("abc", Around::kAdded), ElementsAre(0, 4));
}

TEST(Tokenizer, APartThatIsATokenIsThisTokenIfRulesAreIgnored) {
  json file = Small();
  file["model"]["vocab"]["ba"] = 3;
  file["added_tokens"] = json::array();
  EXPECT_THAT(*Read(file).Encode("ba", Around::kAdded), ElementsAre(1, 0));
  file["model"]["ignore_merges"] = true;
  EXPECT_THAT(*Read(file).Encode("ba", Around::kAdded), ElementsAre(3));
}

TEST(Tokenizer, UnknownCharactersAreOneTokenEachUnlessTheyAreFused) {
  json file = Small();
  file["pre_tokenizer"] = nullptr;
  file["added_tokens"] = json::array();
  file["model"]["vocab"]["?"] = 3;
  file["model"]["unk_token"] = "?";
  EXPECT_THAT(*Read(file).Encode("axya", Around::kAdded), ElementsAre(0, 3, 3, 0));
  file["model"]["fuse_unk"] = true;
  EXPECT_THAT(*Read(file).Encode("axya", Around::kAdded), ElementsAre(0, 3, 0));
}

TEST(Tokenizer, ANormalizedTokenThatIsEmptyIsNotFound) {
  json file = Small();
  file["normalizer"] = {{"type", "Replace"}, {"pattern", {{"String", "x"}}}, {"content", ""}};
  file["added_tokens"] = {{{"id", 3}, {"content", "x"}, {"normalized", true}}};
  EXPECT_THAT(*Read(file).Encode(std::string("a\0x", 3), Around::kAdded), ElementsAre(0));
}

TEST(Tokenizer, ATextThatIsNotUtf8IsRefused) {
  const auto tokens = Read(Small()).Encode("ab\xff", Around::kAdded);
  EXPECT_EQ(tokens.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(tokens.status().message(), HasSubstr("found another byte at place 2"));
}

TEST(Tokenizer, AFileThatCannotBeRightIsRefusedByName) {
  const std::vector<std::pair<json, std::string>> cases = {
      {{{"model", {{"type", "Unigram"}}}}, "model: expected BPE, found \"Unigram\""},
      {{{"model", {{"vocab", 7}}}}, "model: vocab: expected an object"},
      {{{"model", {{"vocab", {{"a", -1}}}}}}, "model: vocab: -1 is not known"},
      {{{"model", {{"vocab", {{"a", 5000000000}}}}}}, "vocab: 5000000000 is not known"},
      {{{"model", {{"vocab", {{"a", 1}}}}}}, "vocab: two tokens have the id 1"},
      {{{"model", {{"merges", {"b ab"}}}}}, "'b' and 'ab' join tokens that are not in vocab"},
      {{{"model", {{"merges", {"ab"}}}}}, "merges: \"ab\" is not known"},
      {{{"model", {{"merges", 7}}}}, "merges: expected a list"},
      {{{"model", {{"dropout", 0.1}}}}, "dropout: 0.1 is not known"},
      {{{"model", {{"unk_token", "z"}}}}, "unk_token: \"z\" is not known"},
      {{{"model", {{"other", 1}}}}, "the key '\"other\"' is not known"},
      {{{"other", 1}}, "the key '\"other\"' is not known"},
      {{{"added_tokens", 7}}, "added_tokens: expected a list"},
      {{{"added_tokens", {{{"id", 9}, {"content", "x"}}}}}, "\"x\" has the id 9; expected 3, once"},
      {{{"added_tokens", {{{"id", 2}, {"content", "x"}}}}}, "\"x\" has the id 2; expected 3, once"},
      {{{"added_tokens", {{{"id", 3}, {"content", "ab"}}}}}, "has the id 3; expected 2, once"},
      {{{"added_tokens", {{{"id", 3}, {"content", "x"}, {"single_word", true}}}}}, "single_word"},
      {{{"model", {{"byte_fallback", true}}}},
       "expected a token for each byte, found none for <0x00>"},
      {{{"post_processor",
         {{"type", "TemplateProcessing"},
          {"single", {{{"SpecialToken", {{"id", "<s>"}}}}, {{"Sequence", {{"id", "A"}}}}}},
          {"special_tokens", {{"<s>", 3}}}}}},
       "post_processor: special_tokens: \"<s>\" is not known"},
      {{{"post_processor",
         {{"type", "TemplateProcessing"}, {"single", {{{"Sequence", {{"id", "B"}}}}}}}}},
       "post_processor: single"},
      {{{"added_tokens", {{{"id", "1"}, {"content", "x"}}}}}, "added_tokens: id"},
      {{{"pre_tokenizer", {{"type", "Whitespace"}}}}, "pre_tokenizer: expected ByteLevel"},
      {{{"pre_tokenizer",
         {{"type", "Split"},
          {"pattern", {{"Regex", "("}}},
          {"behavior", "Isolated"},
          {"add_prefix_space", nullptr}}}},
       "pre_tokenizer: the regular expression '(': missing closing parenthesis"},
      {{{"post_processor", {{"type", "BertProcessing"}}}}, "post_processor: expected ByteLevel"},
      {{{"decoder", {{"type", "WordPiece"}}}}, "decoder: expected ByteLevel"},
      {{{"normalizer", {{"type", "Lowercase"}}}}, "normalizer: expected NFC"},
  };
  for (const auto& [changes, said] : cases) {
    json file = Small();
    file.merge_patch(changes);
    const auto found = Parse(file);
    EXPECT_EQ(found.status().code(), absl::StatusCode::kInvalidArgument) << changes;
    EXPECT_THAT(found.status().message(), HasSubstr(said)) << changes;
  }
  EXPECT_FALSE(Tokenizer::Read(json::array()).ok());
}

TEST(Pattern, WhatCouldMeanSomethingElseIsRefused) {
  for (const char* expression :
       {R"(\w+)", R"(\h)", R"(\bx)", "[[:punct:]]", "[a&&b]", R"([^\S])", R"(\R)", "\\", R"(\K)"}) {
    EXPECT_EQ(Pattern::Compile(expression).status().code(), absl::StatusCode::kInvalidArgument)
        << expression;
  }
  for (const char* expression :
       {R"([]a]|\p{L}+|[^\s\]]|\[)", R"(\p{N}{1,3}|(?i:'s|'ll)|a++)", R"((?<=a)b(?!c)(?>d)\{)"}) {
    EXPECT_TRUE(Pattern::Compile(expression).ok()) << expression;
  }
}

TEST(Pattern, ScriptsAreThoseOfTheirOwnCharacters) {
  const auto pattern = Pattern::Compile(R"(\p{Han}+)");
  ASSERT_TRUE(pattern.ok()) << pattern.status();
  // The comma is of several scripts.
  EXPECT_EQ(pattern->FindAll("\xE4\xB8\xAD\xE3\x80\x81\xE4\xB8\xAD")->size(), 2u);
}

TEST(Pattern, ASearchThatNeverEndsIsAnError) {
  const auto pattern = Pattern::Compile("(a+)+(a+)+(a+)+c(?!d)");
  ASSERT_TRUE(pattern.ok()) << pattern.status();
  EXPECT_EQ(pattern->FindAll(std::string(200, 'a') + "cd").status().code(),
            absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace muster::tokenizer
