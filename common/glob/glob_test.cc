#include "common/glob/glob.h"

#include <gtest/gtest.h>

#include <string>

namespace muster {
namespace {

TEST(GlobMatches, LiteralsMatchThemselvesAsAWhole) {
  EXPECT_TRUE(GlobMatches("ln_f.bias", "ln_f.bias"));
  EXPECT_FALSE(GlobMatches("ln_f.bias", "ln_f.bias2"));
  EXPECT_FALSE(GlobMatches("ln_f.bias", "xln_f.bias"));
  EXPECT_FALSE(GlobMatches("ln_f.bias", "ln_f.bia"));
  EXPECT_FALSE(GlobMatches("BIAS", "bias"));
  EXPECT_TRUE(GlobMatches("", ""));
  EXPECT_FALSE(GlobMatches("", "a"));
  EXPECT_FALSE(GlobMatches("a", ""));
  // Characters that are special in other pattern languages are not special here.
  EXPECT_FALSE(GlobMatches("ln_f.bias", "ln_fxbias"));
  EXPECT_TRUE(GlobMatches("[ab]", "[ab]"));
  EXPECT_FALSE(GlobMatches("[ab]", "a"));
}

TEST(GlobMatches, AStarTakesAnyCharactersAlsoNoneAndDots) {
  EXPECT_TRUE(GlobMatches("*", ""));
  EXPECT_TRUE(GlobMatches("*", "transformer.h.0.ln_1.bias"));
  EXPECT_TRUE(GlobMatches("*bias", "transformer.h.0.ln_1.bias"));
  EXPECT_TRUE(GlobMatches("*bias", "bias"));
  EXPECT_TRUE(GlobMatches("transformer.*", "transformer.wte.weight"));
  EXPECT_TRUE(GlobMatches("transformer.*", "transformer."));
  EXPECT_FALSE(GlobMatches("transformer.*", "transformer"));
  EXPECT_TRUE(GlobMatches("*.h.*.ln_*.bias", "transformer.h.0.ln_1.bias"));
  EXPECT_FALSE(GlobMatches("*.h.*.ln_*.bias", "transformer.h.0.ln_1.weight"));
  EXPECT_TRUE(GlobMatches("a**b", "ab"));
}

TEST(GlobMatches, AStarTakesMoreWhereLessDoesNotFit) {
  EXPECT_TRUE(GlobMatches("*ab", "aab"));
  EXPECT_TRUE(GlobMatches("*aab*", "aaaab"));
  EXPECT_TRUE(GlobMatches("a*b*c", "abbcbc"));
  EXPECT_FALSE(GlobMatches("a*b*c", "abbcbcd"));
  EXPECT_FALSE(GlobMatches("*abc", "ab"));
}

TEST(GlobMatches, AQuestionMarkTakesExactlyOne) {
  EXPECT_TRUE(GlobMatches("h.?.w", "h.3.w"));
  EXPECT_FALSE(GlobMatches("h.?.w", "h.13.w"));
  EXPECT_FALSE(GlobMatches("h.?.w", "h..w"));
  EXPECT_FALSE(GlobMatches("?", ""));
  EXPECT_TRUE(GlobMatches("*?", "x"));
  EXPECT_FALSE(GlobMatches("*?", ""));
}

TEST(GlobMatches, ManyStarsTakeNoExponentialTime) {
  std::string pattern;
  for (int i = 0; i < 200; ++i) pattern += "*a";
  EXPECT_FALSE(GlobMatches(pattern + "b", std::string(5000, 'a')));
}

// The definition, for a comparison on all short texts and patterns over a small alphabet.
bool ByDefinition(std::string_view pattern, std::string_view text) {
  if (pattern.empty()) return text.empty();
  if (pattern[0] == '*') {
    for (size_t taken = 0; taken <= text.size(); ++taken) {
      if (ByDefinition(pattern.substr(1), text.substr(taken))) return true;
    }
    return false;
  }
  return !text.empty() && (pattern[0] == '?' || pattern[0] == text[0]) &&
         ByDefinition(pattern.substr(1), text.substr(1));
}

std::string Word(int number, int length, std::string_view alphabet) {
  std::string word;
  for (int i = 0; i < length; ++i, number /= alphabet.size())
    word += alphabet[number % alphabet.size()];
  return word;
}

TEST(GlobMatches, IsWhatTheDefinitionSays) {
  for (int pattern = 0; pattern < 4 * 4 * 4 * 4 * 4; ++pattern) {
    for (int length = 0; length <= 5; ++length) {
      for (int text = 0; text < 1 << length; ++text) {
        const std::string p = Word(pattern, 5, "ab*?"), t = Word(text, length, "ab");
        ASSERT_EQ(GlobMatches(p, t), ByDefinition(p, t)) << p << " on " << t;
      }
    }
  }
}

}  // namespace
}  // namespace muster
