// How long a test waits for another thread or process.
#ifndef MUSTER_COMMON_STEADY_TEST_BOUND_H_
#define MUSTER_COMMON_STEADY_TEST_BOUND_H_

#include "absl/time/time.h"

namespace muster {

// Far more than needed on a busy machine or under a sanitizer, so it is reached only if something
// hangs. It is below the 300 seconds that Bazel gives to a small test, so that the test itself
// reports for what it waited.
inline constexpr absl::Duration kTestBound = absl::Seconds(200);

}  // namespace muster

#endif  // MUSTER_COMMON_STEADY_TEST_BOUND_H_
