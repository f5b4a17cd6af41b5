// Combinations of the levels of several factors: all combinations, and a few that contain every
// pair. Pure.
#ifndef MUSTER_TESTS_PARITY_PAIRWISE_PAIRWISE_H_
#define MUSTER_TESTS_PARITY_PAIRWISE_PAIRWISE_H_

#include <vector>

namespace muster::parity {

// Returns all combinations in lexical order. levels[f] is the number of levels of factor f, above
// 0. A combination has the level of each factor, from 0.
std::vector<std::vector<int>> Product(const std::vector<int>& levels);

// Returns a covering array of strength 2: every pair of levels of two factors is in at least one
// combination. The result is the same in every run. Each combination has the most pairs that are
// not covered yet; among equals it is the first of the product.
std::vector<std::vector<int>> Pairwise(const std::vector<int>& levels);

}  // namespace muster::parity

#endif  // MUSTER_TESTS_PARITY_PAIRWISE_PAIRWISE_H_
