// Combinations of the levels of several factors: all of them, and few that have every pair. Pure.
#ifndef MUSTER_TESTS_PARITY_PAIRWISE_PAIRWISE_H_
#define MUSTER_TESTS_PARITY_PAIRWISE_PAIRWISE_H_

#include <vector>

namespace muster::parity {

// levels[f]: how many levels factor f has, above 0. A combination has the level of each factor,
// from 0. In lexical order.
std::vector<std::vector<int>> Product(const std::vector<int>& levels);

// A covering array of strength 2: every pair of levels of two factors is in one combination at
// least. The same in every run: each is the one of the product that has the most pairs not covered
// yet, the first among equals.
std::vector<std::vector<int>> Pairwise(const std::vector<int>& levels);

}  // namespace muster::parity

#endif  // MUSTER_TESTS_PARITY_PAIRWISE_PAIRWISE_H_
