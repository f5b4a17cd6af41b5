// Collects the problems of a job, one at most per path.
#ifndef MUSTER_COMMON_JOBSPEC_PROBLEM_LIST_H_
#define MUSTER_COMMON_JOBSPEC_PROBLEM_LIST_H_

#include <cstdint>
#include <set>
#include <string>

#include "proto/muster/v1/error.pb.h"

namespace muster::jobspec {

// Further problems are only counted.
inline constexpr int kMostProblems = 100;

// Not thread-safe.
class ProblemList {
 public:
  // Only the first problem of a path is kept, because later ones follow from it.
  void Add(const std::string& path, const std::string& message, int line = 0) {
    if (problems_.problems_size() >= kMostProblems) return CountOneMore();
    if (!paths_.insert(path).second) return;
    auto* problem = problems_.add_problems();
    problem->set_path(path);
    problem->set_message(message);
    problem->set_line(line);
  }
  bool Has(const std::string& path) const { return paths_.count(path) > 0; }
  bool empty() const { return problems_.problems().empty(); }
  // At most kMostProblems; after these one without a path says how many more there are.
  const v1::SpecProblems& problems() const { return problems_; }

 private:
  void CountOneMore() {
    if (++more_ == 1) problems_.add_problems();
    problems_.mutable_problems(kMostProblems)
        ->set_message("and " + std::to_string(more_) + " more problems");
  }

  v1::SpecProblems problems_;
  std::set<std::string> paths_;
  uint64_t more_ = 0;
};

}  // namespace muster::jobspec

#endif  // MUSTER_COMMON_JOBSPEC_PROBLEM_LIST_H_
