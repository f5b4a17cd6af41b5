#include "common/jobfile/check_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "common/files/files.h"
#include "common/files/temp_dir.h"
#include "common/manifest/manifest.h"

namespace muster::jobfile {
namespace {

using ::testing::HasSubstr;

TEST(CheckFiles, NamesTheInputsThatAreMissingEmptyOrNoFiles) {
  files::TempDir folder;
  ASSERT_TRUE(files::WriteAtomically(folder.Path("good"), "x").ok());
  ASSERT_TRUE(files::WriteAtomically(folder.Path("empty"), "").ok());
  v1::JobSpec spec;
  spec.mutable_model()->set_weights(folder.Path("good"));
  v1::TokenData* tokens = spec.mutable_data()->mutable_train()->mutable_tokens();
  tokens->add_path(folder.Path("good"));
  tokens->add_path(folder.Path("missing"));
  tokens->add_path(folder.Path("empty"));
  spec.mutable_data()->mutable_validate()->mutable_safetensors()->add_path(folder.path());
  // Outputs may be absent.
  spec.mutable_checkpoint()->set_directory(folder.Path("none"));
  spec.mutable_export_()->set_path(folder.Path("none/weights"));

  const v1::SpecProblems problems = CheckFiles(spec);
  ASSERT_EQ(problems.problems_size(), 3) << problems.DebugString();
  EXPECT_EQ(problems.problems(0).path(), "data.train.tokens.path[1]");
  EXPECT_THAT(problems.problems(0).message(), HasSubstr("No such file"));
  EXPECT_THAT(problems.problems(0).message(), HasSubstr(folder.Path("missing")));
  EXPECT_EQ(problems.problems(1).path(), "data.train.tokens.path[2]");
  EXPECT_THAT(problems.problems(1).message(), HasSubstr("is empty"));
  EXPECT_EQ(problems.problems(2).path(), "data.validate.safetensors.path[0]");
  EXPECT_THAT(problems.problems(2).message(), HasSubstr("not a regular file"));
}

TEST(CheckFiles, NamesACheckpointAfterWhichNothingIsLeft) {
  files::TempDir folder;
  manifest::Manifest manifest;
  manifest.job = "other";
  manifest.step = 5;
  ASSERT_TRUE(manifest::Write(manifest, folder.path()).ok());
  v1::JobSpec spec;
  spec.mutable_start()->set_checkpoint(folder.path());
  spec.mutable_start()->set_what(v1::StartSpec::EVERYTHING);
  spec.add_stages()->mutable_fit()->set_steps(5);
  const v1::SpecProblems problems = CheckFiles(spec);
  ASSERT_EQ(problems.problems_size(), 1) << problems.DebugString();
  EXPECT_EQ(problems.problems(0).path(), "start.what");
  EXPECT_THAT(problems.problems(0).message(), HasSubstr("nothing would be trained"));
}

TEST(CheckFiles, NamesAFileByItsPathInTheJobFile) {
  files::TempDir folder;
  v1::JobSpec spec;
  spec.mutable_model()->mutable_weights_from()->set_file(folder.Path("missing"));
  const v1::SpecProblems problems = CheckFiles(spec);
  ASSERT_EQ(problems.problems_size(), 1) << problems.DebugString();
  EXPECT_EQ(problems.problems(0).path(), "model.weights.file");
}

TEST(CheckFiles, ReadsTheConfigurationOfAModelFolder) {
  constexpr char kLlama[] =
      R"({"model_type": "llama", "vocab_size": 32, "hidden_size": 8, "intermediate_size": 12,
          "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 64})";
  files::TempDir folder;
  ASSERT_TRUE(files::WriteAtomically(folder.Path("config.json"), kLlama).ok());
  v1::JobSpec spec;
  spec.mutable_model()->set_hf(folder.path());
  v1::SpecProblems problems = CheckFiles(spec);
  ASSERT_EQ(problems.problems_size(), 1) << problems.DebugString();
  EXPECT_EQ(problems.problems(0).path(), "model.hf");
  EXPECT_THAT(problems.problems(0).message(), HasSubstr("has no model.safetensors"));

  ASSERT_TRUE(files::WriteAtomically(folder.Path("model.safetensors"), "x").ok());
  EXPECT_EQ(CheckFiles(spec).problems_size(), 0);

  spec.mutable_model()->set_context(65);
  problems = CheckFiles(spec);
  ASSERT_EQ(problems.problems_size(), 1) << problems.DebugString();
  EXPECT_EQ(problems.problems(0).path(), "model.context");
  EXPECT_THAT(problems.problems(0).message(), HasSubstr("expected at most 64"));

  ASSERT_TRUE(
      files::WriteAtomically(folder.Path("config.json"), R"({"model_type": "mamba"})").ok());
  problems = CheckFiles(spec);
  ASSERT_EQ(problems.problems_size(), 1) << problems.DebugString();
  EXPECT_THAT(problems.problems(0).message(), HasSubstr("config.json: does not fit model.hf"));
  EXPECT_THAT(problems.problems(0).message(), HasSubstr(R"(found "mamba")"));
}

TEST(CheckFiles, NamesAnExportThatWouldReplaceAFileOfSomebodyElse) {
  files::TempDir folder;
  ASSERT_TRUE(files::WriteAtomically(folder.Path("theirs"), "x").ok());
  v1::JobSpec spec;
  spec.set_name("n");
  spec.mutable_export_()->set_path(folder.Path("theirs"));
  const v1::SpecProblems problems = CheckFiles(spec);
  ASSERT_EQ(problems.problems_size(), 1) << problems.DebugString();
  EXPECT_EQ(problems.problems(0).path(), "export.path");
  EXPECT_THAT(problems.problems(0).message(), HasSubstr("overwrite: true"));
  spec.mutable_export_()->set_overwrite(true);
  EXPECT_EQ(CheckFiles(spec).problems_size(), 0);
}

TEST(CheckFiles, NamesAnOutputThatIsNeverReplaced) {
  files::TempDir folder;
  ASSERT_TRUE(files::WriteAtomically(folder.Path("weights"), "x").ok());
  std::filesystem::create_hard_link(folder.Path("weights"), folder.Path("again"));
  std::filesystem::create_directory(folder.Path("p.npy"));
  v1::JobSpec spec;
  spec.mutable_model()->set_weights(folder.Path("weights"));
  spec.mutable_export_()->set_path(folder.Path("again"));
  spec.mutable_export_()->set_overwrite(true);
  v1::PredictStage* stage = spec.add_stages()->mutable_predict();
  stage->set_output(folder.Path("p.npy"));
  stage->set_overwrite(true);
  const v1::SpecProblems problems = CheckOutputs(spec);
  ASSERT_EQ(problems.problems_size(), 2) << problems.DebugString();
  EXPECT_EQ(problems.problems(0).path(), "export.path");
  EXPECT_THAT(problems.problems(0).message(), HasSubstr("is read by this job (model.weights)"));
  EXPECT_EQ(problems.problems(1).path(), "stages[0].predict.output");
  EXPECT_THAT(problems.problems(1).message(), HasSubstr("is a folder"));
}

TEST(CheckFiles, NamesAFolderForTensorboardThatIsAFile) {
  files::TempDir folder;
  ASSERT_TRUE(files::WriteAtomically(folder.Path("file"), "x").ok());
  v1::JobSpec spec;
  for (const char* name : {"file", "file/logs"}) {
    spec.mutable_metrics()->set_tensorboard(folder.Path(name));
    const v1::SpecProblems problems = CheckOutputs(spec);
    ASSERT_EQ(problems.problems_size(), 1) << problems.DebugString();
    EXPECT_EQ(problems.problems(0).path(), "metrics.tensorboard");
    EXPECT_THAT(problems.problems(0).message(), HasSubstr("file is a file; choose another"));
  }
  spec.mutable_metrics()->set_tensorboard(folder.Path("logs"));
  EXPECT_EQ(CheckOutputs(spec).problems_size(), 0);
}

TEST(CheckFiles, NamesAPredictionThatWouldReplaceAFile) {
  files::TempDir folder;
  ASSERT_TRUE(files::WriteAtomically(folder.Path("p.npy"), "x").ok());
  v1::JobSpec spec;
  spec.add_stages()->mutable_fit();
  v1::PredictStage* stage = spec.add_stages()->mutable_predict();
  stage->set_output(folder.Path("p.npy"));
  for (const v1::SpecProblems& problems : {CheckFiles(spec), CheckOutputs(spec)}) {
    ASSERT_EQ(problems.problems_size(), 1) << problems.DebugString();
    EXPECT_EQ(problems.problems(0).path(), "stages[1].predict.output");
    EXPECT_THAT(problems.problems(0).message(), HasSubstr("overwrite: true"));
  }
  stage->set_overwrite(true);
  EXPECT_EQ(CheckFiles(spec).problems_size(), 0);
  stage->set_output(folder.Path("another.npy"));
  stage->set_overwrite(false);
  EXPECT_EQ(CheckFiles(spec).problems_size(), 0);
}

TEST(CheckFiles, NamesPromptsThatDoNotFitTheModel) {
  files::TempDir folder;
  v1::JobSpec spec;
  spec.mutable_model()->mutable_gpt2()->set_vocab_size(10);
  spec.mutable_model()->mutable_gpt2()->set_context(8);
  v1::PredictStage* stage = spec.add_stages()->mutable_predict();
  stage->set_output(folder.Path("texts.json"));
  stage->mutable_generate()->set_max_tokens(4);
  stage->mutable_generate()->set_prompts_from(folder.Path("prompts.json"));
  const auto problem = [&]() -> std::string {
    const v1::SpecProblems problems = CheckFiles(spec);
    if (problems.problems_size() != 1) return problems.DebugString();
    EXPECT_EQ(problems.problems(0).path(), "stages[0].predict.generate.prompts");
    return problems.problems(0).message();
  };
  EXPECT_THAT(problem(), HasSubstr("No such file"));
  const auto write = [&](const std::string& text) {
    ASSERT_TRUE(files::WriteAtomically(folder.Path("prompts.json"), text).ok());
  };
  write("[[1, 2], 3]");
  EXPECT_THAT(problem(), HasSubstr("prompts.json: prompts[1]: expected a list of lists"));
  write("[[1, 2], [9, 10]]");
  EXPECT_THAT(problem(), HasSubstr("prompts.json: prompts[1]: token 1: found 10"));
  write("[[1, 2], []]");
  EXPECT_THAT(problem(), HasSubstr("prompts.json: prompts[1]: is empty"));
  write("[[1, 2, 3, 4], [1, 2, 3, 4, 5]]");
  EXPECT_THAT(problem(), HasSubstr("prompts[1]: found 5 tokens and 4 new ones"));
  write("[[1, 2, 3, 4]]");
  EXPECT_EQ(CheckFiles(spec).problems_size(), 0);
}

}  // namespace
}  // namespace muster::jobfile
