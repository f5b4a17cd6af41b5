// A context for tests: records which units are called, at the point where a strategy would act.
#ifndef MUSTER_WORKER_MODELS_RECORDING_CONTEXT_H_
#define MUSTER_WORKER_MODELS_RECORDING_CONTEXT_H_

#include <string>
#include <vector>

#include "worker/models/unit.h"

namespace muster::models {

class RecordingContext : public ForwardContext {
 public:
  using ForwardContext::ForwardContext;
  Tensors CallMany(Unit& unit, const Tensors& inputs) override {
    calls.push_back(unit.name());
    return ForwardContext::CallMany(unit, inputs);
  }
  std::vector<std::string> calls;
};

}  // namespace muster::models

#endif  // MUSTER_WORKER_MODELS_RECORDING_CONTEXT_H_
