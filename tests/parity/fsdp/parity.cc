#include "tests/parity/fsdp/parity.h"

#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "tests/parity/sharded_ddp/training.h"
#include "worker/models/select_units.h"
#include "worker/parallel/test_model.h"

namespace muster::parity {

// kMixed has no blocks; its units that only some ranks call are in the root.
std::vector<std::string> UnitsOf(ModelKind model) {
  if (model == ModelKind::kMixed) return {"entry", "pair", "head"};
  return {};
}

namespace {

std::vector<std::string> UnitsOf(const FsdpCase& one) {
  if (!one.vocabulary) return UnitsOf(one.model);
  // GPT-2's embedding and head are tied, so there is no unit lm_head.
  if (one.model == ModelKind::kGpt2) return {"transformer.wte", "block"};
  return {"model.embed_tokens", "lm_head", "block"};
}

constexpr int64_t kSteps = 4;

std::set<std::string> NamesOf(const models::Unit& unit) {
  std::set<std::string> names;
  for (const auto& parameter : unit.Parameters()) names.insert(parameter.name);
  return names;
}

// Freezes parameters by the mask. Parameters that are already frozen stay frozen.
void Freeze(const models::Model& model, const std::vector<const models::Unit*>& units, Mask mask) {
  std::set<std::string> in_units, every_other;
  for (size_t i = 0; i < units.size(); ++i) {
    const auto names = NamesOf(*units[i]);
    in_units.insert(names.begin(), names.end());
    if (i % 2 == 1) every_other.insert(names.begin(), names.end());
  }
  const auto first = NamesOf(*units.front());
  const auto last = NamesOf(*units.back());
  int number = 0;
  const auto frozen = [&](const std::string& name) {
    switch (mask) {
      case Mask::kNone:
        return false;
      case Mask::kEveryOtherUnit:
        return every_other.contains(name);
      case Mask::kPartsOfUnits:
        return in_units.contains(name) && number++ % 3 == 0;
      case Mask::kFirstUnit:
        return first.contains(name);
      case Mask::kLastUnit:
        return last.contains(name);
      case Mask::kRoot:
        return !in_units.contains(name);
      case Mask::kAllButBiases:
        break;
    }
    // Llama's vectors are its norms.
    return !absl::StrContains(name, "bias") && !absl::StrContains(name, "norm");
  };
  for (const auto& [name, tensor] : model.Parameters()) {
    if (frozen(name)) at::Tensor(tensor).requires_grad_(false);
  }
}

void ExpectEqual(const NamedTensors& found, const NamedTensors& expected,
                 const std::string& where) {
  EXPECT_EQ(found.size(), expected.size()) << where;
  for (const auto& [name, tensor] : expected) {
    const auto one = found.find(name);
    EXPECT_TRUE(one != found.end() && parallel::SameBits(one->second, tensor))
        << where << ": " << name;
  }
}

}  // namespace

void ExpectFsdpIsDdp(const FsdpCase& one) {
  const auto units = UnitsOf(one);
  const auto make = [&] {
    Workload workload = MakeWorkload(one.model);
    const auto selected = models::SelectUnits(workload.model->root(), units);
    EXPECT_TRUE(selected.ok()) << selected.status();
    if (selected.ok()) Freeze(*workload.model, *selected, one.mask);
    return workload;
  };
  // Clipping is on, so that norms matter. SGD is in the tests of the strategies.
  const Case base{.model = one.model, .clip = Clip::kOn, .world_size = one.world_size};
  const auto train = [&](const train::StrategyConfig& strategy) {
    train::Job job = JobOf(base, strategy);
    job.batch.accumulate = one.micro_batches;
    if (one.model == ModelKind::kLlama)
      job.optimizer->groups[0].match = "*norm*";  // it has no biases
    if (one.recompute) job.model.recomputed_units = units;
    return Train(job, make, one.world_size, kSteps);
  };
  const auto ddp = train(Ddp());
  if (testing::Test::HasFailure()) return;
  std::vector<std::string> replicate;
  if (one.replicate) replicate = {one.model == ModelKind::kGpt2 ? "*.ln_*" : "*norm*"};
  const auto fsdp = train(parallel::FsdpOptions{
      .units = units, .replicate = replicate, .reshard_after_forward = one.reshard_after_forward});
  if (testing::Test::HasFailure()) return;
  for (int64_t step = 0; step < kSteps && !testing::Test::HasFailure(); ++step) {
    const std::string where = "after step " + std::to_string(step + 1);
    EXPECT_EQ(fsdp[step].loss_sums, ddp[step].loss_sums) << where;
    EXPECT_EQ(fsdp[step].grad_norm, ddp[step].grad_norm) << where;
    ExpectEqual(fsdp[step].after.parameters, ddp[step].after.parameters, where);
    ExpectEqual(fsdp[step].after.others, ddp[step].after.others, where);
    ExpectEqual(fsdp[step].after.optimizer, ddp[step].after.optimizer, where);
  }
  // A check that the steps change all trained parameters; otherwise the comparison would show
  // little.
  int64_t changed = 0;
  for (const auto& [name, tensor] : ddp.back().after.parameters) {
    changed += !parallel::SameBits(tensor, ddp.front().after.parameters.at(name));
  }
  EXPECT_GE(changed, 2);
}

}  // namespace muster::parity
