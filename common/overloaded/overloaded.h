// One visitor for std::visit, made from one function for each alternative. An alternative without a
// function does not compile.
//
//   std::visit(Overloaded{[](const Cat& cat) { ... }, [](const Dog& dog) { ... }}, animal);
//
// A function for several alternatives names each, so that a new alternative does not compile:
//
//   [](const OneOf<Fish, Bird> auto&) {}
#ifndef MUSTER_COMMON_OVERLOADED_OVERLOADED_H_
#define MUSTER_COMMON_OVERLOADED_OVERLOADED_H_

#include <type_traits>

namespace muster {

template <typename... Functions>
struct Overloaded : Functions... {
  using Functions::operator()...;
};
// The deduction guide, which Clang needs before version 17.
template <typename... Functions>
Overloaded(Functions...) -> Overloaded<Functions...>;

template <typename T, typename... Alternatives>
concept OneOf = (std::is_same_v<T, Alternatives> || ...);

}  // namespace muster

#endif  // MUSTER_COMMON_OVERLOADED_OVERLOADED_H_
