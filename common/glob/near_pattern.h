// "Did you mean" for patterns over dotted names.
#ifndef MUSTER_COMMON_GLOB_NEAR_PATTERN_H_
#define MUSTER_COMMON_GLOB_NEAR_PATTERN_H_

#include <string>
#include <vector>

namespace muster {

// The pattern that one which matches none of `names` was probably meant to be: the same with its
// stars at the ends, and between them what is nearest among the names' beginnings, ends or middles
// (whole parts between dots). Empty when nothing is near.
std::string NearPattern(const std::string& pattern, const std::vector<std::string>& names);

}  // namespace muster

#endif  // MUSTER_COMMON_GLOB_NEAR_PATTERN_H_
