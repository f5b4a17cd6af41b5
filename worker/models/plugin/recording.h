// Makes a model without memory for its tensors: the operations of LibTorch with which its code
// makes them are recorded, not run. Later they are run again for one tensor at a time, those that
// the tensor depends on, so that its values are the same bits.
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
// What its code sees are tensors on the CPU with sizes, strides and storages as always, but without
// memory. Not recorded, but done at once, are operations that neither use such a tensor nor draw
// random numbers, and whose results are small: `item()` of their results has a value.
//
// A recording refuses what it cannot repeat with the same result, by the exception Refused out of
// the operation: values that the code asks for (item(), or the address of a tensor's memory),
// values that are large and that the code made in another way than by operations (a file that it
// reads), operations that LibTorch does not have for tensors without memory, a result that depends
// on a gradient's graph, and generators whose state the code changes itself. Then the model has to
// be made again, without a recording.
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
  // Results of at most this size are small. All values of the code's own that it keeps are at most
  // kKept bytes.
  static constexpr size_t kSmall = 4096;
  static constexpr size_t kKept = size_t{1} << 20;

  class Refused : public std::runtime_error {
   public:
    using std::runtime_error::runtime_error;
  };
  // Why the recording cannot be used; empty: it can. The code may have caught the exception.
  const std::string& refusal() const { return refusal_; }

  // The way in which a tensor reads its storage.
  struct Geometry {
    c10::ScalarType type;
    std::vector<int64_t> sizes, strides;
    int64_t offset;

    bool operator==(const Geometry&) const = default;
  };

  // Seeds the process-wide generator, which is this thread's until End.
  explicit Recording(uint64_t seed);
  ~Recording() override;
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  // In a scope: a float32 tensor without memory, whose values `maker` makes.
  at::Tensor Make(const std::vector<int64_t>& shape, std::function<at::Tensor()> maker);

  // After the scope. Generators are now in the state in which the operations leave them. Throws
  // Refused.
  void End();

  // Whether the tensor has no memory.
  bool Has(const at::Tensor& tensor) const;
  // Makes the tensor's values each time, in new memory. Requires Has(tensor). The recording
  // outlives it.
  std::function<at::Tensor()> Maker(const at::Tensor& tensor);
  // Gives memory and values to everything that still has none and that anybody has a tensor of.
  void Settle();

 private:
  // A storage without memory, by its number.
  struct Tracked {
    // What the code sees; none: values that it made itself.
    std::optional<c10::weak_intrusive_ptr<c10::StorageImpl>> seen;
    c10::Storage twin;  // of the device meta
  };
  struct Made {
    size_t storage;
    Geometry geometry;
    size_t result;  // which of the operation's tensors
  };
  // An operation, or a maker. Tensors among the arguments are on the twins.
  struct Step {
    std::optional<c10::OperatorHandle> operation;
    std::vector<c10::IValue> arguments;
    std::function<at::Tensor()> maker;  // in place of the operation
    std::set<size_t> uses;              // storages of arguments
    std::set<size_t> changes;           // those of them that it writes, and those that it makes
    std::vector<Made> made;
    bool draws = false;
    const void* generator = nullptr;  // null: the process's
    at::Tensor state;                 // the generator's before it; undefined: not known yet
  };
  struct Draws {
    at::Generator generator;
    at::Tensor first;  // its state when it was first used
    at::Tensor next;   // its state before the next step that draws
  };
  // The arguments of an operation: as the code gives them, and their twins.
  struct Call;
  using Storages = std::map<size_t, c10::Storage>;

  void Run(const c10::OperatorHandle& op, c10::Stack* stack) override;
  Call Inspect(const c10::OperatorHandle& op, const c10::Stack& stack) const;
  // Runs the operation on the twins. Throws Refused, also if it changes sizes or storages of
  // arguments.
  std::vector<c10::IValue> RunOnTwins(const c10::OperatorHandle& op, const Call& call) const;
  // Puts tensors without memory in the place of the arguments. Throws Refused.
  void Record(const c10::OperatorHandle& op, const Call& call,
              const std::vector<c10::IValue>& twins, c10::Stack* stack);
  // The code's own values, which are an argument, become those of a storage of this recording.
  // `written`: the tensor loses its memory.
  size_t Adopt(const at::Tensor& tensor, const c10::Storage& twin, bool written);
  void NoteDraw(const at::Generator& generator, Step* step);
  void CheckState(const Draws& draws) const;
  at::Tensor Result(const at::Tensor& twin, size_t index, const Call& call, Step* step);

  size_t Track(const c10::Storage& twin);
  // The first tensor for the code.
  at::Tensor Seen(size_t storage, const Geometry& geometry);
  void AddMaker(size_t storage, std::function<at::Tensor()> maker);

  // Runs the steps on which the storages depend, and those that draw and whose generator's state is
  // not known. Returns the wanted storages with their values.
  Storages Replay(const std::set<size_t>& wanted);
  void RunStep(Step& step, Storages* real);
  void Draw(Step& step, c10::Stack* stack);

  std::string refusal_;
  const c10::ScalarType default_type_;
  std::vector<Step> steps_;
  std::vector<Tracked> tracked_;
  std::unordered_map<const c10::StorageImpl*, size_t> by_seen_, by_twin_;
  std::map<const void*, Draws> draws_;               // by generator; null: the process's
  std::optional<BorrowedProcessGenerator> process_;  // until End
  size_t kept_ = 0;
};

}  // namespace muster::models

#endif  // MUSTER_WORKER_MODELS_PLUGIN_RECORDING_H_
