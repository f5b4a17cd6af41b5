// The comparison that the pairwise and the full test share.
#ifndef MUSTER_TESTS_PARITY_SHARDED_DDP_PARITY_H_
#define MUSTER_TESTS_PARITY_SHARDED_DDP_PARITY_H_

#include "tests/parity/sharded_ddp/case.h"
#include "worker/train/job/job.h"

namespace muster::parity {

enum class Closeness {
  kBitwise,
  kOtherOrder,         // additions have another order
  kRoundedToBfloat16,  // and gradients travel in bfloat16
};

// Trains a case with ddp and with `strategy`. Fails the running test if the results differ too much
// after any step: in any bit, or by more than the bounds in parity.cc.
void ExpectDdpOf(const Case& one, const train::StrategyConfig& strategy, Closeness closeness);

// Trains a case with ddp and with sharded_ddp. Fails the running test if the results differ in any
// bit after any step. If sharded_ddp reduces each micro-batch, the bounds in parity.cc hold
// instead.
void ExpectParity(const Case& one);

// The same comparison with gradients that are sent in bfloat16.
void ExpectParityOfReductionInBfloat16(const Case& one);

}  // namespace muster::parity

#endif  // MUSTER_TESTS_PARITY_SHARDED_DDP_PARITY_H_
