// What the validation passes of a fit stage decide, as the training core takes it.
#ifndef MUSTER_WORKER_CONTROL_PASS_RULES_H_
#define MUSTER_WORKER_CONTROL_PASS_RULES_H_

#include "proto/muster/v1/job_spec.pb.h"
#include "worker/train/improvement.h"

namespace muster::control {

// `fit` has its defaults.
train::PassRules PassRulesOf(const v1::FitStage& fit);

}  // namespace muster::control

#endif  // MUSTER_WORKER_CONTROL_PASS_RULES_H_
