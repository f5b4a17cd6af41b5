// "Did you mean": the allowed name that is nearest to a mistyped name, and the same for patterns
// over dotted names.
#ifndef MUSTER_COMMON_JOBFILE_NEAR_NAME_H_
#define MUSTER_COMMON_JOBFILE_NEAR_NAME_H_

#include <string>
#include <vector>

namespace muster::jobfile {

// The nearest of `names` by edit distance. A swap of neighbours counts as one edit; upper and lower
// case, '-' and '_' are the same. Empty if no name is near: the distance may be at most a third of
// the name's length.
std::string NearName(const std::string& found, const std::vector<std::string>& names);

// A pattern near `pattern`, which matches none of `names`. The result keeps the stars at both ends.
// Between the stars it has the nearest of the beginnings, ends or middles of the names (whole parts
// between dots). Empty if none is near.
std::string NearPattern(const std::string& pattern, const std::vector<std::string>& names);

}  // namespace muster::jobfile

#endif  // MUSTER_COMMON_JOBFILE_NEAR_NAME_H_
