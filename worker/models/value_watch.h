// Finds out which values of a model's parameters and buffers a piece of code reads or writes by
// LibTorch's operations. The worker watches step hooks with it.
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

// While it lives, it sees the operations of this thread on the model's tensors, on views of them,
// and on any other tensor that shares memory with them. The flag requires_grad is not a value: code
// may read and set it. Reads and writes through a raw pointer are not seen.
//
// Threading: it belongs to the thread that made it; a thread has at most one at a time.
class ValueWatch : private OperationWatch {
 public:
  enum class Mode {
    kNote,    // remembers whether anything was written
    kRefuse,  // throws a ModelError, with refusal() as its text, before the operation is done
  };
  // The model outlives it.
  ValueWatch(const Model& model, Mode mode);
  ValueWatch(const ValueWatch&) = delete;
  ValueWatch& operator=(const ValueWatch&) = delete;

  // kNote: whether anything was written.
  bool written() const { return written_; }
  // kRefuse: why the first refused operation was refused, with the names of the operation and of
  // the tensor; empty: none was refused. The watched code may have caught the exception.
  const std::string& refusal() const { return refusal_; }

 private:
  // The bytes of its storage from the first to the last element of a tensor.
  struct ByteRange {
    int64_t begin = 0;
    int64_t end = 0;  // begin: the tensor has no elements
  };
  struct Resident {
    ByteRange bytes;
    std::string name;
  };

  static ByteRange BytesOf(const at::Tensor& tensor);
  // "parameter 'name'": which of the model's tensors the argument is, or otherwise the first one
  // that it shares bytes with; empty: none.
  std::string NameOf(const at::Tensor& argument);
  void Add(const char* what, const std::string& name, const at::Tensor& tensor);
  void Run(const c10::OperatorHandle& op, c10::Stack* stack) override;
  void SeeAll(const c10::OperatorHandle& op, const c10::IValue& value, bool writes);
  // An argument of an operation that is about to run. writes: the operation changes it.
  void See(const std::string& operation, const at::Tensor& argument, bool writes);

  const Model& model_;
  const Mode mode_;
  // Both are filled when the first operation runs, because most watched code runs none.
  std::unordered_map<const void*, std::string> names_;  // by tensor
  // By storage: the model's tensors in it. A bucket or an FSDP unit is one storage with many.
  std::unordered_map<const void*, std::vector<Resident>> residents_;
  bool written_ = false;
  std::string refusal_;
  const Scope scope_{this};
};

}  // namespace muster::models

#endif  // MUSTER_WORKER_MODELS_VALUE_WATCH_H_
