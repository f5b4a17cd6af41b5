// For tests: records which units are called, at the point where a sharding strategy would act.
#ifndef MUSTER_WORKER_MODELS_RECORDING_CONTEXT_H_
#define MUSTER_WORKER_MODELS_RECORDING_CONTEXT_H_

#include <string>
#include <vector>

#include "worker/models/unit.h"

namespace muster::models {

class RecordingContext : public ForwardContext {
 public:
  using ForwardContext::ForwardContext;
  at::Tensor Call(Unit& unit, const at::Tensor& x) override {
    calls.push_back(unit.name());
    return ForwardContext::Call(unit, x);
  }
  std::vector<std::string> calls;
};

}  // namespace muster::models

#endif  // MUSTER_WORKER_MODELS_RECORDING_CONTEXT_H_
