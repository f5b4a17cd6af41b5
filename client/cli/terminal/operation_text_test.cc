#include "client/cli/terminal/operation_text.h"

#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/time/time.h"

namespace muster::cli {
namespace {

std::string Line(const std::string& text) {
  v1::Operation operation;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &operation)) << text;
  return OperationLine(operation);
}

TEST(OperationLine, APassOfEvaluationHasItsMetricsAndItsStep) {
  EXPECT_EQ(Line(R"(name: 'a/1' kind: RUN_STAGE done: true applied_at_step: 7
                    result { stage { step: 7 stage: 'validate'
                                     evaluation { loss: 2.25 perplexity: 9.4877 accuracy: 0.5
                                                  samples: 12 } } })"),
            "operation a/1: run_stage: done after step 7: validate: loss 2.2500, perplexity 9.488, "
            "accuracy 50.00%, 12 samples");
  EXPECT_EQ(Line(R"(name: 'a/1' kind: RUN_STAGE done: true applied_at_step: 7
                    result { stage { step: 9 stage: 'test'
                                     evaluation { loss: 1 samples: 3 } } })"),
            "operation a/1: run_stage: done after step 9: test: loss 1.0000, 3 samples")
      << "carried out again by a later generation";
  EXPECT_EQ(Line("name: 'a/1' kind: RUN_STAGE applied_at_step: 7 progress: 'under way'"),
            "operation a/1: run_stage: under way");
}

TEST(OperationLine, OfSamplesThatWereLeftOutItSaysWhich) {
  EXPECT_EQ(Line(R"(name: 'a/1' kind: SKIP_DATA done: true applied_at_step: 7
                    result { skipped_data { step: 7 samples: 16 first: 28 last_epoch: 1
                                            last: 3 } })"),
            "operation a/1: skip_data: done after step 7: 16 samples, from sample 28 of epoch "
            "0 to sample 3 of epoch 1");
}

TEST(OperationLine, ASampleIsShownInOneLine) {
  EXPECT_EQ(Line(R"(name: 'a/2' kind: SAMPLE done: true applied_at_step: 7
                    result { sample { step: 7 tokens: [97, 10, 27] text: 'a\n\033' } })"),
            "operation a/2: sample: done after step 7: 3 tokens: \"a\\n\\x1b\"");
  EXPECT_EQ(Line(R"(name: 'a/2' kind: SAMPLE done: true
                    result { sample { step: 7 tokens: [1, 20, 300] } })"),
            "operation a/2: sample: done after step 7: 3 tokens: 1 20 300");
}

TEST(OperationLine, OfALongSampleTheBeginningIsShown) {
  std::string ids, text;
  for (int i = 0; i < 30; ++i) ids += "tokens: 12345 ", text += "é";
  EXPECT_EQ(Line("name: 'a/2' kind: SAMPLE done: true result { sample { " + ids + "} }"),
            "operation a/2: sample: done after step 0: 30 tokens: 12345 12345 12345 12345 12345 "
            "12345 12345 12345 12345 12345 ...");
  EXPECT_EQ(
      Line("name: 'a/2' kind: SAMPLE done: true result { sample { tokens: 1 text: 'x" + text +
           "' } }"),
      "operation a/2: sample: done after step 0: 1 tokens: \"x" + text.substr(0, 58) + "\" ...")
      << "no half character";
}

TEST(OperationTable, ItShowsWhoAskedAndTheLabelBesideIt) {
  v1::Operation operation;
  operation.set_requested_by("operator/bob");
  operation.set_requester("operator/alice");
  const std::string table = OperationTable({operation}, absl::UnixEpoch());
  EXPECT_NE(table.find(" operator/alice (label 'operator/bob') "), std::string::npos) << table;
  operation.clear_requested_by();
  operation.clear_requester();
  EXPECT_NE(OperationTable({operation}, absl::UnixEpoch()).find(" - "), std::string::npos);
}

}  // namespace
}  // namespace muster::cli
