// Parameters whose values are computed when they are needed, one at a time. So no rank needs memory
// for a whole model.
//
//   DeferredValues values;
//   {
//     const DeferredValues::Scope scope(&values);
//     model = Create(...);  // what init.h makes has sizes, but no memory
//   }
//   at::Tensor first = values.Of(model->Parameters()[0].tensor);
//   at::Tensor some = values.Range(model->Parameters()[0].tensor, 4, 8);  // four elements
//
// Threading: a scope belongs to its thread; one thread at a time may use everything else.
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
  // Returns the values in new memory at each call.
  using Maker = std::function<at::Tensor()>;
  // Returns the elements [begin, end), in the order of a contiguous tensor, as a flat tensor.
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
  // Returns the values of this thread's innermost scope; null outside of all scopes.
  static DeferredValues* Current();

  // Returns a float32 tensor of this shape without memory. Range calls `maker` for the whole
  // tensor.
  at::Tensor Add(const std::vector<int64_t>& shape, Maker maker);
  // Returns a tensor of which a range can be made alone.
  at::Tensor AddInRanges(const std::vector<int64_t>& shape, RangeMaker maker);
  // Frees the memory of a float32 tensor, which stays the same object.
  void Take(at::Tensor tensor, Maker maker);
  // Adds the values of other tensors.
  void Add(DeferredValues others) { makers_.merge(others.makers_); }

  // Returns whether the tensor has no memory because its values are in this object.
  bool Has(const at::Tensor& tensor) const {
    return makers_.contains(tensor.unsafeGetTensorImpl());
  }
  // Returns the tensor's values, computed again, or the tensor itself if it has memory.
  at::Tensor Of(const at::Tensor& tensor) const;
  // Returns the elements [begin, end) of the tensor, [end - begin].
  at::Tensor Range(const at::Tensor& tensor, int64_t begin, int64_t end) const;
  // Returns the function that computes a tensor's values. Requires Has(tensor).
  RangeMaker MakerOf(const at::Tensor& tensor) const {
    return makers_.at(tensor.unsafeGetTensorImpl());
  }
  // Replaces the function that computes a tensor's values. Requires Has(tensor).
  void Replace(const at::Tensor& tensor, RangeMaker maker);
  // Gives a tensor its own memory with its values, unless it has memory already.
  void Settle(at::Tensor tensor);

  // The reason why the parameters of a model got memory in spite of a scope; otherwise empty.
  const std::string& refusal() const { return refusal_; }
  void Refuse(std::string why) { refusal_ = std::move(why); }

 private:
  std::unordered_map<const void*, RangeMaker> makers_;
  std::string refusal_;
};

}  // namespace muster::models

#endif  // MUSTER_WORKER_MODELS_DEFERRED_VALUES_H_
