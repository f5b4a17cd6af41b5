#include "common/jobspec/prompts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "common/files/files.h"
#include "common/files/temp_dir.h"

namespace muster::jobspec {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Prompts, ListsOfTokenIdsAndTextsAreRead) {
  const auto prompts = ParsePrompts(" [[1, 4294967295],\n[], \"Once\", [0]] ");
  ASSERT_TRUE(prompts.ok()) << prompts.status();
  using Ids = std::vector<int64_t>;
  EXPECT_THAT(*prompts, ElementsAre(Ids{1, 4294967295}, Ids{}, std::string("Once"), Ids{0}));
}

TEST(Prompts, ATextNeedsATokenizer) {
  v1::ModelSpec model;
  model.mutable_gpt2()->set_vocab_size(300);
  model.mutable_gpt2()->set_context(8);
  v1::GenerateSpec generate;
  generate.set_max_tokens(4);
  const auto check = [&](const std::string& text) {
    return std::string(CheckPrompts({text}, model, generate).message());
  };
  EXPECT_THAT(check("abc"), HasSubstr("prompts[0]: is a text; allowed: with model.tokenizer"));
  model.set_tokenizer(v1::ModelSpec::BYTES);
  EXPECT_EQ(check("abcd"), "");
  EXPECT_THAT(check("abcde"), HasSubstr("prompts[0]: found 5 tokens and 4 new ones"));
  EXPECT_THAT(check(""), HasSubstr("prompts[0]: is empty"));
  // Only the workers know the tokenizer of a folder.
  model.set_hf("/folder");
  EXPECT_EQ(check("abcde"), "");
}

TEST(Prompts, AnErrorSaysWhere) {
  const std::pair<const char*, const char*> cases[] = {
      {"[[1, 2]", "not valid JSON"},
      {"", "not valid JSON"},
      {R"({"prompts": [[1]]})",
       "expected a list of lists of token ids, such as [[1, 2], [3]], or of texts, "
       "found a mapping"},
      {"[1, 2]",
       "prompts[0]: expected a list of lists of token ids, such as [[1, 2], [3]], or of texts, "
       "found 1"},
      {"[[1], [2, -1]]", "prompts[1]: token 1: expected a token id, found -1"},
      {"[[1.5]]", "prompts[0]: token 0: expected a token id, found 1.5"},
      {"[[4294967296]]", "found 4294967296"},
      {R"([["a"]])", "found \"a\""},
      {"[[[1]]]", "found a list"},
  };
  for (const auto& [text, message] : cases) {
    const auto prompts = ParsePrompts(text);
    EXPECT_EQ(prompts.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(prompts.status().message()), HasSubstr(message)) << text;
  }
}

TEST(Prompts, AnErrorNamesTheFile) {
  files::TempDir folder;
  EXPECT_EQ(ReadPrompts(folder.Path("none")).status().code(), absl::StatusCode::kNotFound);
  ASSERT_TRUE(files::WriteAtomically(folder.Path("good"), "[[7]]").ok());
  EXPECT_EQ(ReadPrompts(folder.Path("good"))->size(), 1u);
  ASSERT_TRUE(files::WriteAtomically(folder.Path("bad"), "[7]").ok());
  EXPECT_THAT(std::string(ReadPrompts(folder.Path("bad")).status().message()),
              HasSubstr(folder.Path("bad") + ": prompts[0]"));
  ASSERT_TRUE(
      files::WriteAtomically(folder.Path("large"), std::string(kMostPromptBytes + 1, ' ')).ok());
  EXPECT_THAT(std::string(ReadPrompts(folder.Path("large")).status().message()),
              HasSubstr("found 16777217 bytes; allowed: at most 16777216"));
}

}  // namespace
}  // namespace muster::jobspec
