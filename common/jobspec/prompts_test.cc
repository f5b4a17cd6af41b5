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

TEST(Prompts, ListsOfTokenIdsAreRead) {
  const auto prompts = ParsePrompts(" [[1, 4294967295],\n[], [0]] ");
  ASSERT_TRUE(prompts.ok()) << prompts.status();
  EXPECT_THAT(*prompts, ElementsAre(ElementsAre(1, 4294967295), ElementsAre(), ElementsAre(0)));
}

TEST(Prompts, AnErrorSaysWhere) {
  const std::pair<const char*, const char*> cases[] = {
      {"[[1, 2]", "not valid JSON"},
      {"", "not valid JSON"},
      {R"({"prompts": [[1]]})",
       "expected a list of lists of token ids, such as [[1, 2], [3]], "
       "found a mapping"},
      {"[1, 2]",
       "prompts[0]: expected a list of lists of token ids, such as [[1, 2], [3]], found 1"},
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
