// The combinations of settings in which fsdp is compared with ddp: all combinations, and a few that
// contain every pair. Pure.
#ifndef MUSTER_TESTS_PARITY_FSDP_CASE_H_
#define MUSTER_TESTS_PARITY_FSDP_CASE_H_

#include <string>
#include <vector>

#include "tests/parity/sharded_ddp/case.h"

namespace muster::parity {

// The choice of frozen parameters. A unit has the parameters that fsdp gathers together; the root
// is the rest of the model.
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
  // True: the embedding and the head of a language model are units of their own. Not in the
  // products.
  bool vocabulary = false;
  // True: the norms of a language model are gathered with the root. Not in the products.
  bool replicate = false;
};

// All 4 x 2 x 7 x 2 x 2 x 4 combinations.
std::vector<FsdpCase> FullFsdpProduct();
// Cases that contain every pair of settings at least once (tests/parity/pairwise).
std::vector<FsdpCase> PairwiseFsdpCases();

// A unique name for each case, of letters and digits:
// "LlamaReshardEveryOtherUnitRecomputeAccumulate2Ranks3".
std::string Name(const FsdpCase& one);

}  // namespace muster::parity

#endif  // MUSTER_TESTS_PARITY_FSDP_CASE_H_
