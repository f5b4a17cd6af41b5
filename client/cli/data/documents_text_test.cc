#include "client/cli/data/documents_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "client/cli/terminal/escaped_stream.h"

namespace muster::cli {
namespace {

using nlohmann::json;

std::string Report(const json& report) {
  std::ostringstream out;
  PrintReport(report, &out);
  return out.str();
}

const json kReport = {
    {"files",
     {{{"path", "a.safetensors"}, {"documents", 3}, {"tokens", 200}, {"trained", 50}},
      {{"path", "b.safetensors"}, {"documents", 1}, {"tokens", 10}, {"trained", 9}}}},
    {"dtype", "uint16"},
    {"shape", "messages"},
    {"train", "assistant"},
    {"records", 5},
    {"longest", 120},
    {"longest_at", "c.jsonl: line 2"}};

TEST(DocumentsTextTest, AReportHasTheFilesTheShapeAndTheLongestRecord) {
  EXPECT_EQ(Report(kReport),
            "a.safetensors: 3 documents, 200 tokens (uint16), 50 trained (25.0%)\n"
            "b.safetensors: 1 documents, 10 tokens (uint16), 9 trained (90.0%)\n"
            "5 records of the shape `messages`; trained: assistant\n"
            "longest: 120 tokens (c.jsonl: line 2)\n");
}

TEST(DocumentsTextTest, AReportNamesAllThatIsLeftOutOrStrange) {
  json report = kReport;
  report.update({{"ignored", {"id", "source"}},
                 {"longer", 1},
                 {"lost", 30},
                 {"untrained", 2},
                 {"untrained_first", {"c.jsonl: line 4: the conversation is empty"}},
                 {"endless", 7},
                 {"empty", 2},
                 {"empty_at", "c.jsonl: line 7: message 1"},
                 {"joined", 3},
                 {"left_out", 6},
                 {"left_out_at", "c.jsonl: line 5: message 0 (system)"},
                 {"date", "2026-11-30"},
                 {"continued", 4}});
  const std::string text = Report(report);
  for (const char* said :
       {"; not used: id, source\n", "1 record longer than the context; trained tokens left out: 30",
        "2 records left out, without a trained token:\n"
        "  c.jsonl: line 4: the conversation is empty\n  ...\n",
        "6 messages are not in the texts, because the chat template does not write them; the "
        "first: c.jsonl: line 5: message 0 (system)\n",
        "2 trained turns have no text, so a model learns to say nothing; the first: c.jsonl: line "
        "7: message 1\n",
        "3 prompts are joined to their completions as they are, without the chat template",
        "7 trained parts end without a token", "the date 2026-11-30",
        "4 records were already done"}) {
    EXPECT_THAT(text, testing::HasSubstr(said));
  }
}

TEST(DocumentsTextTest, TrainedPartsAreGreenOrBetweenSignsAndOtherControlsAreEscaped) {
  const json documents = {{{"number", 7},
                           {"parts",
                            {{{"text", "ask\x1b[31m "}, {"tokens", 3}, {"trained", false}},
                             {{"text", "say"}, {"tokens", 2}, {"trained", true}}}}}};
  std::ostringstream raw;
  {
    EscapedStream out(&raw);
    PrintDocuments(documents, Trained::kGreen, &out);
  }
  EXPECT_THAT(raw.str(), testing::StartsWith("\ndocument 7: 5 tokens, 2 trained (green)\nask"));
  EXPECT_THAT(raw.str(), testing::EndsWith("\x1b[32msay\x1b[0m\n"));
  EXPECT_THAT(raw.str(), testing::Not(testing::HasSubstr("\x1b[31m")));

  std::ostringstream plain;
  PrintDocuments(documents, Trained::kSigns, &plain);
  EXPECT_THAT(plain.str(), testing::EndsWith("\u27e6say\u27e7\n"));
}

}  // namespace
}  // namespace muster::cli
