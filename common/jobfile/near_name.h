// "Did you mean": the allowed name that a mistyped one was probably meant to be.
#ifndef MUSTER_COMMON_JOBFILE_NEAR_NAME_H_
#define MUSTER_COMMON_JOBFILE_NEAR_NAME_H_

#include <string>
#include <vector>

namespace muster::jobfile {

// The nearest of `names` by edit distance (a swap of neighbours counts as one edit; upper and lower
// case, '-' and '_' are the same), or empty if none is near: a distance of more than a third of the
// name's length is not near.
std::string NearName(const std::string& found, const std::vector<std::string>& names);

}  // namespace muster::jobfile

#endif  // MUSTER_COMMON_JOBFILE_NEAR_NAME_H_
