#include "worker/models/language/attention.h"

#include <optional>

#include "ATen/core/Tensor.h"
#include "ATen/ops/randn.h"
#include "ATen/ops/scaled_dot_product_attention.h"
#include "ATen/ops/tensor.h"
#include "gtest/gtest.h"
#include "worker/models/seed.h"

namespace muster::models {
namespace {

TEST(AttentionTest, ATokenSeesItsDocumentUpToItself) {
  const at::Tensor positions = at::tensor({0, 1, 0, 1, 2}, at::kLong).view({1, 5});
  const at::Tensor expected = at::tensor({1, 0, 0, 0, 0,  //
                                          1, 1, 0, 0, 0,  //
                                          0, 0, 1, 0, 0,  //
                                          0, 0, 1, 1, 0,  //
                                          0, 0, 1, 1, 1},
                                         at::kLong)
                                  .view({1, 1, 5, 5});
  EXPECT_TRUE(SeenInDocuments(positions).to(at::kLong).equal(expected));
  at::Tensor with_window = expected.clone();
  with_window[0][0][4][2] = 0;
  EXPECT_TRUE(SeenInDocuments(positions, 2).to(at::kLong).equal(with_window));
}

TEST(AttentionTest, EachDocumentByItselfIsTheSameAsWithAMask) {
  const at::Tensor positions =
      at::tensor({0, 1, 2, 0, 1, 2, 3, 0, 0, 0, 1, 2, 3, 4, 5, 0}, at::kLong).view({2, 8});
  at::Generator generator = MakeGenerator(1);
  const at::Tensor q = at::randn({2, 4, 8, 6}, generator, at::kFloat);
  const at::Tensor k = at::randn({2, 2, 8, 6}, generator, at::kFloat);
  const at::Tensor v = at::randn({2, 2, 8, 6}, generator, at::kFloat);
  for (const Window window : {Window(), Window(2), Window(3)}) {
    const at::Tensor expected =
        at::scaled_dot_product_attention(q, k, v, SeenInDocuments(positions, window), 0.0,
                                         /*is_causal=*/false, std::nullopt, /*enable_gqa=*/true);
    EXPECT_TRUE(DocumentAttention(q, k, v, positions, window).allclose(expected, 0, 1e-6));
  }
}

}  // namespace
}  // namespace muster::models
