#include "worker/models/deferred_values.h"

#include <nlohmann/json.hpp>

#include "gtest/gtest.h"
#include "worker/models/init.h"
#include "worker/models/spec_from_json.h"

namespace muster::models {
namespace {

TEST(DeferredValues, AModelMadeSoHasNoMemoryAndTheSameValues) {
  const nlohmann::json options = {
      {"vocab_size", 11}, {"context", 4}, {"layers", 1}, {"heads", 1}, {"width", 4}};
  const auto whole = CreateFromJson("gpt2", options, 3);
  ASSERT_TRUE(whole.ok()) << whole.status();
  DeferredValues values;
  absl::StatusOr<std::unique_ptr<Model>> model;
  {
    const DeferredValues::Scope scope(&values);
    model = CreateFromJson("gpt2", options, 3);
  }
  ASSERT_TRUE(model.ok()) << model.status();
  const auto expected = (*whole)->Parameters();
  const auto found = (*model)->Parameters();
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_EQ(found[i].tensor.sizes(), expected[i].tensor.sizes());
    EXPECT_TRUE(found[i].tensor.requires_grad());
    EXPECT_EQ(found[i].tensor.storage().nbytes(), 0u) << found[i].name;
    EXPECT_TRUE(values.Has(found[i].tensor));
    EXPECT_TRUE(values.Of(found[i].tensor).equal(expected[i].tensor)) << found[i].name;
  }
  EXPECT_FALSE(values.Has(expected[0].tensor));
  EXPECT_TRUE(values.Of(expected[0].tensor).equal(expected[0].tensor));
}

TEST(DeferredValues, ARangeHasTheElementsOfTheWhole) {
  DeferredValues values;
  at::Tensor tensor;
  {
    const DeferredValues::Scope scope(&values);
    tensor = NormalInit(1, "a", {3, 4}, 1);
  }
  const at::Tensor whole = NormalInit(1, "a", {3, 4}, 1).flatten();
  EXPECT_TRUE(values.Range(tensor, 2, 7).equal(whole.slice(0, 2, 7)));
  EXPECT_EQ(values.Range(tensor, 5, 5).numel(), 0);
  std::vector<int64_t> asked;
  values.Replace(tensor, [&asked](int64_t begin, int64_t end) {
    asked = {begin, end};
    return ConstantInit({end - begin}, 1);
  });
  EXPECT_EQ(values.Range(tensor, 2, 7).numel(), 5);
  EXPECT_EQ(asked, (std::vector<int64_t>{2, 7})) << "no more than this is made";
  values.Settle(tensor);
  EXPECT_EQ(tensor.sizes(), (std::vector<int64_t>{3, 4}));
  EXPECT_EQ(values.Range(tensor, 2, 7).numel(), 5) << "of a tensor with memory";
}

TEST(DeferredValues, OutsideOfAScopeNothingIsDeferred) {
  DeferredValues values;
  {
    const DeferredValues::Scope scope(&values);
    EXPECT_EQ(ConstantInit({3}, 1).storage().nbytes(), 0u);
  }
  EXPECT_EQ(ConstantInit({3}, 1).storage().nbytes(), 12u);
}

TEST(DeferredValues, AreReplacedAndSettled) {
  DeferredValues values;
  at::Tensor tensor;
  {
    const DeferredValues::Scope scope(&values);
    tensor = ConstantInit({2, 2}, 1);
  }
  values.Replace(tensor, [](int64_t begin, int64_t end) { return ConstantInit({end - begin}, 5); });
  EXPECT_TRUE(values.Of(tensor).equal(ConstantInit({2, 2}, 5)));
  values.Settle(tensor);
  EXPECT_FALSE(values.Has(tensor));
  EXPECT_TRUE(tensor.equal(ConstantInit({2, 2}, 5)));
  values.Settle(tensor);
}

}  // namespace
}  // namespace muster::models
