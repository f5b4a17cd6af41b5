#include "worker/train/rollcall/rank_differences.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <vector>

#include "worker/train/ranks/rank_threads.h"

namespace muster::train {
namespace {

// Returns the status that `name` gives on each of three ranks.
template <typename Name>
std::vector<absl::Status> OnThreeRanks(const Name& name) {
  std::vector<absl::Status> statuses(3);
  RunRanks(3, [&](int rank, comm::Communicator& control, comm::Communicator&, comm::Communicator&) {
    statuses[rank] = name(rank, &control);
  });
  return statuses;
}

TEST(RankDifferences, TheFirstParameterThatRanksDoNotWantAlikeIsNamed) {
  for (const absl::Status& status :
       OnThreeRanks([](int rank, comm::Communicator* control) -> absl::Status {
         std::vector<models::Parameter> parameters;
         for (const char* name : {"a", "b", "c"}) {
           parameters.push_back({name, at::zeros({1}).requires_grad_(true)});
         }
         const auto trained = *TrainedParameters::Create(parameters, {});
         trained->Want({false, rank != 2, rank == 0});
         return NameMaskDifference(*trained, 4, control);
       })) {
    EXPECT_EQ(status, absl::FailedPreconditionError(
                          "roll call of step 5: the ranks differ in which parameters are trained: "
                          "'b' is trained on rank 0 and frozen on rank 2"));
  }
}

TEST(RankDifferences, TheFirstCollectiveThatARankCalledOtherwiseIsNamed) {
  for (const absl::Status& status : OnThreeRanks([](int rank, comm::Communicator* control) {
         comm::FlightRecorder flight;
         for (int i = 1; i <= 80; ++i) {
           flight.Begin(0, rank == 1 && i == 70 ? "broadcast" : "all_reduce", {"sums", i});
         }
         return NameCollectiveDifference(flight, 9, control);
       })) {
    EXPECT_EQ(status, absl::FailedPreconditionError(
                          "roll call of step 10: the ranks call different collectives: number 70 "
                          "is all_reduce 'sums' step 70 on rank 0 and broadcast 'sums' step 70 on "
                          "rank 1"));
  }
}

// Ranks may interleave the operations of two communicators differently.
TEST(RankDifferences, CollectivesAreComparedWithinEachCommunicator) {
  for (const absl::Status& status : OnThreeRanks([](int rank, comm::Communicator* control) {
         comm::FlightRecorder flight;
         for (int step = 1; step <= 3; ++step) {
           for (const size_t channel : {rank == 2 ? 1 : 0, rank == 2 ? 0 : 1}) {
             flight.Begin(channel, "all_reduce",
                          {channel == 0             ? "counts"
                           : step == 3 && rank == 1 ? "bucket 1"
                                                    : "bucket 0",
                           step});
           }
         }
         return NameCollectiveDifference(flight, 3, control);
       })) {
    EXPECT_EQ(status, absl::FailedPreconditionError(
                          "roll call of step 4: the ranks call different collectives: number 3 is "
                          "all_reduce 'bucket 0' step 3 on rank 0 and all_reduce 'bucket 1' step 3 "
                          "on rank 1"));
  }
}

TEST(RankDifferences, CollectivesThatNobodyKnowsAnyMoreAreSaidToBeSo) {
  for (const absl::Status& status : OnThreeRanks([](int, comm::Communicator* control) {
         return NameCollectiveDifference(comm::FlightRecorder(), 0, control);
       })) {
    EXPECT_EQ(status, absl::FailedPreconditionError(
                          "roll call of step 1: the ranks call different collectives, before the "
                          "last 64, which are equal on all ranks"));
  }
}

TEST(RankDifferences, TheOriginOfALossIsToldToAllRanks) {
  const absl::Status error = absl::OutOfRangeError("the loss is not finite");
  const auto tell = [&](const std::vector<std::string>& here) {
    std::vector<std::string> texts;
    for (const absl::Status& status : OnThreeRanks([&](int rank, comm::Communicator* control) {
           return WithOrigin(error, here[rank], 3, control);
         })) {
      EXPECT_EQ(status.code(), error.code());
      texts.emplace_back(status.message());
    }
    EXPECT_EQ(texts[0], texts[1]);
    EXPECT_EQ(texts[0], texts[2]);
    return texts[0];
  };
  EXPECT_EQ(tell({"", "", ""}), "the loss is not finite");
  EXPECT_EQ(tell({"", "rank 1, sample 8", ""}),
            "the loss is not finite; the loss that is not finite comes from rank 1, sample 8");
  EXPECT_EQ(tell({"rank 0", "rank 1", "rank 2"}),
            "the loss is not finite; the loss that is not finite comes from rank 0, and from 2 "
            "more ranks");
}

}  // namespace
}  // namespace muster::train
