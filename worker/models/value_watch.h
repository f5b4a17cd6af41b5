// Finds what code does with the values of a model's parameters and buffers by LibTorch's
// operations: a step hook's.
#ifndef MUSTER_WORKER_MODELS_VALUE_WATCH_H_
#define MUSTER_WORKER_MODELS_VALUE_WATCH_H_

#include <string>
#include <unordered_map>

#include "ATen/core/Tensor.h"
#include "c10/core/impl/LocalDispatchKeySet.h"
#include "worker/models/model.h"

namespace muster::models {

// While it lives, operations of this thread on the model's tensors, on views of them and on
// whatever else shares their memory are seen. Whether a tensor is trained is none of its values:
// flags may be asked for and set. What writes through a raw pointer is not seen.
//
// Threading: its thread's; one at a time.
class ValueWatch {
 public:
  enum class Mode {
    kNote,    // remembers whether anything was written
    kRefuse,  // throws a ModelError that names operation and tensor, before anything is done
  };
  // The model outlives it.
  ValueWatch(const Model& model, Mode mode);
  ~ValueWatch();
  ValueWatch(const ValueWatch&) = delete;
  ValueWatch& operator=(const ValueWatch&) = delete;

  bool written() const { return written_; }

  // For the operation that is about to run. writes: it changes this argument.
  void Seen(const std::string& operation, const at::Tensor& argument, bool writes);
  // Of this thread; null: none.
  static ValueWatch* Current();

 private:
  // "parameter 'name'" of what this is, or shares its memory with; empty: none of the model's.
  std::string NameOf(const at::Tensor& argument);
  void Add(const char* what, const std::string& name, const at::Tensor& tensor);

  const Model& model_;
  const Mode mode_;
  // By the tensor and by its memory. Made for the first operation that anybody runs: most watched
  // code runs none.
  std::unordered_map<const void*, std::string> names_;
  bool written_ = false;
  c10::impl::IncludeDispatchKeyGuard guard_;
};

}  // namespace muster::models

#endif  // MUSTER_WORKER_MODELS_VALUE_WATCH_H_
