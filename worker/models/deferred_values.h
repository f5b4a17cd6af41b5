// Parameters whose values are computed when they are needed, one at a time, so that no rank needs
// memory for a whole model.
//
//   DeferredValues values;
//   {
//     const DeferredValues::Scope scope(&values);
//     model = Create(...);  // what init.h makes has sizes, but no memory
//   }
//   at::Tensor first = values.Of(model->Parameters()[0].tensor);
//   at::Tensor some = values.Range(model->Parameters()[0].tensor, 4, 8);  // four elements
//
// Threading: a scope belongs to its thread; everything else may be used by one thread at a time.
#ifndef MUSTER_WORKER_MODELS_DEFERRED_VALUES_H_
#define MUSTER_WORKER_MODELS_DEFERRED_VALUES_H_

#include <cstdint>
#include <functional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"

namespace muster::models {

class DeferredValues {
 public:
  // Returns new memory with the values each time.
  using Maker = std::function<at::Tensor()>;
  // The same for the elements [begin, end) alone, in the order of a contiguous tensor. The result
  // is flat.
  using RangeMaker = std::function<at::Tensor(int64_t begin, int64_t end)>;

  class Scope {
   public:
    explicit Scope(DeferredValues* values);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    DeferredValues* const before_;
  };
  // The values of this thread's innermost scope; null outside of all scopes.
  static DeferredValues* Current();

  // A float32 tensor of that shape without memory. All of it is made even if only a range of it is
  // wanted.
  at::Tensor Add(const std::vector<int64_t>& shape, Maker maker);
  // The same where a range of it can be made alone.
  at::Tensor AddInRanges(const std::vector<int64_t>& shape, RangeMaker maker);
  // Frees the memory of a float32 tensor, which stays the same object.
  void Take(at::Tensor tensor, Maker maker);
  // Adds the values of other tensors.
  void Add(DeferredValues others) { makers_.merge(others.makers_); }

  // Whether the tensor has no memory because its values are here.
  bool Has(const at::Tensor& tensor) const {
    return makers_.contains(tensor.unsafeGetTensorImpl());
  }
  // The tensor's values: computed again, or the tensor itself if it has memory.
  at::Tensor Of(const at::Tensor& tensor) const;
  // Its elements [begin, end), [end - begin].
  at::Tensor Range(const at::Tensor& tensor, int64_t begin, int64_t end) const;
  // Replaces the function that computes a tensor's values. Requires Has(tensor).
  void Replace(const at::Tensor& tensor, RangeMaker maker);
  // Gives a tensor its own memory with its values, unless it has memory already.
  void Settle(at::Tensor tensor);

  // Of a model whose parameters got memory although a scope was there: why; otherwise empty.
  const std::string& refusal() const { return refusal_; }
  void Refuse(std::string why) { refusal_ = std::move(why); }

 private:
  std::unordered_map<const void*, RangeMaker> makers_;
  std::string refusal_;
};

}  // namespace muster::models

#endif  // MUSTER_WORKER_MODELS_DEFERRED_VALUES_H_
