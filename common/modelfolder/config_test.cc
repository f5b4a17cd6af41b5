#include "common/modelfolder/folder.h"

#include <gtest/gtest.h>

#include "common/safetensors/safetensors.h"
#include "nlohmann/json.hpp"

namespace muster::modelfolder {
namespace {

using nlohmann::json;
using safetensors::DType;

constexpr char kOwn[] =
    R"({"model_type": "gpt2", "dtype": "float32", "n_layer": 2, "eos_token_id": null})";

TEST(FolderConfig, KeepsWhatOnlyTheSourceKnowsAndTheModelsOwnNumbers) {
  const std::string source =
      R"({"model_type": "gpt2", "torch_dtype": "float32", "n_layer": 12, "eos_token_id": 50256})";
  EXPECT_EQ(json::parse(FolderConfig(kOwn, source, DType::kBF16)),
            json::parse(R"({"model_type": "gpt2", "dtype": "bfloat16", "n_layer": 2,
                            "eos_token_id": 50256})"));
}

TEST(FolderConfig, TakesNothingFromAnotherKindOfModelOrFromWhatIsNoConfig) {
  for (const char* source : {R"({"model_type": "llama", "eos_token_id": 2})", "", "[]", "{"}) {
    EXPECT_EQ(json::parse(FolderConfig(kOwn, source, DType::kF32)), json::parse(kOwn)) << source;
  }
}

TEST(FolderConfig, AModelWithoutAConfigHasNone) {
  EXPECT_EQ(FolderConfig("", R"({"model_type": "gpt2"})", DType::kF32), "");
}

}  // namespace
}  // namespace muster::modelfolder
