#include "worker/optim/options.h"

#include "common/overloaded/overloaded.h"

namespace muster::optim {

std::string KindOf(const OptimizerOptions& options) {
  return std::visit(
      Overloaded{[](const AdamWOptions&) { return "adamw"; },
                 [](const SgdOptions&) { return "sgd"; }, [](const LionOptions&) { return "lion"; },
                 [](const AdamOptions&) { return "adam"; },
                 [](const AdadeltaOptions&) { return "adadelta"; }},
      options);
}

double WeightDecayOf(const OptimizerOptions& options) {
  return std::visit([](const auto& own) { return own.weight_decay; }, options);
}

void SetWeightDecay(double weight_decay, OptimizerOptions* options) {
  std::visit([weight_decay](auto& own) { own.weight_decay = weight_decay; }, *options);
}

std::vector<StateSlot> SlotsOf(const OptimizerOptions& options) {
  using Slots = std::vector<StateSlot>;
  const Slots of_adam = {{"exp_avg"}, {"exp_avg_sq"}, {"step", /*scalar=*/true}};
  return std::visit(Overloaded{[&](const AdamWOptions&) { return of_adam; },
                               [&](const AdamOptions&) { return of_adam; },
                               [](const SgdOptions& sgd) {
                                 return sgd.momentum == 0 ? Slots{} : Slots{{"momentum_buffer"}};
                               },
                               [](const LionOptions&) { return Slots{{"exp_avg"}}; },
                               [](const AdadeltaOptions&) {
                                 return Slots{
                                     {"square_avg"}, {"acc_delta"}, {"step", /*scalar=*/true}};
                               }},
                    options);
}

}  // namespace muster::optim
