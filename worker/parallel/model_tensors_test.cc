#include "worker/parallel/model_tensors.h"

#include "ATen/TensorOperators.h"
#include "ATen/ops/empty.h"
#include "gtest/gtest.h"

namespace muster::parallel {
namespace {

at::Tensor Leaf() { return at::empty({3, 2}).requires_grad_(true); }

TEST(CheckParameters, NamesWhatDoesNotFit) {
  const auto refused = [&](const std::vector<models::Parameter>& parameters,
                           const std::string& text) {
    const absl::Status status = CheckParameters(parameters, at::kCPU);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(std::string(status.message()), text);
  };
  refused({{"w", at::Tensor()}}, "parameter 'w' is undefined");
  refused({{"w", at::empty({3}, at::TensorOptions(at::kMeta))}},
          "parameter 'w' is on meta, not on the CPU");
  refused({{"w", Leaf() + 1}}, "parameter 'w' is no leaf");
  refused({{"w", Leaf()}, {"w", Leaf()}}, "parameter 'w' appears twice");
  const at::Tensor tied = Leaf();
  refused({{"a", tied}, {"b", tied}}, "parameter 'b' is the same tensor as another one");
  refused({{"a", at::empty({3}, at::kHalf).requires_grad_(true)}},
          "parameter 'a' is trainable and Half, not float32 or float64");
  refused({{"a", at::empty({3, 2}).t().requires_grad_(true)}}, "parameter 'a' is not contiguous");
}

TEST(CheckParameters, TakesFrozenOnesOfAnyType) {
  EXPECT_TRUE(CheckParameters({{"a", Leaf()},
                               {"b", at::empty({2}, at::kDouble).requires_grad_(true)},
                               {"c", at::empty({2}, at::kHalf)},
                               {"d", at::empty({2}, at::kLong)}},
                              at::kCPU)
                  .ok());
}

TEST(CheckBuffers, NamesWhatDoesNotFit) {
  const auto refused = [&](const std::vector<models::Buffer>& buffers, const std::string& text) {
    const absl::Status status = CheckBuffers(buffers, at::kCPU);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(std::string(status.message()), text);
  };
  refused({{"b", at::Tensor()}}, "buffer 'b' is undefined");
  refused({{"b", at::empty({3}).requires_grad_(true)}}, "buffer 'b' requires a gradient");
  refused({{"b", at::empty({3, 2}).t()}}, "buffer 'b' is not contiguous");
  refused({{"b", at::empty({3}, at::kHalf)}}, "buffer 'b' is Half, not float32 or int64");
  refused({{"b", at::empty({3})}, {"b", at::empty({3})}}, "buffer 'b' appears twice");
}

TEST(SpecsOf, LeavesOutFrozenParameters) {
  std::vector<size_t> indices;
  const std::vector<models::Parameter> parameters = {
      {"a", at::empty({7})},
      {"b", Leaf()},
      {"c", at::empty({5}, at::kDouble).requires_grad_(true)}};
  const auto specs = SpecsOf(parameters, TrainedOf(parameters), true, &indices);
  ASSERT_EQ(specs.size(), 2u);
  EXPECT_EQ(indices, (std::vector<size_t>{1, 2}));
  EXPECT_EQ(specs[0].name, "b");
  EXPECT_EQ(specs[0].elements, 6);
  EXPECT_EQ(specs[1].type, layout::ElementType::kFloat64);
}

}  // namespace
}  // namespace muster::parallel
