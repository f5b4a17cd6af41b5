// Collects the problems of a job, at most one per path.
#ifndef MUSTER_COMMON_JOBSPEC_PROBLEM_LIST_H_
#define MUSTER_COMMON_JOBSPEC_PROBLEM_LIST_H_

#include <cstdint>
#include <cstdio>
#include <set>
#include <string>

#include "proto/muster/v1/error.pb.h"

namespace muster::jobspec {

// The largest number of problems. Further problems are only counted.
inline constexpr int kMostProblems = 100;

// A problem that stands for `count` further ones.
inline v1::SpecProblem MoreProblems(uint64_t count) {
  v1::SpecProblem problem;
  problem.set_message("and " + std::to_string(count) + " more problems");
  return problem;
}

// The number of further problems for which `problem` stands; 0 if MoreProblems did not make it.
inline uint64_t CountOfMore(const v1::SpecProblem& problem) {
  unsigned long long count = 0;
  if (!problem.path().empty()) return 0;
  return std::sscanf(problem.message().c_str(), "and %llu more problems", &count) == 1 ? count : 0;
}

// Limits the concatenation of several lists. The problems beyond kMostProblems, and the problems
// that the lists have only counted, become one last problem.
inline void LimitProblems(v1::SpecProblems* problems) {
  v1::SpecProblems kept;
  uint64_t more = 0;
  for (const v1::SpecProblem& problem : problems->problems()) {
    if (const uint64_t counted = CountOfMore(problem); counted > 0) {
      more += counted;
    } else if (kept.problems_size() < kMostProblems) {
      *kept.add_problems() = problem;
    } else {
      ++more;
    }
  }
  if (more > 0) *kept.add_problems() = MoreProblems(more);
  problems->Swap(&kept);
}

// Not thread-safe.
class ProblemList {
 public:
  // Adds a problem. Keeps only the first problem of a path, because later ones follow from it.
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
  // At most kMostProblems problems. After so many, a problem without a path gives the number of the
  // others.
  const v1::SpecProblems& problems() const { return problems_; }

 private:
  void CountOneMore() {
    if (++more_ == 1) problems_.add_problems();
    *problems_.mutable_problems(kMostProblems) = MoreProblems(more_);
  }

  v1::SpecProblems problems_;
  std::set<std::string> paths_;
  uint64_t more_ = 0;
};

}  // namespace muster::jobspec

#endif  // MUSTER_COMMON_JOBSPEC_PROBLEM_LIST_H_
