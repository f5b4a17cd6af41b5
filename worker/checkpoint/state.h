// The training state for checkpoints: a list of named items, the parts of items that this rank
// holds, and the rank that writes each part. A rank may hold only parts (sharded strategies) or
// everything (ddp).
#ifndef MUSTER_WORKER_CHECKPOINT_STATE_H_
#define MUSTER_WORKER_CHECKPOINT_STATE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/status.h"
#include "c10/core/ScalarType.h"
#include "common/manifest/manifest.h"
#include "common/sharding/placement.h"
#include "common/tokenizer/source.h"

namespace muster::checkpoint {

// The slot of the averages of parameters (docs/concepts/ema.md).
inline constexpr char kAverageSlot[] = "ema";

// One whole tensor of the state. `slot` is "param", "buffer", "scaler", kAverageSlot, or a slot of
// the optimizer: "exp_avg", "step" (a scalar, shape []).
struct StateItem {
  std::string slot;
  std::string parameter;  // the parameter's full name, or the buffer's
  std::vector<int64_t> shape;
  at::ScalarType type = at::kFloat;  // float32 or int64
};

// Returns the item's name in files and errors: "exp_avg/transformer.wte.weight".
std::string Name(const StateItem& item);

// 1 for a scalar.
int64_t Elements(const StateItem& item);

// Elements [begin, begin + tensor.numel()) of a flattened item. The tensor is live: loading writes
// into it. Contiguous, of the item's type, of any shape, on any device.
struct HeldPiece {
  size_t item = 0;  // index in State::items
  int64_t begin = 0;
  at::Tensor tensor;
};

// Copies share the tensors. Loading needs `items` and `held` only.
struct State {
  // The same list in the same order on all ranks; no name appears twice.
  std::vector<StateItem> items;
  // The rank that writes each element; the same on all ranks. Each element of each item has exactly
  // one writer. Each rank writes at most one range of an item, and only elements that it holds.
  // Offsets are not used. Items without elements have no writer here (see PartsByRank).
  sharding::Placement written;
  // The pieces that this rank holds; at most one of each item.
  std::vector<HeldPiece> held;
};

// INVALID_ARGUMENT, with the item's name, unless `items` and `held` follow the rules above.
absl::Status CheckState(const State& state);

// True for the state of the optimizer: neither a parameter, its average, a buffer nor the loss
// scaler.
bool IsOptimizers(const StateItem& item);

// True for items that are exported as weights: parameters and buffers.
bool IsWeight(const StateItem& item);

// Returns a state with the chosen items only.
State Only(const State& state, const std::function<bool(const StateItem&)>& chosen);

// Returns the weights of `state`, with the averages in place of the parameters if there are
// averages.
State AveragedWeights(const State& state);

// The manifest's records of the model's parameters and the optimizer.
struct ModelRecords {
  manifest::OptimizerRecord optimizer;
  // The same fields as in Manifest.
  std::vector<manifest::ParameterRecord> parameters;
  std::string config;
  std::string first_weights;
  std::string settings = {};
  tokenizer::Source tokenizer;
  std::string model_hash = {};
};

// An item that this rank holds whole.
struct StateTensor {
  std::string slot;
  std::string parameter;
  at::Tensor tensor;
};

// Returns the state of which every rank holds everything (ddp). For writing, the concatenation of
// all tensors is divided evenly among the ranks at multiples of layout::kAlignment elements.
State Replicated(const std::vector<StateTensor>& tensors, int world_size);

// Builds a State in which some items are whole on all ranks and others in parts. All ranks add the
// same items in the same order.
class StateBuilder {
 public:
  explicit StateBuilder(int world_size) : world_size_(world_size) {}

  // Adds a tensor that every rank holds whole. For writing, all such tensors are divided among the
  // ranks as in Replicated.
  void AddReplicated(std::string slot, std::string parameter, const at::Tensor& tensor);

  // `rank`, in [0, world size), holds and writes elements [begin, end).
  struct Part {
    int rank = 0;
    int64_t begin = 0;
    int64_t end = 0;
  };
  // Adds an item of which each element is in exactly one of `parts`; empty parts are ignored. Other
  // ranks may hold the same elements (Hold) in order to load them.
  void AddSharded(StateItem item, const std::vector<Part>& parts);
  // Sets elements of the last added item that this rank holds.
  void Hold(int64_t begin, const at::Tensor& tensor);

  State Build() const;

 private:
  const int world_size_;
  std::vector<StateItem> items_;
  std::vector<HeldPiece> held_;
  std::vector<size_t> replicated_;  // indices of items
  struct Written {
    size_t item;
    Part part;
  };
  std::vector<Written> sharded_;
};

}  // namespace muster::checkpoint

#endif  // MUSTER_WORKER_CHECKPOINT_STATE_H_
