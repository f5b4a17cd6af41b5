// Makes a model without memory for its tensors. The operations of LibTorch with which the model's
// code makes tensors are recorded, not run. The operations that a tensor depends on are run later,
// for one tensor at a time, so that its values have the same bits.
//
//   Recording recording(seed);
//   {
//     const Recording::Scope scope(&recording);
//     model = ...;  // its code
//   }
//   recording.End();
//   at::Tensor values = recording.Maker(tensor)();
//   recording.Settle();
//
// The model's code sees tensors on the CPU with the usual sizes, strides and storages, but without
// memory. An operation is run at once, not recorded, if its results are small and it neither uses
// such a tensor nor draws random numbers. So `item()` of its results has a value.
//
// A recording refuses operations that it cannot repeat with the same result. The operation then
// throws Refused, and the model has to be made again without a recording. Reasons:
// - The code asks for a value (item(), or the address of a tensor's memory).
// - The code uses large values that it did not make by operations (for example, read from a file).
// - LibTorch does not have the operation for tensors without memory.
// - The result depends on a gradient's graph.
// - The code itself changes the state of a generator.
//
// The idea is that of torchdistX's deferred initialization
// (https://pytorch.org/torchdistx/latest/deferred_init.html).
//
// Threading: a recording belongs to the thread that made it.
#ifndef MUSTER_WORKER_MODELS_PLUGIN_RECORDING_H_
#define MUSTER_WORKER_MODELS_PLUGIN_RECORDING_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

#include "ATen/core/Generator.h"
#include "ATen/core/Tensor.h"
#include "ATen/core/ivalue.h"
#include "c10/core/Storage.h"
#include "worker/models/operation_watch.h"
#include "worker/models/seed.h"

namespace muster::models {

class Recording : public OperationWatch {
 public:
  // Results of at most kSmall bytes are small. The recording keeps at most kKept bytes of values
  // that the code itself made.
  static constexpr size_t kSmall = 4096;
  static constexpr size_t kKept = size_t{1} << 20;

  class Refused : public std::runtime_error {
   public:
    using std::runtime_error::runtime_error;
  };
  // The reason why it cannot be used; empty: it can. The code may have caught the exception.
  const std::string& refusal() const { return refusal_; }

  // The way in which a tensor reads its storage.
  struct Geometry {
    c10::ScalarType type;
    std::vector<int64_t> sizes, strides;
    int64_t offset;

    bool operator==(const Geometry&) const = default;
  };

  // Seeds the process-wide generator, which belongs to this thread until End.
  explicit Recording(uint64_t seed);
  ~Recording() override;
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  // Returns a float32 tensor without memory, whose values `maker` makes. Called in a scope.
  at::Tensor Make(const std::vector<int64_t>& shape, std::function<at::Tensor()> maker);

  // Ends the recording; called after the scope. Sets generators to the state in which the
  // operations leave them. Throws Refused.
  void End();

  // Returns whether the tensor has no memory.
  bool Has(const at::Tensor& tensor) const;
  // Returns a function that makes the tensor's values in new memory at each call. Requires
  // Has(tensor). The recording must outlive the function.
  std::function<at::Tensor()> Maker(const at::Tensor& tensor);
  // Gives memory and values to all tensors without memory that are still in use.
  void Settle();

 private:
  // A storage without memory. Its index in tracked_ is its number.
  struct Tracked {
    // The storage that the code sees; none: the twin stands for values that the code itself made.
    std::optional<c10::weak_intrusive_ptr<c10::StorageImpl>> seen;
    c10::Storage twin;  // on the device meta
  };
  struct Made {
    size_t storage;
    Geometry geometry;
    size_t result;  // index among the operation's tensors
  };
  // An operation, or a maker. Tensors among the arguments use the twins.
  struct Step {
    std::optional<c10::OperatorHandle> operation;
    std::vector<c10::IValue> arguments;
    std::function<at::Tensor()> maker;  // in place of the operation
    std::set<size_t> uses;              // storages of arguments
    std::set<size_t> changes;           // storages that it writes or makes
    std::vector<Made> made;
    bool draws = false;
    const void* generator = nullptr;  // null: the process-wide generator
    at::Tensor state;                 // of the generator before the step; undefined: not known yet
  };
  struct Draws {
    at::Generator generator;
    at::Tensor first;  // state of the generator at its first use
    at::Tensor next;   // state of the generator before the next step that draws
  };
  // The arguments of an operation: as the code gives them, and their twins.
  struct Call;
  using Storages = std::map<size_t, c10::Storage>;

  void Run(const c10::OperatorHandle& op, c10::Stack* stack) override;
  Call Inspect(const c10::OperatorHandle& op, const c10::Stack& stack) const;
  // Runs the operation on the twins. Throws Refused, also if the operation changes sizes or
  // storages of its arguments.
  std::vector<c10::IValue> RunOnTwins(const c10::OperatorHandle& op, const Call& call) const;
  // Replaces the arguments by results without memory, and records the operation. Throws Refused.
  void Record(const c10::OperatorHandle& op, const Call& call,
              const std::vector<c10::IValue>& twins, c10::Stack* stack);
  // Copies values that the code itself made and passes as an argument into a new storage of this
  // recording. `written`: the tensor loses its memory.
  size_t Adopt(const at::Tensor& tensor, const c10::Storage& twin, bool written);
  void NoteDraw(const at::Generator& generator, Step* step);
  void CheckState(const Draws& draws) const;
  at::Tensor Result(const at::Tensor& twin, size_t index, const Call& call, Step* step);

  size_t Track(const c10::Storage& twin);
  // Returns the first tensor on the storage, for the code.
  at::Tensor Seen(size_t storage, const Geometry& geometry);
  void AddMaker(size_t storage, std::function<at::Tensor()> maker);

  // Runs the steps on which the storages depend, and the drawing steps whose generator state is not
  // known. Returns the wanted storages with their values.
  Storages Replay(const std::set<size_t>& wanted);
  void RunStep(Step& step, Storages* real);
  void Draw(Step& step, c10::Stack* stack);

  std::string refusal_;
  const c10::ScalarType default_type_;
  std::vector<Step> steps_;
  std::vector<Tracked> tracked_;
  std::unordered_map<const c10::StorageImpl*, size_t> by_seen_, by_twin_;
  std::map<const void*, Draws> draws_;               // by generator; null: the process-wide one
  std::optional<BorrowedProcessGenerator> process_;  // until End
  size_t kept_ = 0;
};

}  // namespace muster::models

#endif  // MUSTER_WORKER_MODELS_PLUGIN_RECORDING_H_
