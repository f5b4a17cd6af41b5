#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "worker/train/ranks/agreement.h"
#include "worker/train/ranks/rank_threads.h"

namespace muster::train {
namespace {

// Returns what AgreedStatus gives each rank; `of_ranks`: each rank's own result.
std::vector<absl::Status> Agreed(const std::vector<absl::Status>& of_ranks) {
  std::vector<absl::Status> agreed(of_ranks.size());
  RunRanks(static_cast<int>(of_ranks.size()),
           [&](int rank, comm::Communicator& control, comm::Communicator&, comm::Communicator&) {
             agreed[rank] = AgreedStatus(of_ranks[rank], "the test", control);
           });
  return agreed;
}

void ExpectOnAll(const std::vector<absl::Status>& agreed, const absl::Status& expected) {
  for (const absl::Status& status : agreed) {
    EXPECT_EQ(status.code(), expected.code());
    EXPECT_EQ(status.message(), expected.message());
    EXPECT_EQ(IsAgreed(status), !expected.ok());
  }
}

TEST(AgreedStatus, IsOkIfAllAre) { ExpectOnAll(Agreed({{}, {}, {}}), absl::OkStatus()); }

TEST(AgreedStatus, AnErrorOfOneRankIsThatOfAll) {
  const std::string path(3000, 'p');  // long errors are not cut
  ExpectOnAll(Agreed({{}, {}, absl::DataLossError(path + ": is damaged"), {}}),
              absl::DataLossError("rank 2: " + path + ": is damaged"));
}

TEST(AgreedStatus, WhatMayBeANodesFaultIsTheErrorOfItsRanksAndAConsequenceOnTheOthers) {
  for (const absl::Status& fault :
       {absl::NotFoundError("x"), absl::PermissionDeniedError("x"), absl::InternalError("x")}) {
    const auto agreed = Agreed({{}, fault, {}});
    EXPECT_EQ(agreed[1].code(), fault.code());
    for (const int rank : {0, 2}) EXPECT_EQ(agreed[rank].code(), absl::StatusCode::kAborted);
    for (const absl::Status& status : agreed) EXPECT_EQ(status.message(), "rank 1: x");
  }
}

// Rank 0 ends after it has heard of rank 1's error, and before rank 1 gets the result.
TEST(AgreedStatus, ARankKeepsItsOwnErrorWhereAnotherRankHasEnded) {
  const absl::Status own = absl::NotFoundError("x");
  std::vector<absl::Status> agreed(3);
  RunRanks(3, [&](int rank, comm::Communicator& control, comm::Communicator&, comm::Communicator&) {
    if (rank == 0) return control.Abort(absl::AbortedError("rank 1: x"));
    agreed[rank] = AgreedStatus(rank == 1 ? own : absl::OkStatus(), "the test", control);
  });
  EXPECT_EQ(agreed[1], absl::NotFoundError("rank 1: x"));
  EXPECT_EQ(agreed[2].code(), absl::StatusCode::kUnavailable) << "the communicator's error";
}

TEST(AgreedStatus, DifferentErrorsAreNamedByRank) {
  const auto agreed = Agreed({{}, absl::DataLossError("b"), absl::NotFoundError("c")});
  for (const absl::Status& status : agreed) EXPECT_EQ(status.message(), "rank 1: b; rank 2: c");
  EXPECT_EQ(agreed[0].code(), absl::StatusCode::kDataLoss) << "as the first rank with an error";
  EXPECT_EQ(agreed[1].code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(agreed[2].code(), absl::StatusCode::kNotFound);
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
