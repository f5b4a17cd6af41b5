// Defaults and rules of `ema`, `export.from` and `evaluation`.
#include <gtest/gtest.h>

#include "common/jobspec/gpt2_job.h"
#include "common/jobspec/jobspec.h"
#include "common/jobspec/spec_case.h"

namespace muster::jobspec {
namespace {

TEST(EmaSpec, WhatIsLeftOutHasItsDefault) {
  v1::JobSpec spec = Parse(kGpt2Job);
  EXPECT_FALSE(ResolveDefaults(spec).has_ema()) << "no averages are kept";
  EXPECT_EQ(ResolveDefaults(spec).evaluation().reshard(), v1::EvaluationSpec::AUTO);
  EXPECT_EQ(ResolveDefaults(spec).export_().from(), v1::ExportSpec::LAST);
  spec.mutable_ema();
  const v1::EmaSpec ema = ResolveDefaults(spec).ema();
  EXPECT_EQ(ema.decay(), 0.999);
  EXPECT_EQ(ema.every(), 1u);
  EXPECT_FALSE(ema.evaluate());
}

TEST(EmaSpec, AveragesCanBeExported) {
  v1::JobSpec spec = Parse(kGpt2Job);
  spec.mutable_ema()->set_decay(0);  // the averages are the parameters after each update
  spec.mutable_export_()->set_from(v1::ExportSpec::EMA);
  EXPECT_EQ(ValidateSpec(spec).problems_size(), 0) << FormatProblems(ValidateSpec(spec));
}

TEST(EmaSpec, AProblemNamesItsPath) {
  const SpecCase cases[] = {
      {"export", [](v1::JobSpec* spec) { spec->mutable_export_()->set_from(v1::ExportSpec::EMA); },
       "export.from", "the job keeps no averages; allowed: last, or ema together with the key ema"},
      {"decay", [](v1::JobSpec* spec) { spec->mutable_ema()->set_decay(1.5); }, "ema.decay", "1.5"},
      {"every", [](v1::JobSpec* spec) { spec->mutable_ema()->set_every(0); }, "ema.every", "0"},
  };
  for (const SpecCase& one : cases) ExpectTheOneProblem(Parse(kGpt2Job), one);
}

TEST(EmaSpec, AveragesThatWouldNeverBeMadeAreRefused) {
  v1::JobSpec spec = Parse(kGpt2Job);  // 100 steps
  spec.mutable_ema()->set_every(100);
  EXPECT_EQ(ValidateSpec(spec).problems_size(), 0) << FormatProblems(ValidateSpec(spec));
  ExpectTheOneProblem(spec,
                      {"every", [](v1::JobSpec* broken) { broken->mutable_ema()->set_every(101); },
                       "ema.every", "found 101, but no average would ever be made"});
  // The job may continue the averages of another job.
  spec.mutable_ema()->set_every(101);
  spec.mutable_start()->set_checkpoint("/d/ckpt/a/step-1-g1");
  spec.mutable_start()->set_what(v1::StartSpec::EVERYTHING);
  EXPECT_EQ(ValidateSpec(spec).problems_size(), 0) << FormatProblems(ValidateSpec(spec));
}

TEST(EmaSpec, WithoutTrainingThereIsNothingToAverage) {
  v1::JobSpec spec = Parse(R"(
    name: "tiny" world_size: 2
    model { gpt2 { vocab_size: 256 context: 32 layers: 2 heads: 4 width: 64 } }
    data { validate { tokens { path: "/d/val.bin" } } }
    batch { per_rank: 8 }
    stages { validate {} })");
  ExpectTheOneProblem(spec, {"ema", [](v1::JobSpec* broken) { broken->mutable_ema(); }, "ema",
                             "there is no stage fit"});
}

}  // namespace
}  // namespace muster::jobspec
