#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "worker/models/spec_from_json.h"
#include "worker/train/save/live_state.h"
#include "worker/train/training/setup.h"

namespace muster::train {
namespace {

using testing::ElementsAre;

// Returns the records of a Llama of one layer. `groups`: for AdamW with the weight decay 0.5.
checkpoint::ModelRecords Of(const std::vector<optim::ParameterGroup>& groups) {
  Job job;
  *job.spec.mutable_model() = models::SpecFromText(
      "llama", R"({"vocab_size": 8, "context": 4, "layers": 1, "heads": 2, "kv_heads": 1,
                   "width": 4, "inner": 6, "rope_theta": 10000, "norm_eps": 1e-5})");
  const auto model = *BuildModel(job);
  job.optimizer = {.lr = 0.25, .kind = optim::AdamWOptions{.weight_decay = 0.5}, .groups = groups};
  const size_t parameters = model->Parameters().size();
  Mask trained(parameters, true);
  trained[0] = false;
  const auto records = RecordsOf(job, *model, TrainingState(*model, {}, 1),
                                 /*learning_rate=*/0.125, trained, Mask(parameters, true));
  EXPECT_TRUE(records.ok()) << records.status();
  return *records;
}

// Hugging Face's LlamaDecoderLayer has the attention, then the MLP, then both norms.
TEST(ModelRecords, ParametersAreInTheOrderOfTheSourceModel) {
  std::vector<std::string> names;
  for (const auto& parameter : Of({}).parameters) names.push_back(parameter.name);
  const std::string layer = "model.layers.0.";
  EXPECT_THAT(
      names,
      ElementsAre("model.embed_tokens.weight", layer + "self_attn.q_proj.weight",
                  layer + "self_attn.k_proj.weight", layer + "self_attn.v_proj.weight",
                  layer + "self_attn.o_proj.weight", layer + "mlp.gate_proj.weight",
                  layer + "mlp.up_proj.weight", layer + "mlp.down_proj.weight",
                  layer + "input_layernorm.weight", layer + "post_attention_layernorm.weight",
                  "model.norm.weight", "lm_head.weight"));
}

TEST(ModelRecords, GroupsAreInTheOrderOfTheirFirstParametersThere) {
  const checkpoint::ModelRecords records =
      Of({{.match = "*norm*", .weight_decay = 0.0, .lr_scale = 2},
          {.match = "*o_proj*", .weight_decay = 1.0}});
  EXPECT_EQ(records.optimizer.kind, "adamw");
  std::vector<double> decays;
  std::vector<double> rates;
  for (const auto& settings : records.optimizer.groups) {
    for (const auto& [name, values] : settings) {
      if (name == "weight_decay") decays.push_back(values[0]);
      if (name == "lr") rates.push_back(values[0]);
    }
  }
  EXPECT_THAT(decays, ElementsAre(0.5, 1.0, 0.0)) << "o_proj comes before the norms";
  EXPECT_THAT(rates, ElementsAre(0.125, 0.125, 0.25));
  std::vector<int64_t> groups;
  for (const auto& parameter : records.parameters) groups.push_back(parameter.group);
  EXPECT_THAT(groups, ElementsAre(0, 0, 0, 0, 1, 0, 0, 0, 2, 2, 2, 0));
  EXPECT_FALSE(records.parameters[0].trainable);
  EXPECT_TRUE(records.parameters[0].ever_trained);
}

// A group's own rate keeps its ratio to the job's rate, which here is half of the rate in the job
// file.
TEST(ModelRecords, AGroupHasTheSettingsAndTheKindOfItsOptimizer) {
  const manifest::OptimizerRecord optimizer =
      Of({{.match = "*norm*",
           .optimizer = optim::GroupOptimizer{2, optim::SgdOptions{.momentum = 0.5}}},
          {.match = "*o_proj*", .lr = 4, .betas = {{0.5, 0.75}}, .eps = 1}})
          .optimizer;
  using Settings = manifest::OptimizerSettings;
  EXPECT_EQ(optimizer.kind, "adamw");
  EXPECT_THAT(optimizer.kinds, ElementsAre("adamw", "adamw", "sgd"));
  EXPECT_THAT(
      optimizer.groups,
      ElementsAre(
          Settings{
              {"lr", {0.125}}, {"betas", {0.9, 0.999}}, {"eps", {1e-8}}, {"weight_decay", {0.5}}},
          Settings{{"lr", {2}}, {"betas", {0.5, 0.75}}, {"eps", {1}}, {"weight_decay", {0.5}}},
          Settings{{"lr", {1}}, {"momentum", {0.5}}, {"weight_decay", {0}}, {"nesterov", {0}}}));
  EXPECT_TRUE(Of({}).optimizer.kinds.empty()) << "all are of the job's kind";
}

TEST(SameOptimizers, ComparesTheKindOfEachParameterThatHasState) {
  const auto saved_by = [](const std::vector<optim::ParameterGroup>& groups) {
    const checkpoint::ModelRecords records = Of(groups);
    manifest::Manifest manifest;
    manifest.optimizer = records.optimizer;
    manifest.parameters = records.parameters;
    return manifest;
  };
  const std::vector<optim::ParameterGroup> with_sgd = {
      {.match = "*norm*", .optimizer = optim::GroupOptimizer{2, optim::SgdOptions{}}}};
  EXPECT_TRUE(SameOptimizers(saved_by({}), Of({{.match = "*norm*", .lr = 3}})).ok());
  EXPECT_TRUE(SameOptimizers(saved_by(with_sgd), Of(with_sgd)).ok());
  EXPECT_TRUE(SameOptimizers(manifest::Manifest(), Of(with_sgd)).ok()) << "no parameter is saved";

  manifest::Manifest saved = saved_by(with_sgd);
  const absl::Status refused = SameOptimizers(saved, Of({}));
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(refused.message(),
            "found the state of sgd for parameter 'model.layers.0.input_layernorm.weight', but its "
            "optimizer in the job is adamw; start.what: weights takes the parameters alone");
  for (auto& parameter : saved.parameters) parameter.ever_trained = false;
  EXPECT_TRUE(SameOptimizers(saved, Of({})).ok()) << "there is no state";
}

}  // namespace
}  // namespace muster::train
