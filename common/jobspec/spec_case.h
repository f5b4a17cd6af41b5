// A job with one mistake. For tests.
#ifndef MUSTER_COMMON_JOBSPEC_SPEC_CASE_H_
#define MUSTER_COMMON_JOBSPEC_SPEC_CASE_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "common/jobspec/jobspec.h"

namespace muster::jobspec {

struct SpecCase {
  std::string name;
  std::function<void(v1::JobSpec*)> break_it;
  std::string path;
  std::string message;  // a part of the message
};

// Checks that the change to a valid job causes exactly this problem, with and without its defaults.
inline void ExpectTheOneProblem(v1::JobSpec good, const SpecCase& expected) {
  expected.break_it(&good);
  for (const v1::JobSpec& broken : {good, ResolveDefaults(good)}) {
    const v1::SpecProblems problems = ValidateSpec(broken);
    ASSERT_EQ(problems.problems_size(), 1) << FormatProblems(problems);
    EXPECT_EQ(problems.problems(0).path(), expected.path);
    EXPECT_THAT(problems.problems(0).message(), ::testing::HasSubstr(expected.message));
  }
}

}  // namespace muster::jobspec

#endif  // MUSTER_COMMON_JOBSPEC_SPEC_CASE_H_
