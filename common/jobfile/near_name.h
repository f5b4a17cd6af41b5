// "Did you mean": the allowed name that a mistyped one was probably meant to be, and the same for
// patterns over dotted names.
#ifndef MUSTER_COMMON_JOBFILE_NEAR_NAME_H_
#define MUSTER_COMMON_JOBFILE_NEAR_NAME_H_

#include <string>
#include <vector>

namespace muster::jobfile {

// The nearest of `names` by edit distance (a swap of neighbours counts as one edit; upper and lower
// case, '-' and '_' are the same), or empty if none is near: a distance of more than a third of the
// name's length is not near.
std::string NearName(const std::string& found, const std::vector<std::string>& names);

// The pattern that was probably meant by `pattern`, which matches none of `names`. It keeps the
// stars at both ends; between them it has the nearest of the beginnings, ends or middles of the
// names (whole parts between dots). Empty if none is near.
std::string NearPattern(const std::string& pattern, const std::vector<std::string>& names);

}  // namespace muster::jobfile

#endif  // MUSTER_COMMON_JOBFILE_NEAR_NAME_H_
