// How long a test waits for what another thread or process has to do.
#ifndef MUSTER_COMMON_STEADY_TEST_BOUND_H_
#define MUSTER_COMMON_STEADY_TEST_BOUND_H_

#include "absl/time/time.h"

namespace muster {

// Far more than it takes on a busy machine, under a sanitizer too, so that it is reached only where
// something hangs. Below the 300 seconds that Bazel gives to a small test, so that the test itself
// says for what it waited.
inline constexpr absl::Duration kTestBound = absl::Seconds(200);

}  // namespace muster

#endif  // MUSTER_COMMON_STEADY_TEST_BOUND_H_
