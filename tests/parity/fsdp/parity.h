// The comparison that the pairwise and the full test share.
#ifndef MUSTER_TESTS_PARITY_FSDP_PARITY_H_
#define MUSTER_TESTS_PARITY_FSDP_PARITY_H_

#include <string>
#include <vector>

#include "tests/parity/fsdp/case.h"

namespace muster::parity {

// Returns the unit patterns of a model; empty if its blocks are the units.
std::vector<std::string> UnitsOf(ModelKind model);

// Trains a case with ddp and with fsdp. Fails the running test if losses, norms, parameters,
// buffers or moments differ in any bit after any step.
void ExpectFsdpIsDdp(const FsdpCase& one);

}  // namespace muster::parity

#endif  // MUSTER_TESTS_PARITY_FSDP_PARITY_H_
