#include "client/cli/terminal/exit_code.h"

#include <gtest/gtest.h>

#include <utility>

#include "common/rpc/error.h"

namespace muster::cli {
namespace {

// Numbers, and not names, because scripts use numbers.
TEST(ExitCodeOf, AStatusIsWhatThePageSays) {
  const std::pair<absl::Status, int> cases[] = {
      {absl::OkStatus(), 0},
      {absl::InternalError(""), 1},
      {absl::AlreadyExistsError(""), 1},
      {absl::FailedPreconditionError(""), 1},
      {absl::InvalidArgumentError(""), 2},
      {absl::DeadlineExceededError(""), 101},
      {MakeError(absl::StatusCode::kNotFound, "JOB_NOT_FOUND", ""), 102},
      {absl::NotFoundError("a file of this machine"), 1},
      {absl::UnavailableError(""), 104},
      {absl::CancelledError(""), 130},
  };
  for (const auto& [status, code] : cases) EXPECT_EQ(ExitCodeOf(status), code) << status;
}

TEST(ExitCodeOf, AJobsEndIsWhatThePageSays) {
  const std::pair<v1::Job::State, int> cases[] = {
      {v1::Job::SUCCEEDED, 0},
      {v1::Job::FAILED, 100},
      {v1::Job::CANCELLED, 103},
      {v1::Job::RUNNING, 1},
  };
  for (const auto& [state, code] : cases) EXPECT_EQ(ExitCodeOf(state), code) << state;
}

}  // namespace
}  // namespace muster::cli
