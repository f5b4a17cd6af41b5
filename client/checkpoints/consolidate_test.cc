#include "client/checkpoints/consolidate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "common/files/files.h"
#include "common/files/hash.h"
#include "common/files/temp_dir.h"
#include "common/manifest/manifest.h"
#include "common/safetensors/safetensors.h"

namespace muster::checkpoints {
namespace {

// Writes a checkpoint of one parameter `w`, which the manifest lists or not.
void WriteCheckpoint(const std::string& directory, bool listed) {
  ASSERT_TRUE(std::filesystem::create_directory(directory));
  const auto plan = safetensors::Plan({{"param/w", safetensors::DType::kF32, {2}}}, {});
  ASSERT_TRUE(plan.ok()) << plan.status();
  const std::string text = plan->prefix + std::string(8, '\0');
  ASSERT_TRUE(files::WriteAtomically(directory + "/rank-0.safetensors", text).ok());
  const std::string hash = files::HashBytes(text.data(), text.size());
  manifest::Manifest manifest{.job = "j", .step = 12, .generation = 3, .world_size = 1};
  manifest.strategy = "ddp";
  manifest.model_kind = "mlp";
  manifest.optimizer = {"sgd", {{{"lr", {0.5}}}}};
  if (listed) manifest.parameters = {{"w", {2}, "F32", true, true, 0}};
  manifest.files = {{"rank-0.safetensors", text.size(), hash, {hash}}};
  manifest.pieces = {{"param",
                      "w",
                      {2},
                      0,
                      2,
                      "rank-0.safetensors",
                      "F32",
                      static_cast<int64_t>(plan->prefix.size())}};
  ASSERT_TRUE(manifest::Write(manifest, directory).ok());
}

TEST(Consolidate, WritesTheParametersThatAreListed) {
  files::TempDir dir;
  WriteCheckpoint(dir.Path("step-12-g3"), /*listed=*/true);
  const auto done = Consolidate(dir.Path("step-12-g3"), dir.Path("model"), {});
  ASSERT_TRUE(done.ok()) << done.status();
  const auto file = safetensors::File::Open(dir.Path("model/model.safetensors"));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_NE(file->Find("w"), nullptr);
}

TEST(Consolidate, ACheckpointThatListsNoParametersIsRefusedAndNothingIsWritten) {
  files::TempDir dir;
  WriteCheckpoint(dir.Path("step-12-g3"), /*listed=*/false);
  const auto refused = Consolidate(dir.Path("step-12-g3"), dir.Path("model"), {});
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kFailedPrecondition) << refused.status();
  EXPECT_THAT(std::string(refused.status().message()),
              testing::HasSubstr("has 1 parameters and lists 0"));
  EXPECT_FALSE(std::filesystem::exists(dir.Path("model")));
}

}  // namespace
}  // namespace muster::checkpoints
