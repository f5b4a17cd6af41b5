#include "worker/train/job/model_files.h"

#include <gtest/gtest.h>

namespace muster::train {
namespace {

TEST(ModelFiles, AFolderOfHuggingFaceHasWeightsAndATokenizer) {
  v1::ModelSpec model;
  model.set_hf("/no/folder");
  EXPECT_STREQ(WeightsField(model), "model.hf");
  EXPECT_EQ(WeightsPath(model), "/no/folder/model.safetensors");
  EXPECT_EQ(TokenizerPath(model), "/no/folder/tokenizer.json");
}

TEST(ModelFiles, AnExportedFolderHasATokenizerAndTakesWeightsFromTheJobFile) {
  v1::ModelSpec model;
  model.set_exported("/folder");
  EXPECT_STREQ(WeightsField(model), "model.weights");
  EXPECT_EQ(WeightsPath(model), "");
  EXPECT_EQ(TokenizerPath(model), "/folder/tokenizer.json");
  model.mutable_weights_from()->set_file("/other.safetensors");
  EXPECT_EQ(WeightsPath(model), "/other.safetensors");
}

TEST(ModelFiles, AModelWithoutAFolderHasOnlyTheWeightsOfTheJobFile) {
  v1::ModelSpec model;
  model.mutable_gpt2();
  EXPECT_EQ(WeightsPath(model), "");
  EXPECT_EQ(TokenizerPath(model), "");
  model.set_weights("/weights.safetensors");
  EXPECT_EQ(WeightsPath(model), "/weights.safetensors");
}

}  // namespace
}  // namespace muster::train
