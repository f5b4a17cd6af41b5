// The combinations of settings in which fsdp is compared with ddp: all of them, and few that have
// every pair. Pure.
#ifndef MUSTER_TESTS_PARITY_FSDP_CASE_H_
#define MUSTER_TESTS_PARITY_FSDP_CASE_H_

#include <string>
#include <vector>

#include "tests/parity/sharded_ddp/case.h"

namespace muster::parity {

// Which parameters are frozen. Units are those that fsdp gathers together; the root is the rest of
// the model.
enum class Mask {
  kNone,
  kEveryOtherUnit,
  kPartsOfUnits,
  kFirstUnit,
  kLastUnit,
  kRoot,
  kAllButBiases
};

struct FsdpCase {
  ModelKind model = ModelKind::kGpt2;
  bool reshard_after_forward = true;
  Mask mask = Mask::kNone;
  bool recompute = false;  // activation checkpointing of the units
  int micro_batches = 1;
  int world_size = 1;
  // The embedding and the head of a language model are units of their own. Not in the products.
  bool vocabulary = false;
  // The norms of a language model are gathered with the root. Not in the products.
  bool replicate = false;
};

// 4 x 2 x 7 x 2 x 2 x 4.
std::vector<FsdpCase> FullFsdpProduct();
// Every pair of settings is in one case at least (tests/parity/pairwise).
std::vector<FsdpCase> PairwiseFsdpCases();

// "LlamaReshardEveryOtherUnitRecomputeAccumulate2Ranks3": letters and digits, one for each case.
std::string Name(const FsdpCase& one);

}  // namespace muster::parity

#endif  // MUSTER_TESTS_PARITY_FSDP_CASE_H_
