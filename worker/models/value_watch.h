// Finds the values of a model's parameters and buffers that code reads or writes by LibTorch's
// operations. The worker watches step hooks in this way.
#ifndef MUSTER_WORKER_MODELS_VALUE_WATCH_H_
#define MUSTER_WORKER_MODELS_VALUE_WATCH_H_

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "ATen/core/Tensor.h"
#include "worker/models/model.h"
#include "worker/models/operation_watch.h"

namespace muster::models {

// During its life, intercepts the operations of this thread on the model's tensors, on views of
// them, and on all tensors with the same memory. The flag requires_grad is not a value: code may
// read and set the flag. Reads and writes through a raw pointer are not intercepted.
//
// Threading: belongs to the thread that made the object. A thread has at most one at a time.
class ValueWatch : private OperationWatch {
 public:
  enum class Mode {
    kNote,    // remembers whether a value was written
    kRefuse,  // throws a ModelError with the text refusal() before the operation runs
  };
  // The model must outlive this object.
  ValueWatch(const Model& model, Mode mode);
  ValueWatch(const ValueWatch&) = delete;
  ValueWatch& operator=(const ValueWatch&) = delete;

  // kNote: whether a value was written.
  bool written() const { return written_; }
  // kRefuse: the reason of the first refusal, with the names of the operation and of the tensor;
  // empty: none. The watched code may have caught the exception.
  const std::string& refusal() const { return refusal_; }

 private:
  // The bytes from the first to the last element of a tensor, within its storage.
  struct ByteRange {
    int64_t begin = 0;
    int64_t end = 0;  // equal to begin if the tensor has no elements
  };
  struct Resident {
    ByteRange bytes;
    std::string name;
  };

  static ByteRange BytesOf(const at::Tensor& tensor);
  // Returns "parameter 'name'": the model's tensor that the argument is, or otherwise the first
  // tensor with common bytes. Empty: none.
  std::string NameOf(const at::Tensor& argument);
  void Add(const char* what, const std::string& name, const at::Tensor& tensor);
  void Run(const c10::OperatorHandle& op, c10::Stack* stack) override;
  void SeeAll(const c10::OperatorHandle& op, const c10::IValue& value, bool writes);
  // Handles an argument of an operation that is about to run. writes: the operation changes it.
  void See(const std::string& operation, const at::Tensor& argument, bool writes);

  const Model& model_;
  const Mode mode_;
  // Both maps are filled at the first operation, because most watched code runs none.
  std::unordered_map<const void*, std::string> names_;  // by tensor
  // The model's tensors by storage. A bucket or an FSDP unit is one storage with many tensors.
  std::unordered_map<const void*, std::vector<Resident>> residents_;
  bool written_ = false;
  std::string refusal_;
  const Scope scope_{this};
};

}  // namespace muster::models

#endif  // MUSTER_WORKER_MODELS_VALUE_WATCH_H_
