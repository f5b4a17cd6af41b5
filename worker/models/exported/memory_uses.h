// Which tensors a value of a unit shares memory with, by the schemas of the operators that made it.
#ifndef MUSTER_WORKER_MODELS_EXPORTED_MEMORY_USES_H_
#define MUSTER_WORKER_MODELS_EXPORTED_MEMORY_USES_H_

#include <map>
#include <set>

#include "ATen/core/function_schema.h"
#include "worker/models/exported/graph.h"

namespace muster::models::exported {

// Calls f(value) for each value of an argument.
template <typename F>
void ForValues(const Argument& argument, F f) {
  if (argument.value >= 0) f(argument.value);
  for (const Element& one : argument.elements) {
    if (one.value >= 0) f(one.value);
  }
}

class MemoryUses {
 public:
  // `bases`: the number of values with memory of their own, which come first in the frame: the
  // inputs and the tensors of the model.
  explicit MemoryUses(int bases) : bases_(bases) {}

  // Returns the bases whose memory a value may use.
  std::set<int> Of(int value) const;
  std::set<int> Of(const Argument& argument) const;

  void AddView(int value, const std::set<int>& bases);
  // Notes which results of a node are views, and of what.
  void AddViews(const c10::FunctionSchema& schema, const Node& node);
  // Returns the bases that a node changes in place.
  std::set<int> WrittenBy(const c10::FunctionSchema& schema, const Node& node) const;

 private:
  const int bases_;
  std::map<int, std::set<int>> views_;
};

}  // namespace muster::models::exported

#endif  // MUSTER_WORKER_MODELS_EXPORTED_MEMORY_USES_H_
