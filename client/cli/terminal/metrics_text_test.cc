#include "client/cli/terminal/metrics_text.h"

#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>

namespace muster::cli {
namespace {

v1::StepMetrics Entry(const std::string& text) {
  v1::StepMetrics entry;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &entry)) << text;
  return entry;
}

v1::StepMetrics Full() {
  return Entry(R"(step: 12 loss: 2.5 learning_rate: 0.1 grad_norm: 1.25 samples: 8
                  duration { seconds: 1 nanos: 500000000 } generation: 3
                  perplexity: 12.182493960703473 tokens: 256 model_flops_per_second: 1.5e12
                  model_flops_utilization: 0.375 skipped: true loss_scale: 65536
                  samples_per_second: 5.25 tokens_per_second: 170.5)");
}

v1::StepMetrics Pass() {
  return Entry(R"(step: 12 generation: 3
                  validation { loss: 2.25 accuracy: 0.975 perplexity: 9.5 samples: 30 })");
}

v1::StepMetrics TestPass() {
  return Entry(R"(step: 12 generation: 3 test { loss: 1.5 accuracy: 0.75 samples: 40 terms: 40
                                                top_k: 5 top_k_accuracy: 0.875 })");
}

TEST(MetricsText, OneLineForEachEntry) {
  EXPECT_EQ(MetricsHeader(),
            "STEP      LOSS        PERPLEXITY  LR          GRAD_NORM   THROUGHPUT        FLOP/S   "
            "SECONDS    NOTES\n");
  EXPECT_EQ(MetricsLine(Full()),
            "12        2.5000      12.18       0.1         1.2500      170 tokens/s      1.5T     "
            "1.500      skipped, 37.50% of peak, loss scale 65536\n");
  EXPECT_EQ(MetricsLine(Pass()),
            "12        2.2500      9.5         -           -           -                 -        "
            "-          validation, 30 samples, accuracy 97.50%\n");
  EXPECT_EQ(MetricsLine(TestPass()),
            "12        1.5000      -           -           -           -                 -        "
            "-          test, 40 samples, accuracy 75.00%, top 5 87.50%\n");
}

TEST(MetricsText, WhatIsNotThereIsADash) {
  EXPECT_EQ(MetricsLine(Entry("step: 1 loss: 0.5 learning_rate: 1e-4 samples: 8 "
                              "samples_per_second: 16 duration { nanos: 500000000 }")),
            "1         0.5000      -           0.0001      -           16 samples/s      -        "
            "0.500\n");
}

TEST(MetricsText, CsvHasTheDocumentedColumns) {
  EXPECT_EQ(MetricsCsvHeader(),
            "step,loss,learning_rate,grad_norm,samples,seconds,generation,perplexity,tokens,"
            "samples_per_second,tokens_per_second,model_flops_per_second,skipped,loss_scale,"
            "validation_loss,validation_accuracy,validation_perplexity,validation_samples,"
            "model_flops_utilization,validation_top_k_accuracy,test_loss,test_accuracy,"
            "test_perplexity,test_samples,test_top_k_accuracy\r\n");
  EXPECT_EQ(MetricsCsvLine(Full()),
            "12,2.5,0.10000000000000001,1.25,8,1.500000000,3,12.182493960703473,256,5.25,170.5,"
            "1500000000000,true,65536,,,,,0.375,,,,,,\r\n");
  EXPECT_EQ(MetricsCsvLine(Pass()), "12,,,,,,3,,,,,,,,2.25,0.97499999999999998,9.5,30,,,,,,,\r\n");
  EXPECT_EQ(MetricsCsvLine(TestPass()), "12,,,,,,3,,,,,,,,,,,,,,1.5,0.75,,40,0.875\r\n");
}

TEST(MetricsText, NumbersThatAreNotFiniteHaveOneSpelling) {
  v1::StepMetrics entry = Entry("step: 1");
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const double value : {nan, -nan}) {
    entry.set_loss(value);
    EXPECT_EQ(MetricsCsvLine(entry), "1,nan,,,0,0.000000000,0,,,,,,false,,,,,,,,,,,,\r\n");
  }
  entry.set_loss(-std::numeric_limits<double>::infinity());
  EXPECT_EQ(MetricsCsvLine(entry), "1,-inf,,,0,0.000000000,0,,,,,,false,,,,,,,,,,,,\r\n");
}

TEST(LossText, HasFourDecimalsUnlessItIsLarge) {
  EXPECT_EQ(LossText(2.34567), "2.3457");
  EXPECT_EQ(LossText(-999999), "-999999.0000");
  EXPECT_EQ(LossText(4.857391334314e36), "4.857e+36");
  EXPECT_EQ(LossText(std::numeric_limits<double>::infinity()), "inf");
}

TEST(WithUnit, GivesThreeDigits) {
  EXPECT_EQ(WithUnit(0), "0");
  EXPECT_EQ(WithUnit(12.345), "12.3");
  EXPECT_EQ(WithUnit(999), "999");
  EXPECT_EQ(WithUnit(999.6), "1k");
  EXPECT_EQ(WithUnit(1234567), "1.23M");
  EXPECT_EQ(WithUnit(4.5e14), "450T");
}

}  // namespace
}  // namespace muster::cli
