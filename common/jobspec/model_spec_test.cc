// The rules and the defaults of models.
#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/jobspec/gpt2_job.h"
#include "common/jobspec/jobspec.h"
#include "common/jobspec/spec_case.h"

namespace muster::jobspec {
namespace {

using ::testing::IsEmpty;

// Replaces the job's gpt2 by a valid llama.
v1::LlamaSpec* Llama(v1::JobSpec* s) {
  v1::LlamaSpec* llama = s->mutable_model()->mutable_llama();
  llama->set_vocab_size(256);
  llama->set_context(32);
  llama->set_layers(2);
  llama->set_heads(6);
  llama->set_width(48);
  return llama;
}

v1::Gpt2Spec* Gpt2(v1::JobSpec* s) { return s->mutable_model()->mutable_gpt2(); }
// Replaces the job's gpt2 by a valid TorchScript of tokens.
v1::TorchscriptSpec* Script(v1::JobSpec* s) {
  v1::TorchscriptSpec* script = s->mutable_model()->mutable_torchscript();
  script->set_path("/m.pt");
  script->set_vocab_size(256);
  script->set_context(32);
  return script;
}
// Adds a part of another model's weights.
v1::WeightsSpec* PartOf(v1::JobSpec* s) {
  v1::WeightsSpec* weights = s->mutable_model()->mutable_weights_from();
  weights->set_file("/w");
  return weights;
}
// Replaces the job by one that trains a TorchScript of rows.
v1::TorchscriptSpec* ScriptOfRows(v1::JobSpec* s) {
  s->mutable_data()->clear_validate();
  s->mutable_data()->mutable_train()->mutable_safetensors()->add_path("/x");
  s->clear_stages();
  s->add_stages()->mutable_fit()->set_steps(100);
  s->mutable_model()->clear_kind();
  v1::TorchscriptSpec* script = s->mutable_model()->mutable_torchscript();
  script->set_path("/m.pt");
  script->add_inputs(4);
  script->set_classes(3);
  return script;
}

v1::LlamaSpec ResolvedLlama(const std::string& text) {
  v1::JobSpec spec = Parse(kGpt2Job);
  EXPECT_TRUE(
      google::protobuf::TextFormat::ParseFromString(text, spec.mutable_model()->mutable_llama()));
  return ResolveDefaults(spec).model().llama();
}

TEST(ResolveDefaults, FillsWhatLlamaLacks) {
  const v1::LlamaSpec llama = ResolvedLlama("heads: 32 width: 4096");
  EXPECT_EQ(llama.kv_heads(), 32);
  EXPECT_EQ(llama.inner(), 11008);
  EXPECT_EQ(llama.rope_theta(), 10000);
  EXPECT_EQ(llama.norm_eps(), 1e-5);
  EXPECT_TRUE(llama.has_tied() && !llama.tied());
  EXPECT_EQ(ResolvedLlama("heads: 4 kv_heads: 2").kv_heads(), 2);
  for (const auto& [width, inner] : std::vector<std::pair<uint32_t, uint32_t>>{
           {1, 8}, {3, 8}, {48, 128}, {64, 176}, {255, 680}, {256, 768}, {288, 768}, {289, 1024}}) {
    EXPECT_EQ(ResolvedLlama(absl::StrCat("width: ", width)).inner(), inner) << width;
  }
}

TEST(ValidateSpec, TakesLlamaWithAndWithoutDefaults) {
  v1::JobSpec spec = Parse(kGpt2Job);
  Llama(&spec)->set_kv_heads(2);
  EXPECT_THAT(ValidateSpec(spec).problems(), IsEmpty());
  EXPECT_THAT(ValidateSpec(ResolveDefaults(spec)).problems(), IsEmpty());
}

TEST(ValidateSpec, TakesATokenizerOfWhatCanBeSampledFrom) {
  v1::JobSpec spec = Parse(kGpt2Job);
  spec.mutable_model()->set_tokenizer(v1::ModelSpec::BYTES);
  EXPECT_THAT(ValidateSpec(ResolveDefaults(spec)).problems(), IsEmpty());
  Llama(&spec);
  EXPECT_THAT(ValidateSpec(ResolveDefaults(spec)).problems(), IsEmpty());
  spec.mutable_model()->set_exported("/folder");
  spec.mutable_model()->set_context(64);
  EXPECT_THAT(ValidateSpec(ResolveDefaults(spec)).problems(), IsEmpty());
}

TEST(ValidateSpec, TakesModelsFromOutside) {
  v1::JobSpec spec = Parse(kGpt2Job);
  v1::PluginSpec* plugin = spec.mutable_model()->mutable_plugin();
  plugin->set_path("/p.so");
  plugin->set_name("x");
  (*plugin->mutable_options())["path"] = "as it is";
  (*plugin->mutable_options())["empty"] = "";
  EXPECT_THAT(ValidateSpec(ResolveDefaults(spec)).problems(), IsEmpty());
  Script(&spec);
  EXPECT_THAT(ValidateSpec(ResolveDefaults(spec)).problems(), IsEmpty());
  ScriptOfRows(&spec)->add_inputs(2);
  EXPECT_THAT(ValidateSpec(ResolveDefaults(spec)).problems(), IsEmpty());
}

using Case = SpecCase;

class ValidateModelFinds : public testing::TestWithParam<Case> {};

TEST_P(ValidateModelFinds, TheOneProblemAlsoWithDefaultsFilledIn) {
  ExpectTheOneProblem(Parse(kGpt2Job), GetParam());
}

INSTANTIATE_TEST_SUITE_P(
    Table, ValidateModelFinds,
    testing::Values(
        Case{"NoKindOfModel", [](auto* s) { s->mutable_model()->clear_kind(); }, "model",
             "one of: gpt2, mlp"},
        Case{"NoModel", [](auto* s) { s->clear_model(); }, "model", "is missing"},
        Case{"Vocabulary", [](auto* s) { Gpt2(s)->set_vocab_size(0); }, "model.gpt2.vocab_size",
             "is missing or 0"},
        Case{"Context", [](auto* s) { Gpt2(s)->set_context(0); }, "model.gpt2.context",
             "is missing"},
        Case{"Layers", [](auto* s) { Gpt2(s)->set_layers(0); }, "model.gpt2.layers", "is missing"},
        Case{"NoHeads", [](auto* s) { Gpt2(s)->set_heads(0); }, "model.gpt2.heads", "is missing"},
        Case{"Heads", [](auto* s) { Gpt2(s)->set_heads(3); }, "model.gpt2.heads",
             "found 3; allowed: a divisor of width, 64"},
        Case{"Inner", [](auto* s) { Gpt2(s)->set_inner(0); }, "model.gpt2.inner", "allowed: 1 to"},
        Case{"Dropout", [](auto* s) { Gpt2(s)->set_dropout(1); }, "model.gpt2.dropout", "below 1"},
        Case{"DropoutNan",
             [](auto* s) { Gpt2(s)->set_dropout(std::numeric_limits<double>::quiet_NaN()); },
             "model.gpt2.dropout", "found nan"},
        Case{"LlamaVocabulary", [](auto* s) { Llama(s)->clear_vocab_size(); },
             "model.llama.vocab_size", "is missing or 0"},
        Case{"LlamaWidth", [](auto* s) { Llama(s)->clear_width(); }, "model.llama.width",
             "is missing or 0"},
        Case{"LlamaNoHeads", [](auto* s) { Llama(s)->clear_heads(); }, "model.llama.heads",
             "is missing or 0"},
        Case{"LlamaHeads", [](auto* s) { Llama(s)->set_heads(5); }, "model.llama.heads",
             "found 5; allowed: a divisor of width, 48"},
        Case{"LlamaOddHead", [](auto* s) { Llama(s)->set_heads(16); }, "model.llama.heads",
             "found 16, a head of 3; allowed: width / heads even"},
        Case{"LlamaKeyHeads", [](auto* s) { Llama(s)->set_kv_heads(5); }, "model.llama.kv_heads",
             "found 5; allowed: a divisor of heads, 6"},
        Case{"LlamaNoKeyHeads", [](auto* s) { Llama(s)->set_kv_heads(0); }, "model.llama.kv_heads",
             "found 0; allowed: 1 to"},
        Case{"LlamaInner", [](auto* s) { Llama(s)->set_inner(0); }, "model.llama.inner",
             "allowed: 1 to"},
        Case{"LlamaTheta", [](auto* s) { Llama(s)->set_rope_theta(0); }, "model.llama.rope_theta",
             "found 0; allowed: a number above 0"},
        Case{"LlamaEps", [](auto* s) { Llama(s)->set_norm_eps(-1); }, "model.llama.norm_eps",
             "found -1"},
        Case{"ScriptPath", [](auto* s) { Script(s)->clear_path(); }, "model.torchscript.path",
             "is missing"},
        Case{"ScriptNeither",
             [](auto* s) { s->mutable_model()->mutable_torchscript()->set_path("/m.pt"); },
             "model.torchscript",
             "found neither of inputs and classes, and vocab_size and context"},
        Case{"ScriptBoth", [](auto* s) { Script(s)->set_classes(2); }, "model.torchscript",
             "found both"},
        Case{"ScriptContext", [](auto* s) { Script(s)->clear_context(); },
             "model.torchscript.context", "is missing or 0"},
        Case{"ScriptInputs", [](auto* s) { ScriptOfRows(s)->clear_inputs(); },
             "model.torchscript.inputs", "the shape of a row"},
        Case{"ScriptInput", [](auto* s) { ScriptOfRows(s)->add_inputs(0); },
             "model.torchscript.inputs[1]", "found 0; allowed: 1 to"},
        Case{"ScriptHugeRow",
             [](auto* s) {
               v1::TorchscriptSpec* script = ScriptOfRows(s);
               for (int i = 0; i < 3; ++i) script->add_inputs(1 << 24);
             },
             "model.torchscript.inputs", "found a row of more than"},
        Case{"ScriptClasses", [](auto* s) { ScriptOfRows(s)->clear_classes(); },
             "model.torchscript.classes", "is missing or 0"},
        Case{"PluginPath", [](auto* s) { s->mutable_model()->mutable_plugin()->set_name("x"); },
             "model.plugin.path", "is missing"},
        Case{"PluginRelativePath",
             [](auto* s) {
               s->mutable_model()->mutable_plugin()->set_name("x");
               s->mutable_model()->mutable_plugin()->set_path("x.so");
             },
             "model.plugin.path", "found 'x.so'; allowed: an absolute path"},
        Case{"PluginName", [](auto* s) { s->mutable_model()->mutable_plugin()->set_path("/x.so"); },
             "model.plugin.name", "is missing; allowed: the name of one of the plug-in's models"},
        Case{"TokenizerOfRows",
             [](auto* s) {
               ScriptOfRows(s)->add_inputs(2);
               s->mutable_model()->set_tokenizer(v1::ModelSpec::BYTES);
             },
             "model.tokenizer", "allowed: with gpt2, llama, hf or exported"},
        Case{"ContextOfABuiltInModel", [](auto* s) { s->mutable_model()->set_context(8); },
             "model.context", "found 8 with the model gpt2; allowed: only with hf and exported"},
        Case{"TokenizerOfASmallVocabulary",
             [](auto* s) {
               Gpt2(s)->set_vocab_size(255);
               s->mutable_model()->set_tokenizer(v1::ModelSpec::BYTES);
             },
             "model.tokenizer", "found bytes with a vocab_size of 255; allowed: with 256 or more"},
        Case{"RelativeWeights", [](auto* s) { s->mutable_model()->set_weights("w"); },
             "model.weights", "absolute path"},
        Case{"RelativeWeightsFile", [](auto* s) { PartOf(s)->set_file("w"); }, "model.weights.file",
             "absolute path"},
        Case{"WeightsWithoutFile", [](auto* s) { PartOf(s)->clear_file(); }, "model.weights.file",
             "is missing; allowed: a path"},
        Case{"WeightsTwice",
             [](auto* s) {
               PartOf(s);
               s->mutable_model()->set_weights("/w");
             },
             "model.weights", "found a path and a mapping; allowed: one of them"},
        Case{"EmptyTake", [](auto* s) { PartOf(s)->add_take(""); }, "model.weights.take[0]",
             "is empty; allowed: a pattern"},
        Case{"RenameToNothing", [](auto* s) { (*PartOf(s)->mutable_rename())["a.b"] = ""; },
             "model.weights.rename.a.b", "found 'a.b': ''; allowed: two names"},
        Case{"RenameLosesTheStar", [](auto* s) { (*PartOf(s)->mutable_rename())["a.*"] = "b"; },
             "model.weights.rename.a.*", "found 'a.*': 'b'; allowed: no * in both names, or one"},
        Case{"RenameWithTwoStars",
             [](auto* s) { (*PartOf(s)->mutable_rename())["*.a.*"] = "*.b.*"; },
             "model.weights.rename.*.a.*", "allowed: no * in both names, or one * in both"}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace muster::jobspec
