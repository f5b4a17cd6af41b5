// Every alternative of the job file's `optimizer`, found in the schema, is made as it is chosen.
#include "worker/optim/optimizers.h"

#include <set>
#include <string>
#include <variant>

#include "ATen/ops/zeros.h"
#include "common/jobspec/jobspec.h"
#include "gtest/gtest.h"

namespace muster::optim {
namespace {

using google::protobuf::FieldDescriptor;

const google::protobuf::OneofDescriptor& Kinds() {
  return *v1::OptimizerSpec::descriptor()->FindOneofByName("kind");
}

// Chosen, with a rate and its defaults.
v1::OptimizerSpec SpecOf(const FieldDescriptor* kind, double lr) {
  v1::JobSpec job;
  auto* chosen =
      job.mutable_optimizer()->GetReflection()->MutableMessage(job.mutable_optimizer(), kind);
  chosen->GetReflection()->SetDouble(chosen, chosen->GetDescriptor()->FindFieldByName("lr"), lr);
  return jobspec::ResolveDefaults(job).optimizer();
}

TEST(Optimizers, EachOfTheSchemaIsMadeWithDefaultsAndStepsWhatHasAGradient) {
  std::set<size_t> kinds;
  for (int i = 0; i < Kinds().field_count(); ++i) {
    const std::string name(Kinds().field(i)->name());
    const auto chosen = OptimizerFromSpec(SpecOf(Kinds().field(i), 0.5));
    ASSERT_TRUE(chosen.ok()) << name << ": " << chosen.status();
    EXPECT_EQ(chosen->lr, 0.5) << name;
    EXPECT_TRUE(kinds.insert(chosen->options.index()).second) << name;
    const at::Tensor parameter = at::zeros({3});
    const auto optimizer = CreateOptimizer({{"p", parameter}}, chosen->options);
    ASSERT_TRUE(optimizer.ok()) << name << ": " << optimizer.status();
    EXPECT_EQ((*optimizer)->State().size(), (*optimizer)->Slots().size()) << name;
    parameter.mutable_grad() = at::zeros({3}).fill_(1);
    ASSERT_TRUE((*optimizer)->Step(chosen->lr).ok()) << name;
    EXPECT_LT(parameter[0].item<float>(), 0) << name;
  }
  EXPECT_EQ(kinds.size(), std::variant_size_v<OptimizerOptions>);
}

TEST(Optimizers, OptionsAreThoseOfTheJobFile) {
  v1::OptimizerSpec spec;
  v1::AdamwSpec& adamw = *spec.mutable_adamw();
  adamw.set_lr(1);
  adamw.add_betas(0.25);
  adamw.add_betas(0.5);
  adamw.set_eps(0.125);
  adamw.set_weight_decay(2);
  const auto as_adamw = std::get<AdamWOptions>(OptimizerFromSpec(spec)->options);
  EXPECT_EQ(as_adamw.beta1, 0.25);
  EXPECT_EQ(as_adamw.beta2, 0.5);
  EXPECT_EQ(as_adamw.eps, 0.125);
  EXPECT_EQ(as_adamw.weight_decay, 2);

  v1::SgdSpec& sgd = *spec.mutable_sgd();
  sgd.set_lr(1);
  sgd.set_momentum(0.5);
  sgd.set_weight_decay(2);
  sgd.set_nesterov(true);
  const auto as_sgd = std::get<SgdOptions>(OptimizerFromSpec(spec)->options);
  EXPECT_EQ(as_sgd.momentum, 0.5);
  EXPECT_EQ(as_sgd.weight_decay, 2);
  EXPECT_TRUE(as_sgd.nesterov);

  v1::LionSpec& lion = *spec.mutable_lion();
  lion.set_lr(1);
  lion.add_betas(0.25);
  lion.add_betas(0.5);
  lion.set_weight_decay(2);
  const auto as_lion = std::get<LionOptions>(OptimizerFromSpec(spec)->options);
  EXPECT_EQ(as_lion.beta1, 0.25);
  EXPECT_EQ(as_lion.beta2, 0.5);
  EXPECT_EQ(as_lion.weight_decay, 2);
}

TEST(Optimizers, AnAlternativeThatThisProgramDoesNotKnowIsRefused) {
  const auto none = OptimizerFromSpec({}).status();
  EXPECT_EQ(none.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(std::string(none.message()), "optimizer: no known alternative is set");
}

}  // namespace
}  // namespace muster::optim
