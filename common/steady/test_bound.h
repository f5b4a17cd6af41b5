// The longest time for which a test waits for another thread or process.
#ifndef MUSTER_COMMON_STEADY_TEST_BOUND_H_
#define MUSTER_COMMON_STEADY_TEST_BOUND_H_

#include "absl/time/time.h"

namespace muster {

// Far more than needed on a busy machine or under a sanitizer, so only a test that hangs reaches
// this time. Less than Bazel's 300 seconds for a small test, so that the test itself reports the
// hanging wait.
inline constexpr absl::Duration kTestBound = absl::Seconds(200);

}  // namespace muster

#endif  // MUSTER_COMMON_STEADY_TEST_BOUND_H_
