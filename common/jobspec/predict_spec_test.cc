// The rules of the stages `predict`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "common/jobspec/gpt2_job.h"
#include "common/jobspec/jobspec.h"
#include "common/jobspec/spec_case.h"

namespace muster::jobspec {
namespace {

// A job that trains, predicts and generates.
v1::JobSpec PredictJob() {
  v1::JobSpec spec = Parse(kGpt2Job);
  spec.mutable_data()->mutable_predict()->mutable_tokens()->add_path("/d/predict.bin");
  spec.add_stages()->mutable_predict()->set_output("/d/p.safetensors");
  v1::PredictStage* generates = spec.add_stages()->mutable_predict();
  generates->set_output("/d/texts.json");
  v1::GenerateSpec* generate = generates->mutable_generate();
  generate->set_max_tokens(8);
  for (const uint32_t token : {1, 2}) generate->add_prompts()->add_tokens(token);
  return spec;
}

v1::PredictStage* Predict(v1::JobSpec* s) { return s->mutable_stages(2)->mutable_predict(); }
v1::GenerateSpec* Generate(v1::JobSpec* s) {
  return s->mutable_stages(3)->mutable_predict()->mutable_generate();
}

// Makes the job one of rows, with the same model.
void MakeRows(v1::JobSpec* s) {
  s->mutable_model()->mutable_mlp()->set_inputs(4);
  s->mutable_model()->mutable_mlp()->set_classes(3);
  const auto set = [](v1::DataSet* data) {
    data->mutable_safetensors()->add_path("/d/rows.safetensors");
  };
  set(s->mutable_data()->mutable_train());
  set(s->mutable_data()->mutable_validate());
  set(s->mutable_data()->mutable_predict());
  s->mutable_stages()->RemoveLast();
}

TEST(PredictStages, AGoodJobStaysGoodAndGetsItsDefaults) {
  EXPECT_EQ(ValidateSpec(PredictJob()).problems_size(), 0)
      << FormatProblems(ValidateSpec(PredictJob()));
  const v1::JobSpec resolved = ResolveDefaults(PredictJob());
  EXPECT_EQ(ValidateSpec(resolved).problems_size(), 0) << FormatProblems(ValidateSpec(resolved));
  EXPECT_EQ(resolved.stages(2).predict().what(), v1::PredictStage::LOGITS);
  EXPECT_EQ(resolved.stages(3).predict().what(), v1::PredictStage::WHAT_UNSPECIFIED);
  EXPECT_EQ(ResolveDefaults(resolved).DebugString(), resolved.DebugString());
}

TEST(PredictStages, AJobThatOnlyGeneratesNeedsNeitherDataNorBatch) {
  const v1::JobSpec spec = Parse(R"(
    name: "texts" world_size: 2
    model { llama { vocab_size: 256 context: 32 layers: 2 heads: 4 width: 64 } }
    stages { predict { output: "/d/texts.json"
                       generate { prompts_from: "/d/prompts.json" max_tokens: 4 } } })");
  for (const v1::JobSpec& one : {spec, ResolveDefaults(spec)}) {
    EXPECT_EQ(ValidateSpec(one).problems_size(), 0) << FormatProblems(ValidateSpec(one));
  }
}

TEST(PredictStages, ImagesWithoutLabelsFitALossOverNumbers) {
  v1::JobSpec spec = PredictJob();
  MakeRows(&spec);
  spec.mutable_loss()->mutable_mse();
  spec.mutable_data()->mutable_predict()->mutable_idx()->add_images("/d/images");
  EXPECT_EQ(ValidateSpec(spec).problems_size(), 0) << FormatProblems(ValidateSpec(spec));
}

class ValidatePredictFinds : public testing::TestWithParam<SpecCase> {};

TEST_P(ValidatePredictFinds, TheOneProblemAlsoWithDefaultsFilledIn) {
  ExpectTheOneProblem(PredictJob(), GetParam());
}

INSTANTIATE_TEST_SUITE_P(
    Table, ValidatePredictFinds,
    testing::Values(
        SpecCase{"NoData", [](auto* s) { s->mutable_data()->clear_predict(); }, "data.predict",
                 "is missing, but stages[2].predict needs it"},
        SpecCase{"NoOutput", [](auto* s) { Predict(s)->clear_output(); },
                 "stages[2].predict.output", "is missing"},
        SpecCase{"OtherSuffix", [](auto* s) { Predict(s)->set_output("/d/p.json"); },
                 "stages[2].predict.output",
                 "found /d/p.json; allowed: a name that ends in .safetensors or .npy"},
        SpecCase{"OtherSuffixOfTexts",
                 [](auto* s) { s->mutable_stages(3)->mutable_predict()->set_output("/d/p.npy"); },
                 "stages[3].predict.output", "allowed with generate: a name that ends in .json"},
        SpecCase{"WhatWithGenerate",
                 [](auto* s) {
                   s->mutable_stages(3)->mutable_predict()->set_what(v1::PredictStage::LOGITS);
                 },
                 "stages[3].predict.what", "found together with generate"},
        SpecCase{"TheSameOutputTwice",
                 [](auto* s) {
                   s->add_stages()->mutable_predict()->set_output("/d/x/../p.safetensors");
                 },
                 "stages[4].predict.output", "which is stages[2].predict.output, too"},
        SpecCase{"OutputIsTheExport", [](auto* s) { Predict(s)->set_output("/d/out.safetensors"); },
                 "stages[2].predict.output", "which is export.path, too"},
        SpecCase{"OutputIsAnInput",
                 [](auto* s) { s->mutable_model()->set_weights("/d/p.safetensors"); },
                 "stages[2].predict.output", "which is model.weights, too"},
        SpecCase{"TheExportIsAnInput",
                 [](auto* s) { s->mutable_model()->set_weights("/d/./out.safetensors"); },
                 "export.path", "which is model.weights, too"},
        SpecCase{"NoPrompts", [](auto* s) { Generate(s)->clear_prompts(); },
                 "stages[3].predict.generate.prompts",
                 "is missing; allowed: lists of token ids, or the path of a JSON file"},
        SpecCase{"PromptsTwice", [](auto* s) { Generate(s)->set_prompts_from("/d/prompts.json"); },
                 "stages[3].predict.generate.prompts", "found lists and a path"},
        SpecCase{"ATokenBeyondTheVocabulary",
                 [](auto* s) { Generate(s)->mutable_prompts(1)->add_tokens(256); },
                 "stages[3].predict.generate.prompts",
                 "prompts[1]: token 1: found 256; allowed: 0 to 255"},
        SpecCase{"APromptBeyondTheContext", [](auto* s) { Generate(s)->set_max_tokens(32); },
                 "stages[3].predict.generate.prompts",
                 "prompts[0]: found 1 tokens and 32 new ones (max_tokens); allowed: together at "
                 "most 32"},
        SpecCase{"NoMaxTokens", [](auto* s) { Generate(s)->clear_max_tokens(); },
                 "stages[3].predict.generate.max_tokens", "is missing or 0; allowed: 1 or more"},
        SpecCase{"TopKWithoutTemperature", [](auto* s) { Generate(s)->set_top_k(5); },
                 "stages[3].predict.generate.top_k", "found 5 without temperature"},
        SpecCase{"ANegativeTemperature", [](auto* s) { Generate(s)->set_temperature(-1); },
                 "stages[3].predict.generate.temperature", "found -1"},
        SpecCase{"AModelThatCannotGenerate",
                 [](auto* s) {
                   const v1::StageSpec generates = s->stages(3);
                   MakeRows(s);
                   *s->add_stages() = generates;
                 },
                 "stages[3].predict.generate",
                 "found with the model mlp; allowed: with gpt2, llama, hf and"},
        SpecCase{"ClassesOfNumbers",
                 [](auto* s) {
                   MakeRows(s);
                   s->mutable_loss()->mutable_mse();
                   Predict(s)->set_what(v1::PredictStage::CLASSES);
                 },
                 "stages[2].predict.what", "found classes, but with the loss mse"}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace muster::jobspec
