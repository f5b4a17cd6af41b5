// The options for training a model with FSDP.
#ifndef MUSTER_WORKER_PARALLEL_FSDP_FSDP_OPTIONS_H_
#define MUSTER_WORKER_PARALLEL_FSDP_FSDP_OPTIONS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "worker/parallel/fsdp/whole_units.h"
#include "worker/parallel/gradients/sliced_gradients.h"

namespace muster::parallel {

struct FsdpOptions {
  std::vector<std::string> units;  // patterns of unit names; empty: the blocks
  // Patterns of names of parameters that are gathered with the root, once in a step. They are whole
  // from the root's forward to the end of backward. Their gradients are reduced once.
  std::vector<std::string> replicate;
  // False: a unit that is gathered for a forward stays gathered until its backward is done.
  bool reshard_after_forward = true;
  // Frozen parameters, which do not change, stay on every rank after their first gather.
  bool frozen_resident = false;
  ReduceEvery reduce_every = ReduceEvery::kStep;
  bool reduce_in_bfloat16 = false;
  // Units compute with parameters that are rounded to bfloat16. A float32 input of the root is
  // rounded, too, and a bfloat16 output of the root is converted to float32. The slices, which are
  // updated and saved, stay float32. Gradients arrive in bfloat16 and are added up in float32. Not
  // possible for models with float32 buffers.
  bool parameters_in_bfloat16 = false;
  // Returns the elements [begin, end) of a parameter as a flat tensor; the tensor of the parameter
  // may have no memory. Called while the strategy is made, for one parameter at a time, only for
  // the elements that this rank holds. An undefined result means zeros until the caller fills
  // ParameterShards::held. Empty: the tensors have the values.
  std::function<at::Tensor(const at::Tensor& tensor, int64_t begin, int64_t end)> values;
  // Called at each event, in the thread that trains. Must not throw. May be empty.
  std::function<void(const UnitEvent&)> trace;
};

}  // namespace muster::parallel

#endif  // MUSTER_WORKER_PARALLEL_FSDP_FSDP_OPTIONS_H_
