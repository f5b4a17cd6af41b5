// A message as lines of text, so that two of them can be compared and the first difference named.
#ifndef MUSTER_COMMON_JOBSPEC_LINES_H_
#define MUSTER_COMMON_JOBSPEC_LINES_H_

#include <google/protobuf/message.h>

#include <string>
#include <vector>

namespace muster::jobspec {

struct Line {
  std::string path;   // as in the job file: "stages[1].fit.steps"
  std::string value;  // exact, and without a line break; "{}" for a message

  friend bool operator==(const Line&, const Line&) = default;
};

// Every value that is set, messages before their fields and a map's entries by their keys. Equal
// messages give equal lines, and different ones different lines. Pure.
std::vector<Line> LinesOf(const google::protobuf::Message& message);

}  // namespace muster::jobspec

#endif  // MUSTER_COMMON_JOBSPEC_LINES_H_
