// Collects the problems of a job, one at most per path.
#ifndef MUSTER_COMMON_JOBSPEC_PROBLEM_LIST_H_
#define MUSTER_COMMON_JOBSPEC_PROBLEM_LIST_H_

#include <set>
#include <string>

#include "proto/muster/v1/error.pb.h"

namespace muster::jobspec {

// Not thread-safe.
class ProblemList {
 public:
  // Only the first problem of a path is kept, because later ones follow from it.
  void Add(const std::string& path, const std::string& message, int line = 0) {
    if (!paths_.insert(path).second) return;
    auto* problem = problems_.add_problems();
    problem->set_path(path);
    problem->set_message(message);
    problem->set_line(line);
  }
  bool Has(const std::string& path) const { return paths_.count(path) > 0; }
  const v1::SpecProblems& problems() const { return problems_; }

 private:
  v1::SpecProblems problems_;
  std::set<std::string> paths_;
};

}  // namespace muster::jobspec

#endif  // MUSTER_COMMON_JOBSPEC_PROBLEM_LIST_H_
