// A fixture for tests of models from TorchScript files. LibTorch saves the scripts of these tests;
// tests/parity/torchscript_test.py has files that Python wrote.
#ifndef MUSTER_WORKER_MODELS_TORCHSCRIPT_SCRIPT_FIXTURE_H_
#define MUSTER_WORKER_MODELS_TORCHSCRIPT_SCRIPT_FIXTURE_H_

#include <memory>
#include <string>
#include <utility>

#include "ATen/core/Tensor.h"
#include "ATen/ops/ones.h"
#include "ATen/ops/randn.h"
#include "absl/status/statusor.h"
#include "common/files/temp_dir.h"
#include "common/status/status.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "torch/csrc/jit/api/module.h"
#include "worker/models/model.h"
#include "worker/models/seed.h"
#include "worker/models/spec_from_json.h"

namespace muster::models {

inline constexpr char kLinear[] = "  return torch.linear(x, self.weight)\n";

// Adds the attribute `training`, and the method forward.
inline torch::jit::Module WithMode(torch::jit::Module module, const std::string& forward) {
  module.register_attribute("training", c10::BoolType::get(), true);
  module.define("def forward(self, x: Tensor):\n" + forward);
  return module;
}

// A module of 3 numbers -> 2 classes with the buffer `seen`. `forward` comes before kLinear.
inline torch::jit::Module WithBuffer(const at::Tensor& buffer, const std::string& forward) {
  torch::jit::Module module{c10::QualifiedName("__torch__.M")};
  module.register_parameter("weight", at::ones({2, 3}).requires_grad_(true), false);
  module.register_buffer("seen", buffer);
  module.register_attribute("training", c10::BoolType::get(), true);
  module.define("def forward(self, x: Tensor):\n" + forward + kLinear);
  return module;
}

class TorchscriptTest : public ::testing::Test {
 protected:
  // Returns a module of 3 numbers -> 2 classes, with the parameter `weight`.
  static torch::jit::Module Linear(const std::string& forward,
                                   const std::string& name = "__torch__.M") {
    torch::jit::Module module{c10::QualifiedName(name)};
    module.register_parameter("weight", at::randn({2, 3}, MakeGenerator(1)).requires_grad_(true),
                              false);
    if (!forward.empty()) module.define("def forward(self, x: Tensor):\n" + forward);
    return module;
  }

  absl::StatusOr<std::unique_ptr<Model>> Make(const torch::jit::Module& module,
                                              nlohmann::json options = {}) {
    module.save(folder_.Path("model.pt"));
    return Open("model.pt", std::move(options));
  }
  absl::StatusOr<std::unique_ptr<Model>> Open(const std::string& name,
                                              nlohmann::json options = {}) {
    if (options.is_null()) options = {{"inputs", {3}}, {"classes", 2}};
    options["path"] = folder_.Path(name);
    return CreateFromJson("torchscript", options, 0);
  }
  std::string Error(const torch::jit::Module& module, nlohmann::json options = {}) {
    const auto model = Make(module, std::move(options));
    EXPECT_FALSE(model.ok());
    return Message(model.status());
  }

  files::TempDir folder_;
  ForwardContext training_{Mode::kTrain, MakeGenerator(7)};
  ForwardContext evaluating_{Mode::kEvaluate, MakeGenerator(7)};
  const at::Tensor rows_ = at::randn({4, 3}, MakeGenerator(2));
};

}  // namespace muster::models

#endif  // MUSTER_WORKER_MODELS_TORCHSCRIPT_SCRIPT_FIXTURE_H_
