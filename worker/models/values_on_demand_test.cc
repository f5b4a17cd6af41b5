#include "worker/models/values_on_demand.h"

#include <memory>
#include <nlohmann/json.hpp>

#include "ATen/core/Tensor.h"
#include "ATen/core/grad_mode.h"
#include "ATen/ops/ones.h"
#include "gtest/gtest.h"
#include "worker/memory/counting_allocator.h"
#include "worker/models/seed.h"
#include "worker/models/spec_from_json.h"

namespace muster::models {
namespace {

TEST(ValuesOnDemand, AForwardHasTheSameResultAndNotAllParametersAtATime) {
  memory::InstallCountingAllocator();
  const nlohmann::json options = {
      {"inputs", 200}, {"hidden", {200, 200, 200, 200}}, {"classes", 200}};
  const at::NoGradGuard no_grad;
  const at::Tensor rows = at::ones({2, 200});
  ForwardContext context(Mode::kEvaluate, MakeGenerator(0));
  const at::Tensor expected = (*CreateFromJson("mlp", options, 3))->Logits(rows, context).clone();
  DeferredValues deferred;
  std::unique_ptr<Model> model;
  {
    const DeferredValues::Scope scope(&deferred);
    model = *CreateFromJson("mlp", options, 3);
  }
  memory::ResetPeaks();
  const uint64_t before = memory::MemoryInUse().total.bytes;
  {
    const ValuesOnDemand values(model->Parameters(), &deferred);
    EXPECT_TRUE(model->Logits(rows, context).equal(expected));
    EXPECT_THROW(model->Parameters()[0].tensor.data_ptr(), c10::Error);
  }
  constexpr uint64_t kLayer = 4 * 200 * 201;
  EXPECT_LT(memory::MemoryInUse().total.peak_bytes - before, 2 * kLayer);
  for (const Parameter& parameter : model->Parameters()) {
    EXPECT_EQ(parameter.tensor.storage().nbytes(), 0u) << parameter.name;
    EXPECT_TRUE(deferred.Has(parameter.tensor));
  }
}

}  // namespace
}  // namespace muster::models
