// One visitor for std::visit from one function for each alternative: an alternative without a
// function does not compile.
//
//   std::visit(Overloaded{[](const Cat& cat) { ... }, [](const Dog& dog) { ... }}, animal);
#ifndef MUSTER_COMMON_OVERLOADED_OVERLOADED_H_
#define MUSTER_COMMON_OVERLOADED_OVERLOADED_H_

namespace muster {

template <typename... Functions>
struct Overloaded : Functions... {
  using Functions::operator()...;
};
// Clang finds it by itself from version 17 on.
template <typename... Functions>
Overloaded(Functions...) -> Overloaded<Functions...>;

}  // namespace muster

#endif  // MUSTER_COMMON_OVERLOADED_OVERLOADED_H_
