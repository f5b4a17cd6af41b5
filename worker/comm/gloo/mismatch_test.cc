// Ranks that issue different operations over Gloo.
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "ATen/core/Tensor.h"
#include "ATen/ops/full.h"
#include "ATen/ops/ones.h"
#include "gtest/gtest.h"
#include "worker/comm/gloo/gloo_communicator.h"
#include "worker/comm/gloo/rendezvous.h"

namespace muster::comm {
namespace {

using Issue = std::function<std::unique_ptr<Work>(Communicator&)>;

// Returns the status of each of two ranks that issue these operations.
std::vector<absl::Status> EndsOf(const Issue& first, const Issue& second) {
  auto host = HostStore();
  EXPECT_TRUE(host.ok()) << host.status();
  std::vector<absl::Status> ends(2);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&, rank] {
      auto store = ConnectStore("127.0.0.1", (*host)->port(), std::chrono::seconds(30));
      ASSERT_TRUE(store.ok()) << store.status();
      const auto own = CreateGlooCommunicator({.rank = rank,
                                               .world_size = 2,
                                               .name = "test",
                                               .timeout = std::chrono::milliseconds(200)},
                                              **store);
      ASSERT_TRUE(own.ok()) << own.status();
      ends[rank] = (rank == 0 ? first : second)(**own)->Wait();
    });
  }
  for (std::thread& rank : ranks) rank.join();
  return ends;
}

Issue Gather(const at::Tensor& out, int64_t elements, const char* what, int64_t step) {
  return [=](Communicator& own) {
    return own.AllGather(out, at::full({elements}, own.rank() + 1.0f), {what, step});
  };
}

void ExpectNothingTravels(int64_t elements, const char* what, int64_t step) {
  const at::Tensor first = at::ones({8}), second = at::ones({2 * elements});
  const auto ends = EndsOf(Gather(first, 4, "unit 1", 3), Gather(second, elements, what, step));
  for (const absl::Status& end : ends) {
    // The rank whose timeout ends first tells the other rank.
    EXPECT_EQ(end.code(), absl::StatusCode::kDeadlineExceeded) << end;
    EXPECT_NE(std::string(end.message()).find("did not take part"), std::string::npos) << end;
  }
  // Each rank writes its own part; the other rank's part is untouched.
  EXPECT_TRUE(first.narrow(0, 4, 4).equal(at::ones({4})));
  EXPECT_TRUE(second.narrow(0, 0, elements).equal(at::ones({elements})));
}

TEST(Mismatch, MessagesOfAnotherUnitOfTheSameSizeAreNotTakenIn) {
  ExpectNothingTravels(4, "unit 2", 3);
}

TEST(Mismatch, MessagesOfAnotherStepAreNotTakenIn) { ExpectNothingTravels(4, "unit 1", 4); }

TEST(Mismatch, MessagesOfAnotherSizeEndNoProcess) {
  ExpectNothingTravels(2, "unit 1", 3);
  ExpectNothingTravels(1000, "unit 1", 3);
}

TEST(Mismatch, AGatherDoesNotTakeInWhatAReductionSends) {
  const at::Tensor out = at::ones({8}), sum = at::ones({4});
  const auto ends = EndsOf(Gather(out, 4, "unit 1", 3), [&](Communicator& own) {
    return own.ReduceScatterSum(sum, at::full({8}, 5.0f), {"unit 1", 3});
  });
  for (const absl::Status& end : ends) EXPECT_FALSE(end.ok());
  EXPECT_TRUE(out.narrow(0, 4, 4).equal(at::ones({4})));
}

TEST(Mismatch, TheSameOperationOfBothRanksIsDone) {
  const at::Tensor first = at::ones({8}), second = at::ones({8});
  for (const auto& end : EndsOf(Gather(first, 4, "unit 1", 3), Gather(second, 4, "unit 1", 3))) {
    EXPECT_TRUE(end.ok()) << end;
  }
  EXPECT_TRUE(first.equal(second));
}

}  // namespace
}  // namespace muster::comm
