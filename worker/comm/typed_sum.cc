#include "worker/comm/typed_sum.h"

#include "worker/comm/rank_sum.h"

namespace muster::comm {
namespace {

template <typename T>
std::vector<const T*> As(const std::vector<const void*>& sources) {
  std::vector<const T*> typed;
  for (const void* source : sources) typed.push_back(static_cast<const T*>(source));
  return typed;
}

template <typename T>
void Sum(const std::vector<const void*>& sources, void* destination, int64_t elements,
         double divide_by) {
  RankOrderedSum(As<T>(sources), static_cast<T*>(destination), elements, divide_by);
}

}  // namespace

void TypedSum(const OperationSpec& spec, const std::vector<const void*>& sources, void* destination,
              int64_t elements) {
  switch ((spec.input.defined() ? spec.input : spec.output).scalar_type()) {
    case at::kBFloat16:
      return RankOrderedSumOfBfloat16(As<uint16_t>(sources), static_cast<float*>(destination),
                                      elements, spec.divide_by);
    case at::kFloat:
      return Sum<float>(sources, destination, elements, spec.divide_by);
    case at::kDouble:
      return Sum<double>(sources, destination, elements, spec.divide_by);
    default:  // int64: CheckArguments refuses all other types
      return Sum<int64_t>(sources, destination, elements, spec.divide_by);
  }
}

}  // namespace muster::comm
