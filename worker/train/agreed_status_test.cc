#include "worker/train/agreed_status.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "worker/train/rank_threads.h"

namespace muster::train {
namespace {

// What each rank gets if these are the results of their parts.
std::vector<absl::Status> Agreed(const std::vector<absl::Status>& of_ranks) {
  std::vector<absl::Status> agreed(of_ranks.size());
  RunRanks(static_cast<int>(of_ranks.size()),
           [&](int rank, comm::Communicator& control, comm::Communicator&, comm::Communicator&) {
             agreed[rank] = AgreedStatus(of_ranks[rank], "the test", control);
           });
  return agreed;
}

void ExpectOnAll(const std::vector<absl::Status>& agreed, const absl::Status& expected) {
  for (const absl::Status& status : agreed) EXPECT_EQ(status, expected);
}

TEST(AgreedStatus, IsOkIfAllAre) { ExpectOnAll(Agreed({{}, {}, {}}), absl::OkStatus()); }

TEST(AgreedStatus, AnErrorOfOneRankIsThatOfAll) {
  const std::string path(3000, 'p');  // errors are not cut
  ExpectOnAll(Agreed({{}, {}, absl::NotFoundError(path + ": no such file"), {}}),
              absl::NotFoundError("rank 2: " + path + ": no such file"));
}

TEST(AgreedStatus, DifferentErrorsAreNamedByRankWithTheCodeOfTheFirst) {
  ExpectOnAll(Agreed({{}, absl::DataLossError("b"), absl::NotFoundError("c")}),
              absl::DataLossError("rank 1: b; rank 2: c"));
  const absl::Status same = absl::DataLossError("a");
  ExpectOnAll(Agreed({same, same, same, same, {}}),
              absl::DataLossError("rank 0: a; rank 1: a; rank 2: a; and 1 more"));
}

TEST(AgreedStatus, TheSameErrorOfAllIsSaidOnce) {
  const absl::Status same = absl::InvalidArgumentError("a file is too short");
  ExpectOnAll(Agreed({same, same, same}), same);
  ExpectOnAll(Agreed({absl::NotFoundError("")}), absl::NotFoundError(""));
}

TEST(AgreedStatus, ARankThatLeavesIsAnError) {
  absl::Status other;
  RunRanks(2, [&](int rank, comm::Communicator& control, comm::Communicator&, comm::Communicator&) {
    if (rank == 0) other = AgreedStatus(absl::OkStatus(), "the test", control);
  });
  EXPECT_EQ(other.code(), absl::StatusCode::kUnavailable) << other;
}

}  // namespace
}  // namespace muster::train
