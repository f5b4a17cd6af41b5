// Who asked for something, for a record or a table: one line.
#ifndef MUSTER_COMMON_PRINTABLE_WHO_ASKED_H_
#define MUSTER_COMMON_PRINTABLE_WHO_ASKED_H_

#include <string>

namespace muster {

// "uid 1000 (label 'me@host')". What the connection proves (`requester`) comes first, and quotes in
// the label, which the client chose, are escaped: no label looks like another requester. One of
// them alone if the other is empty, or the same. Pure.
std::string WhoAsked(const std::string& requester, const std::string& label);

}  // namespace muster

#endif  // MUSTER_COMMON_PRINTABLE_WHO_ASKED_H_
