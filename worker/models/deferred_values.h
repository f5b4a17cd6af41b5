// Parameters whose values are made when somebody wants them, one at a time, so that nobody needs
// memory for a whole model.
//
//   DeferredValues values;
//   {
//     const DeferredValues::Scope scope(&values);
//     model = Create(...);  // what init.h makes has sizes, but no memory
//   }
//   at::Tensor first = values.Of(model->Parameters()[0].tensor);
//
// Threading: a scope is its thread's; all else one thread at a time.
#ifndef MUSTER_WORKER_MODELS_DEFERRED_VALUES_H_
#define MUSTER_WORKER_MODELS_DEFERRED_VALUES_H_

#include <cstdint>
#include <functional>
#include <unordered_map>
#include <vector>

#include "ATen/core/Tensor.h"

namespace muster::models {

class DeferredValues {
 public:
  // Gives new memory with the values each time.
  using Maker = std::function<at::Tensor()>;

  class Scope {
   public:
    explicit Scope(DeferredValues* values);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    DeferredValues* const before_;
  };
  // Of this thread's innermost scope; null outside of all.
  static DeferredValues* Current();

  // A float32 tensor of that shape without memory.
  at::Tensor Add(const std::vector<int64_t>& shape, Maker maker);

  // Whether the tensor has no memory because its values are here.
  bool Has(const at::Tensor& tensor) const {
    return makers_.contains(tensor.unsafeGetTensorImpl());
  }
  // The values: made anew, or, of a tensor that has them, the tensor.
  at::Tensor Of(const at::Tensor& tensor) const;
  // From now on others. Has(tensor).
  void Replace(const at::Tensor& tensor, Maker maker);
  // Gives a tensor memory and values of its own, unless it has them.
  void Settle(at::Tensor tensor);

 private:
  std::unordered_map<const void*, Maker> makers_;
};

}  // namespace muster::models

#endif  // MUSTER_WORKER_MODELS_DEFERRED_VALUES_H_
