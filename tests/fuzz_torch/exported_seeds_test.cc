// The inputs from which the fuzzer of an exported model's files begins: a reader that refuses them
// at once, because the format has changed, would leave the fuzzer nothing to find.
#include <filesystem>
#include <string>

#include "common/files/mapped_file.h"
#include "common/safetensors/strict_json.h"
#include "gtest/gtest.h"
#include "worker/models/exported/graph.h"
#include "worker/models/exported/input.h"
#include "worker/models/exported/manifest.h"

namespace muster::models::exported {
namespace {

TEST(ExportedSeeds, AreReadToTheEnd) {
  for (const std::string name : {"logits.json", "loss.json"}) {
    SCOPED_TRACE(name);
    const auto bytes = files::MappedFile::Open("tests/fuzz/corpus/exported/" + name);
    ASSERT_TRUE(bytes.ok()) << bytes.status();
    const auto file = safetensors::ParseStrictJson(bytes->data(), bytes->size());
    ASSERT_TRUE(file.ok()) << file.status();
    const auto manifest = ReadManifest((*file)["manifest"]);
    ASSERT_TRUE(manifest.ok()) << manifest.status();
    EXPECT_TRUE(InputOf(*manifest).ok()) << InputOf(*manifest).status();
    const auto graph = ReadGraph((*file)["graph"], manifest->units, {"table"}, GraphUse::kTraining);
    EXPECT_TRUE(graph.ok()) << graph.status();
  }
}

}  // namespace
}  // namespace muster::models::exported
