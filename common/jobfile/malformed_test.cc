// Malformed job files, which must give an error with the position: no crash, no endless loop, no
// wrong job.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "common/jobfile/jobfile.h"
#include "common/rpc/error.h"
#include "common/status/status.h"

namespace muster::jobfile {
namespace {

using ::testing::HasSubstr;

constexpr char kGood[] = R"(name: tiny
world_size: 1
model: {mlp: {inputs: 4, hidden: [8, 8], classes: 2}}
data: {train: {safetensors: {path: rows}}}
optimizer: {sgd: {lr: 0.1}}
batch: {per_rank: 1}
stages: {fit: {steps: 3}}
)";

struct Case {
  const char* name;
  std::string text;
  std::string message;  // a part of the message
  int line;             // of the first problem
};

class Malformed : public testing::TestWithParam<Case> {};

TEST_P(Malformed, IsRefusedWithItsLine) {
  const auto job = ParseJobFile(GetParam().text, "j", "/");
  ASSERT_EQ(job.status().code(), absl::StatusCode::kInvalidArgument) << job.status();
  EXPECT_THAT(Message(job.status()), HasSubstr(GetParam().message));
  ASSERT_GT(Problems(job.status()).problems_size(), 0);
  EXPECT_EQ(Problems(job.status()).problems(0).line(), GetParam().line);
}

std::string Deep(const std::string& open, int depth) {
  std::string text = "model: ";
  for (int i = 0; i < depth; ++i) text += open;
  return text;
}

// A text with an anchor, and in the second line a list of aliases of the text.
std::string Aliases(const std::string& text, int count) {
  std::string file = "name: &x " + text + "\nstages: [";
  for (int i = 0; i < count; ++i) file += "*x,";
  return file + "]\n";
}

// A list of ten lists of ten lists and so on, `levels` deep.
std::string Laughs(int levels) {
  std::string file = "a0: &a0 [1,1,1,1,1,1,1,1,1,1]\n";
  for (int i = 1; i <= levels; ++i) {
    file += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [";
    for (int j = 0; j < 10; ++j) file += "*a" + std::to_string(i - 1) + ",";
    file += "]\n";
  }
  return file;
}

INSTANTIATE_TEST_SUITE_P(
    Table, Malformed,
    testing::Values(
        Case{"Empty", "", "is empty", 0}, Case{"Comment", "# nothing\n\n", "is empty", 0},
        Case{"Null", "~\n", "is empty", 0}, Case{"Text", "just words\n", "found 'just words'", 1},
        Case{"List", "- a\n- b\n", "found a list", 1},
        Case{"TwoDocuments", "name: a\n---\nname: b\n", "another document begins here", 2},
        Case{"StrayBrace", "{name: a}\n}\n", "this is not YAML", 2},
        Case{"Nul", std::string("name: a\nb\0c", 11), "not UTF-8", 2},
        Case{"Latin1", "name: a\nseed: \xe9\n", "not UTF-8", 2},
        Case{"LongText", "seed: " + std::string(59, 'x') + "\u00e9\u00e9\n",
             "found '" + std::string(59, 'x') + "...'", 1},
        Case{"Tab", "model:\n\tgpt2: {}\n", "this is not YAML", 2},
        Case{"OpenBracket", "name: a\nstages: [{fit: {steps: 1}}\nseed: 1\n", "this is not YAML",
             3},
        Case{"OpenQuote", "name: \"a", "the quote that begins here has no end", 1},
        Case{"OpenQuoteToTheEnd", "# don't\nname: 'a'\nseed: 'b\nbatch: {per_rank: 1}\n",
             "this is not YAML: the quote that begins here has no end", 3},
        Case{"OpenQuoteAfterAByteOrderMark", "\xef\xbb\xbfname: \u00e9\nseed: 'b\nx: 1\n",
             "this is not YAML: the quote that begins here has no end", 2},
        Case{"OpenQuoteOfAKey", "name: a\n\"seed: 1\n", "the quote that begins here has no end", 2},
        Case{"OpenQuoteBehindOthers", "name: \u00e9\nlabels: {'a': \"b\", c: &x !!str \"d, e: f}\n",
             "the quote that begins here has no end", 2},
        Case{"OpenQuoteBeforeTheNextQuote", "name: a\nlabels: {a: \"b}\nseed: 1\nx: \"c\"\n",
             "the quote that begins here ends in line 4, and there: ", 2},
        Case{"OpenQuoteBeforeADocument", "name: 'a\n---\nseed: 1\n",
             "the quote that begins here has no end", 1},
        Case{"QuotesInQuotesAndComments", "name: 'it''s' # \"\nseed: \"\\\"\"\nx: 1\n",
             "seed: found the text", 1},
        Case{"OwnPart", "name: a\nlabels: &x {a: *x}\n",
             "this alias stands for something that it is a part of", 2},
        Case{"LongAliases", Aliases(std::string(100000, 'x'), 20000),
             "the text has more than 1048576 bytes; allowed: 1048576", 2},
        Case{"BadIndent", "name: a\n  seed: 1\n", "this is not YAML", 2},
        Case{"UnknownAnchor", "name: *x\n", "this is not YAML", 1},
        Case{"Huge", std::string((1 << 20) + 1, '#'), "bytes; allowed: 1048576", 0},
        Case{"Laughs", Laughs(100), "the text has more than 1048576 bytes", 6},
        Case{"DeepList", Deep("[", 100000), "this is not YAML", 1},
        Case{"DeepMap", Deep("{a: ", 100000), "this is not YAML", 1},
        Case{"Twice", "seed: 1\nname: a\nseed: 2\n", "seed: given twice, first in line 1", 3},
        Case{"ListAsKey", "[a, b]: 1\n", "found a list as a key", 1},
        Case{"MergeKey", "<<: {name: a}\n", "<<: unknown key", 1},
        Case{"Binary",
             "\x7f"
             "ELF\x02\x01\x01\n",
             "", 1},
        Case{"MapForNumber", "seed: {a: 1}\n", "seed: found a mapping", 1},
        Case{"ListForNumber", "seed: [1]\n", "seed: found a list", 1},
        Case{"ListForText", "name: [a]\n", "name: found a list", 1},
        Case{"EmptyText", "name: \"\"\n", "name: is empty", 1},
        Case{"Negative", "seed: -1\n", "does not fit", 1},
        Case{"SeedTooLarge", "seed: 18446744073709551616\n", "does not fit", 1},
        Case{"SignOnly", "seed: +\n", "seed: found '+'", 1},
        Case{"TwoSigns", "seed: +-1\n", "seed: found '+-1'", 1},
        Case{"HexOnly", "seed: 0x\n", "seed: found '0x'", 1},
        Case{"Exponent", "seed: 1e3\n", "seed: found '1e3'", 1},
        Case{"Infinite", "clip_grad_norm: .inf\n", "found '.inf'", 1},
        Case{"InfiniteByDigits", "clip_grad_norm: 1e999\n", "which does not fit", 1},
        Case{"Inf", "clip_grad_norm: inf\n", "found 'inf'", 1},
        Case{"LoneDot", "clip_grad_norm: .\n", "found '.'", 1},
        Case{"PlusMinus", "clip_grad_norm: +-1\n", "found '+-1'", 1},
        Case{"Enum", "device: CPU\n", "found 'CPU'; allowed: one of: cpu, cuda; did you mean cpu?",
             1},
        Case{"EnumNumber", "device: 1\n", "found '1'; allowed: one of: cpu", 1},
        Case{"EnumUnspecified", "device: device_unspecified\n", "allowed: one of: cpu", 1},
        Case{"Bool", "model: {gpt2: {tied: 1}}\n", "tied: found '1'; allowed: true or false", 1},
        Case{"TextInEmptyMessage", "schedule: {constant: 5}\n", "schedule.constant: found '5'", 1},
        Case{"KeyInEmptyMessage", "stages: {validate: {a: 5}}\n",
             "stages[0].validate.a: unknown key; no key is allowed here", 1},
        Case{"StrategyOfAStage", "stages: [{test: {strategy: {ddp: {}}}}]\n",
             "stages[0].test.strategy: unknown key; strategy is a key of the job: its stages share "
             "one model, one strategy and one optimizer, which are made once",
             1},
        Case{"ModelOfAStage", "stages: [{fit: {steps: 1, model: {plugin: {}}}}]\n",
             "stages[0].fit.model: unknown key; model is a key of the job", 1},
        Case{"TwoLengths", "stages: [{fit: {steps: 1, epochs: 1}}]\n",
             "stages[0].fit.epochs: only one of steps, epochs is allowed", 1},
        Case{"NullInList", "model:\n  mlp:\n    hidden: [8, ~]\n    inputs: 1\n    classes: 1\n",
             "j:3: model.mlp.hidden[1]: has no value", 3},
        Case{"ListInList",
             "model:\n  mlp:\n    inputs: 1\n    classes: 1\n    hidden:\n    - 8\n    - [8]\n",
             "model.mlp.hidden[1]: found a list", 7}),
    [](const auto& info) { return info.param.name; });

// splitmix64, which makes the same files on every machine.
struct Random {
  uint64_t state;
  uint64_t Next() {
    uint64_t z = (state += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
};

TEST(Aliases, AreAllowedWithinTheSizeOfAFile) {
  const auto job = ParseJobFile(
      "name: &n tiny\nworld_size: &one 1\nseed: *one\n"
      "model: {mlp: {inputs: 4, hidden: &h [8, 8], classes: 2}}\n"
      "data: {train: {safetensors: {path: *n}}}\n"
      "optimizer: {sgd: {lr: 0.1}}\nbatch: {per_rank: *one}\nstages: {fit: {steps: 3}}\n",
      "j", "/");
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->spec.seed(), 1);
}

TEST(MalformedRandom, DamagedFilesAreReadOrRefusedWithAReason) {
  ASSERT_TRUE(ParseJobFile(kGood, "j", "/").ok());
  const std::string splices[] = {"{",   "}",  "[",      "]",     ":",  ": ", "\n",  "- ",
                                 "&a ", "*a", "!!str ", "\"",    "'",  "\t", "#",   "|",
                                 ">",   "~",  "-1",     "1e400", "? ", "%",  "\xff"};
  int refused = 0;
  for (uint64_t seed = 0; seed < 4000; ++seed) {
    Random random{seed};
    std::string text = kGood;
    for (uint64_t edits = 1 + random.Next() % 4; edits > 0; --edits) {
      const size_t at = random.Next() % text.size();
      switch (random.Next() % 4) {
        case 0:
          text.erase(at, 1 + random.Next() % 8);
          break;
        case 1:
          text.insert(at, splices[random.Next() % std::size(splices)]);
          break;
        case 2:
          text[at] = static_cast<char>(1 + random.Next() % 255);
          break;
        case 3:
          text.insert(at, text.substr(random.Next() % text.size(), 12));
          break;
      }
      if (text.empty()) text = "x";
    }
    const auto job = ParseJobFile(text, "j", "/");
    if (job.ok()) continue;
    ++refused;
    ASSERT_EQ(job.status().code(), absl::StatusCode::kInvalidArgument) << text;
    const v1::SpecProblems problems = Problems(job.status());
    ASSERT_GT(problems.problems_size(), 0) << text;
    for (const auto& problem : problems.problems()) {
      ASSERT_FALSE(problem.message().empty()) << text;
    }
  }
  EXPECT_GT(refused, 2000);
}

}  // namespace
}  // namespace muster::jobfile
