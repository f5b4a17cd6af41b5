// "Did you mean" for patterns over dotted names.
#ifndef MUSTER_COMMON_GLOB_NEAR_PATTERN_H_
#define MUSTER_COMMON_GLOB_NEAR_PATTERN_H_

#include <string>
#include <vector>

namespace muster {

// The pattern that was probably meant by `pattern`, which matches none of `names`. It keeps the
// stars at both ends; between them it has the nearest of the beginnings, ends or middles of the
// names (whole parts between dots). Empty if none is near.
std::string NearPattern(const std::string& pattern, const std::vector<std::string>& names);

}  // namespace muster

#endif  // MUSTER_COMMON_GLOB_NEAR_PATTERN_H_
