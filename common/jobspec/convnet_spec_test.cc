// The rules of model.convnet.
#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <string>

#include "common/jobspec/jobspec.h"
#include "common/jobspec/spec_case.h"

namespace muster::jobspec {
namespace {

using ::testing::IsEmpty;

v1::JobSpec ConvnetJob() {
  v1::JobSpec spec;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(R"(
    name: "images" world_size: 2
    model { convnet { inputs: [1, 28, 20] widths: [16, 32] blocks: [2, 1] classes: 10 } }
    data { train { safetensors { path: "/d/train.safetensors" } } }
    optimizer { sgd { lr: 0.1 } }
    batch { per_rank: 1 }
    stages { fit { steps: 100 } })",
                                                            &spec));
  return spec;
}

v1::ConvnetSpec* Convnet(v1::JobSpec* s) { return s->mutable_model()->mutable_convnet(); }

void AddStages(v1::JobSpec* s, int count) {
  for (int i = 0; i < count; ++i) {
    Convnet(s)->add_widths(8);
    Convnet(s)->add_blocks(1);
  }
}

TEST(ValidateConvnet, TakesWhatMayRunWithAndWithoutDefaults) {
  EXPECT_THAT(ValidateSpec(ConvnetJob()).problems(), IsEmpty());
  EXPECT_THAT(ValidateSpec(ResolveDefaults(ConvnetJob())).problems(), IsEmpty());
}

using Case = SpecCase;

class ValidateConvnetFinds : public testing::TestWithParam<Case> {};

TEST_P(ValidateConvnetFinds, TheOneProblem) { ExpectTheOneProblem(ConvnetJob(), GetParam()); }

INSTANTIATE_TEST_SUITE_P(
    Table, ValidateConvnetFinds,
    testing::Values(
        Case{"NoInputs", [](auto* s) { Convnet(s)->clear_inputs(); }, "model.convnet.inputs",
             "is missing or empty; allowed: 3 numbers"},
        Case{"TwoInputs", [](auto* s) { Convnet(s)->mutable_inputs()->RemoveLast(); },
             "model.convnet.inputs", "found a list of 2; allowed: 3 numbers"},
        Case{"FourInputs", [](auto* s) { Convnet(s)->add_inputs(1); }, "model.convnet.inputs",
             "found a list of 4; allowed: 3 numbers"},
        Case{"ZeroInput", [](auto* s) { Convnet(s)->set_inputs(1, 0); }, "model.convnet.inputs[1]",
             "found 0"},
        Case{"HugeInput", [](auto* s) { Convnet(s)->set_inputs(2, 70000); },
             "model.convnet.inputs[2]", "found 70000; allowed: 1 to 65536"},
        Case{"NoWidths", [](auto* s) { Convnet(s)->clear_widths(); }, "model.convnet.widths",
             "is missing or empty"},
        Case{"HugeWidth", [](auto* s) { Convnet(s)->set_widths(1, 70000); },
             "model.convnet.widths[1]", "found 70000"},
        Case{"ZeroBlocks", [](auto* s) { Convnet(s)->set_blocks(0, 0); }, "model.convnet.blocks[0]",
             "found 0"},
        Case{"NoBlocks", [](auto* s) { Convnet(s)->clear_blocks(); }, "model.convnet.blocks",
             "is missing or empty"},
        Case{"ManyBlocks", [](auto* s) { Convnet(s)->add_blocks(1); }, "model.convnet.blocks",
             "found 3 numbers; allowed: as many as widths, 2"},
        Case{"NoClasses", [](auto* s) { Convnet(s)->set_classes(0); }, "model.convnet.classes",
             "is missing or 0"},
        Case{
            "SevenStages", [](auto* s) { AddStages(s, 5); }, "model.convnet.widths",
            "found 7 stages; allowed: at most 6, after which an image of 28 x 20 pixels is down to "
            "one"},
        Case{"OneNumberPerChannel", [](auto* s) { AddStages(s, 4); }, "batch.per_rank",
             "found 1; allowed: 2 or more"},
        Case{"Tokens",
             [](auto* s) { s->mutable_data()->mutable_train()->mutable_tokens()->add_path("/x"); },
             "data.train.tokens", "found tokens, but the model convnet reads rows"}),
    [](const auto& info) { return info.param.name; });

TEST(ValidateConvnet, TakesOneRowOfOnePixelWhereNothingIsTrained) {
  v1::JobSpec spec = ConvnetJob();
  AddStages(&spec, 4);
  *spec.mutable_data()->mutable_validate() = spec.data().train();
  spec.mutable_stages(0)->mutable_validate();
  EXPECT_THAT(ValidateSpec(spec).problems(), IsEmpty());
}

TEST(ValidateConvnet, TakesTwoRowsOfOnePixel) {
  v1::JobSpec spec = ConvnetJob();
  AddStages(&spec, 4);
  spec.mutable_batch()->set_per_rank(2);
  EXPECT_THAT(ValidateSpec(spec).problems(), IsEmpty());
}

}  // namespace
}  // namespace muster::jobspec
