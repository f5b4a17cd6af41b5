#include "worker/train/ranks/guarded.h"

#include <gtest/gtest.h>

#include <new>
#include <stdexcept>

namespace muster::train {
namespace {

absl::Status Throwing(void (*body)()) {
  return Guarded("training", [body] {
    body();
    return absl::OkStatus();
  });
}

TEST(Guarded, GivesTheTextOfLibTorchsErrorsWithoutTheirBacktrace) {
  const absl::Status status = Throwing([] { TORCH_CHECK(false, "sizes 2 and 3 differ"); });
  EXPECT_EQ(status, absl::InternalError("training: sizes 2 and 3 differ"));
}

TEST(Guarded, TellsOtherExceptionsAndLackOfMemoryApart) {
  EXPECT_EQ(Throwing([] { throw std::runtime_error("x"); }), absl::InternalError("training: x"));
  EXPECT_TRUE(absl::IsResourceExhausted(Throwing([] { throw std::bad_alloc(); })));
  EXPECT_EQ(Throwing([] { throw 5; }),
            absl::InternalError("training: an exception that is no std::exception"));
}

// Classify takes this code for permanent, because the model would fail in the same way again.
TEST(Guarded, SaysOfAModelsErrorThatStartingOverDoesNotHelp) {
  EXPECT_EQ(Throwing([] { throw models::ModelError("unit 'a': x"); }),
            absl::FailedPreconditionError("training: unit 'a': x"));
}

// A lost rank is not this rank's error, at whichever place of a forward pass this rank notices it.
TEST(Guarded, GivesTheStatusOfWhatAContextCouldNotDo) {
  EXPECT_EQ(Throwing([] { throw models::ContextError(absl::UnavailableError("rank 1 is gone")); }),
            absl::UnavailableError("rank 1 is gone"));
}

TEST(Guarded, PassesTheResultThrough) {
  EXPECT_EQ(Guarded("training", [] { return absl::NotFoundError("y"); }), absl::NotFoundError("y"));
}

}  // namespace
}  // namespace muster::train
