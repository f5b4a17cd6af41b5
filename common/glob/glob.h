// Patterns over parameter names, in job files and commands. `*` stands for any characters (also
// none, also dots), `?` for exactly one, everything else for itself. Compares bytes; case matters.
// Pure.
#ifndef MUSTER_COMMON_GLOB_GLOB_H_
#define MUSTER_COMMON_GLOB_GLOB_H_

#include <string_view>

namespace muster {

// Returns whether `pattern` matches the whole `text`. The time is at most proportional to the
// product of their lengths.
bool GlobMatches(std::string_view pattern, std::string_view text);

}  // namespace muster

#endif  // MUSTER_COMMON_GLOB_GLOB_H_
