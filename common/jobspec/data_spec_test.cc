// The rules of data.
#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "common/jobspec/jobspec.h"
#include "common/jobspec/spec_case.h"

namespace muster::jobspec {
namespace {

using ::testing::IsEmpty;

v1::JobSpec Parse(const std::string& text) {
  v1::JobSpec spec;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &spec)) << text;
  return spec;
}

v1::JobSpec TokensJob() {
  return Parse(R"(
    name: "tiny" world_size: 2
    model { gpt2 { vocab_size: 256 context: 32 layers: 2 heads: 4 width: 64 } }
    data {
      train { tokens { path: "/d/train.bin" } }
      validate { tokens { path: "/d/val.bin" } }
    }
    optimizer { adamw { lr: 0.001 } }
    batch { per_rank: 8 }
    stages { fit { steps: 100 validate_every: 10 } }
    stages { validate {} })");
}

v1::DataSet* Train(v1::JobSpec* s) { return s->mutable_data()->mutable_train(); }

// The training data of a job that trains an mlp.
v1::DataSet* Rows(v1::JobSpec* s) {
  if (!s->model().has_mlp() && !s->model().has_exported()) {
    s->mutable_model()->mutable_mlp()->set_inputs(4);
    s->mutable_model()->mutable_mlp()->set_classes(3);
    s->mutable_data()->clear_validate();
    s->clear_stages();
    s->add_stages()->mutable_fit()->set_steps(100);
  }
  return Train(s);
}

void AddPart(google::protobuf::RepeatedPtrField<v1::MixturePart>* mixture, const std::string& path,
             double weight) {
  v1::MixturePart* const part = mixture->Add();
  part->add_path(path);
  part->set_weight(weight);
}

// Adds an input by its name, of an exported model.
void AddArray(v1::JobSpec* s, const std::string& name, const std::vector<std::string>& paths) {
  v1::NpyArray* array = Rows(s)->mutable_npy()->add_arrays();
  s->mutable_model()->set_exported("/folder");
  array->set_name(name);
  for (const std::string& path : paths) array->add_path(path);
}

using Case = SpecCase;

class ValidateDataFinds : public testing::TestWithParam<Case> {};

TEST_P(ValidateDataFinds, TheOneProblemAlsoWithDefaultsFilledIn) {
  ExpectTheOneProblem(TokensJob(), GetParam());
}

INSTANTIATE_TEST_SUITE_P(
    Table, ValidateDataFinds,
    testing::Values(
        Case{"RelativePath",
             [](auto* s) { s->mutable_data()->mutable_train()->mutable_tokens()->add_path("b"); },
             "data.train.tokens.path[1]", "found 'b'"},
        Case{"EmptyPath",
             [](auto* s) { s->mutable_data()->mutable_train()->mutable_tokens()->set_path(0, ""); },
             "data.train.tokens.path[0]", "is empty"},
        Case{"NoPath",
             [](auto* s) { s->mutable_data()->mutable_train()->mutable_tokens()->clear_path(); },
             "data.train.tokens.path", "one or more"},
        Case{"NoKindOfData", [](auto* s) { s->mutable_data()->mutable_train()->clear_kind(); },
             "data.train", "one of: tokens, safetensors, idx, npy"},
        Case{"RowsForGpt2",
             [](auto* s) {
               s->mutable_data()->mutable_validate()->mutable_safetensors()->add_path("/x");
             },
             "data.validate.safetensors", "gpt2 reads tokens"},
        Case{"NoDocuments", [](auto* s) { Train(s)->mutable_documents(); },
             "data.train.documents.path", "is missing; allowed: one or more paths, or mixture"},
        Case{"DocumentsAndMixture",
             [](auto* s) {
               Train(s)->mutable_documents()->add_path("/a");
               AddPart(Train(s)->mutable_documents()->mutable_mixture(), "/b", 1);
             },
             "data.train.documents.path", "found together with mixture"},
        Case{"DocumentsPerRank",
             [](auto* s) {
               Train(s)->mutable_documents()->add_path("/a");
               Train(s)->add_per_rank("/a"), Train(s)->add_per_rank("/b");
             },
             "data.train.per_rank", "found together with documents"},
        Case{"DocumentsThatStopAtTheFirst",
             [](auto* s) {
               Train(s)->mutable_documents()->add_path("/a");
               s->mutable_uneven_inputs()->mutable_stop_at_first();
             },
             "uneven_inputs.stop_at_first", "allowed: join"},
        Case{"DocumentsForRows", [](auto* s) { Rows(s)->mutable_documents()->add_path("/a"); },
             "data.train.documents", "found tokens, but the model mlp reads rows"},
        Case{"MixtureOfTokensPerRank",
             [](auto* s) {
               Train(s)->mutable_tokens()->clear_path();
               AddPart(Train(s)->mutable_tokens()->mutable_mixture(), "/b", 1);
               Train(s)->add_per_rank("/a"), Train(s)->add_per_rank("/b");
             },
             "data.train.per_rank", "found together with tokens.mixture"},
        Case{"MixtureForValidation",
             [](auto* s) {
               v1::TokenData* tokens = s->mutable_data()->mutable_validate()->mutable_tokens();
               tokens->clear_path();
               AddPart(tokens->mutable_mixture(), "/b", 1);
             },
             "data.validate.tokens.mixture", "allowed only in data.train"},
        Case{"MixtureWithoutAWeight",
             [](auto* s) {
               Train(s)->mutable_tokens()->clear_path();
               AddPart(Train(s)->mutable_tokens()->mutable_mixture(), "/b", 0);
             },
             "data.train.tokens.mixture[0].weight", ""},
        Case{"MixtureWithoutAPath",
             [](auto* s) {
               Train(s)->mutable_tokens()->clear_path();
               Train(s)->mutable_tokens()->add_mixture()->set_weight(1);
             },
             "data.train.tokens.mixture[0].path", ""},
        Case{"PerRankAndPath",
             [](auto* s) { Train(s)->add_per_rank("/a"), Train(s)->add_per_rank("/b"); },
             "data.train.per_rank", "found together with tokens.path"},
        Case{"PerRankTooFew",
             [](auto* s) {
               Train(s)->mutable_tokens()->clear_path();
               Train(s)->add_per_rank("/a");
             },
             "data.train.per_rank", "found 1; allowed: as many paths as world_size, 2"},
        Case{"PerRankEmpty",
             [](auto* s) {
               Train(s)->mutable_tokens()->clear_path();
               Train(s)->add_per_rank("/a");
               Train(s)->add_per_rank("");
             },
             "data.train.per_rank[1]", "is empty"},
        Case{"PerRankThatEndsAtTheShortestAndUnevenInputs",
             [](auto* s) {
               Train(s)->mutable_tokens()->clear_path();
               Train(s)->add_per_rank("/a");
               Train(s)->add_per_rank("/b");
               s->mutable_batch()->set_last(v1::BatchSpec::PAD);
               s->mutable_uneven_inputs()->mutable_join();
             },
             "batch.last", "found pad together with data.train.per_rank and uneven_inputs"},
        Case{"PerRankOfNpy",
             [](auto* s) {
               Rows(s)->mutable_npy()->add_inputs("/x");
               Rows(s)->mutable_npy()->add_labels("/y");
               Rows(s)->add_per_rank("/a");
             },
             "data.train.per_rank", "only with tokens and safetensors"},
        Case{"PerRankOfIdx",
             [](auto* s) {
               Rows(s)->mutable_idx()->add_images("/x");
               Rows(s)->mutable_idx()->add_labels("/y");
               Rows(s)->add_per_rank("/a");
             },
             "data.train.per_rank", "found together with idx"},
        Case{"NpyWithoutLabels", [](auto* s) { Rows(s)->mutable_npy()->add_inputs("/x"); },
             "data.train.npy.labels", "is missing"},
        Case{"NpyWithoutInputs", [](auto* s) { Rows(s)->mutable_npy()->add_labels("/x"); },
             "data.train.npy.inputs", "is missing"},
        Case{"NpyArraysForAModelOfRows",
             [](auto* s) {
               AddArray(s, "ids", {"/a"});
               s->mutable_model()->clear_kind();
               Rows(s);
             },
             "data.train.npy.arrays", "found with the model mlp, which takes one input"},
        Case{"NpyInputsAndArrays",
             [](auto* s) {
               Rows(s)->mutable_npy()->add_inputs("/x");
               Rows(s)->mutable_npy()->add_labels("/y");
               AddArray(s, "ids", {"/a"});
             },
             "data.train.npy.inputs", "found together with arrays; allowed: one of the two"},
        Case{"NpyArrayWithoutAName", [](auto* s) { AddArray(s, "", {"/a"}); },
             "data.train.npy.arrays[0].name",
             "is missing; allowed: the name of one of the model's inputs"},
        Case{"NpyArrayTwice",
             [](auto* s) { AddArray(s, "ids", {"/a"}), AddArray(s, "ids", {"/b"}); },
             "data.train.npy.arrays[1].name", "found 'ids' twice; allowed: each name once"},
        Case{"NpyArraysOfDifferentNumbersOfFiles",
             [](auto* s) { AddArray(s, "ids", {"/a", "/b"}), AddArray(s, "mask", {"/c"}); },
             "data.train.npy.arrays[1].path", "found 1; allowed: as many paths as ids, 2"},
        Case{"NpyLabelsOfAnotherNumberOfFiles",
             [](auto* s) {
               AddArray(s, "ids", {"/a", "/b"});
               Rows(s)->mutable_npy()->add_labels("/y");
             },
             "data.train.npy.labels", "found 1; allowed: as many paths as ids, 2"},
        Case{"NpyRelative",
             [](auto* s) {
               Rows(s)->mutable_npy()->add_inputs("x");
               Rows(s)->mutable_npy()->add_labels("/y");
             },
             "data.train.npy.inputs[0]", "absolute path"},
        Case{"IdxPairs",
             [](auto* s) {
               Rows(s)->mutable_idx()->add_images("/x");
               Rows(s)->mutable_idx()->add_images("/y");
               Rows(s)->mutable_idx()->add_labels("/z");
             },
             "data.train.idx.labels", "found 1; allowed: as many paths as images, 2"},
        Case{"IdxStd",
             [](auto* s) {
               Rows(s)->mutable_idx()->add_images("/x");
               Rows(s)->mutable_idx()->add_labels("/z");
               Rows(s)->mutable_idx()->set_std(0);
             },
             "data.train.idx.std", "found 0; allowed: a number above 0"},
        Case{"IdxMean",
             [](auto* s) {
               Rows(s)->mutable_idx()->add_images("/x");
               Rows(s)->mutable_idx()->add_labels("/z");
               Rows(s)->mutable_idx()->set_mean(std::numeric_limits<double>::infinity());
             },
             "data.train.idx.mean", "finite"},
        Case{"IdxForGpt2",
             [](auto* s) {
               s->mutable_data()->mutable_validate()->mutable_idx()->add_images("/x");
               s->mutable_data()->mutable_validate()->mutable_idx()->add_labels("/x");
             },
             "data.validate.idx", "gpt2 reads tokens"},
        Case{"IdxForNumbers",
             [](auto* s) {
               Rows(s)->mutable_idx()->add_images("/x");
               Rows(s)->mutable_idx()->add_labels("/z");
               s->mutable_loss()->mutable_mse();
             },
             "data.train.idx", "the loss mse needs numbers"},
        Case{"RowsForLlama",
             [](auto* s) {
               *s->mutable_model() = Parse(R"(model {
                   llama { vocab_size: 256 context: 32 layers: 2 heads: 4 width: 64 } })")
                                         .model();
               s->mutable_data()->mutable_validate()->mutable_safetensors()->add_path("/x");
             },
             "data.validate.safetensors", "llama reads tokens"},
        Case{"NoTrain", [](auto* s) { s->mutable_data()->clear_train(); }, "data.train",
             "fit needs it"},
        Case{"NoValidate", [](auto* s) { s->mutable_data()->clear_validate(); }, "data.validate",
             "stages[0].fit.validate_every needs it"}),
    [](const auto& info) { return info.param.name; });

TEST(ResolveDefaults, FillsInHowImagesAreScaled) {
  v1::JobSpec spec = TokensJob();
  Rows(&spec)->mutable_idx()->add_images("/x");
  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(
      ResolveDefaults(spec).data(),
      Parse(R"(data { train { idx { images: "/x" mean: 0 std: 1 } } })").data()));
}

// A token of 2 bytes cannot have a number from 65536 on.
TEST(ResolveDefaults, TokensHaveTheWidthOfTheVocabulary) {
  const auto dtype = [](uint32_t vocab_size, v1::TokenData::Dtype given) {
    v1::JobSpec spec = TokensJob();
    spec.mutable_model()->mutable_gpt2()->set_vocab_size(vocab_size);
    Train(&spec)->mutable_tokens()->set_dtype(given);
    const v1::DataSpec data = ResolveDefaults(spec).data();
    EXPECT_EQ(data.validate().tokens().dtype(),
              vocab_size > 65536 ? v1::TokenData::UINT32 : v1::TokenData::UINT16);
    return data.train().tokens().dtype();
  };
  EXPECT_EQ(dtype(65536, v1::TokenData::DTYPE_UNSPECIFIED), v1::TokenData::UINT16);
  EXPECT_EQ(dtype(65537, v1::TokenData::DTYPE_UNSPECIFIED), v1::TokenData::UINT32);
  EXPECT_EQ(dtype(65537, v1::TokenData::UINT16), v1::TokenData::UINT16) << "what is given counts";
}

TEST(ResolveDefaults, SaysWhatUnevenInputsDoWhereThereMayBeSome) {
  v1::JobSpec spec = TokensJob();
  EXPECT_FALSE(ResolveDefaults(spec).has_uneven_inputs());
  spec.mutable_batch()->set_last(v1::BatchSpec::UNEVEN);
  EXPECT_EQ(ResolveDefaults(spec).uneven_inputs().join().divide_by(), v1::JoinSpec::INITIAL);
  spec.mutable_batch()->clear_last();
  spec.mutable_uneven_inputs()->mutable_join()->set_divide_by(v1::JoinSpec::SAMPLES);
  EXPECT_EQ(ResolveDefaults(spec).batch().last(), v1::BatchSpec::UNEVEN);
  EXPECT_EQ(ResolveDefaults(spec).uneven_inputs().join().divide_by(), v1::JoinSpec::SAMPLES);
  spec.mutable_uneven_inputs()->mutable_stop_at_first();
  spec.mutable_batch()->set_last(v1::BatchSpec::DROP);
  EXPECT_EQ(ResolveDefaults(spec).batch().last(), v1::BatchSpec::DROP);
  EXPECT_TRUE(ResolveDefaults(spec).uneven_inputs().has_stop_at_first());
}

TEST(ResolveDefaults, TheLossOfDocumentsIsTheMeanOverAllTheirTargets) {
  v1::JobSpec spec = TokensJob();
  Train(&spec)->mutable_documents()->add_path("/d/train.safetensors");
  const v1::JobSpec resolved = ResolveDefaults(spec);
  EXPECT_EQ(resolved.uneven_inputs().join().divide_by(), v1::JoinSpec::SAMPLES);
  EXPECT_EQ(resolved.batch().last(), v1::BatchSpec::DROP);
  EXPECT_EQ(resolved.data().train().documents().packing(), v1::DocumentData::BEST_FIT);
  EXPECT_THAT(ValidateSpec(resolved).problems(), IsEmpty());
  spec.mutable_uneven_inputs()->mutable_join()->set_divide_by(v1::JoinSpec::INITIAL);
  EXPECT_EQ(ResolveDefaults(spec).uneven_inputs().join().divide_by(), v1::JoinSpec::INITIAL);
}

TEST(ValidateData, TakesUnevenInputsOverACommonSetWhateverItsEnd) {
  v1::JobSpec spec = TokensJob();
  spec.mutable_batch()->set_last(v1::BatchSpec::DROP);
  spec.mutable_uneven_inputs()->mutable_join();
  EXPECT_THAT(ValidateSpec(spec).problems(), IsEmpty());
}

TEST(ValidateData, TakesAFileForEachRank) {
  v1::JobSpec spec = TokensJob();
  Train(&spec)->mutable_tokens()->clear_path();
  Train(&spec)->add_per_rank("/a");
  Train(&spec)->add_per_rank("/b");
  EXPECT_THAT(ValidateSpec(spec).problems(), IsEmpty());
}

TEST(ValidateData, RefusesTokensForRows) {
  v1::JobSpec spec = TokensJob();
  spec.mutable_model()->mutable_mlp()->set_inputs(3);
  spec.mutable_model()->mutable_mlp()->add_hidden(0);
  EXPECT_EQ(FormatProblems(ValidateSpec(spec)),
            "model.mlp.hidden[0]: found 0; allowed: 1 to 16777216\n"
            "model.mlp.classes: is missing or 0; allowed: 1 to 16777216\n"
            "data.train.tokens: found tokens, but the model mlp reads rows of numbers; allowed: "
            "safetensors, idx, npy\n"
            "data.validate.tokens: found tokens, but the model mlp reads rows of numbers; allowed: "
            "safetensors, idx, npy\n");
}

}  // namespace
}  // namespace muster::jobspec
