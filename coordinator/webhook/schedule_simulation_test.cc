// A simulated receiver that works, refuses, fails and is down by chance, and musterds that are
// killed. Accepted messages come in the order of each job, and no message is lost.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/random/splitmix.h"
#include "coordinator/webhook/schedule.h"

namespace muster::webhook {
namespace {

constexpr int kJobs = 5;
constexpr int kMessages = 200;

class Simulation {
 public:
  explicit Simulation(uint64_t seed) : random_(seed) {}

  void Run() {
    while (made_ < kMessages || schedule_.size() > 0) {
      ASSERT_LT(++events_, 100 * kMessages) << "it does not end";
      if (made_ < kMessages && Chance(3)) Make();
      if (Chance(40)) Restart();
      const store::DeliveryRow* due = schedule_.Due(now_);
      if (due != nullptr) {
        Send(*due);
        continue;
      }
      // Time passes: until the next message is due, or a part of that.
      const absl::Time next = schedule_.NextDue();
      if (next == absl::InfiniteFuture()) continue;
      ASSERT_GT(next, now_) << "a message is due and is not given";
      ASSERT_LE(next - now_, absl::Hours(1)) << "the longest wait is over";
      now_ = Chance(2) ? next : now_ + (next - now_) / 2;
    }
  }

  void Check() const {
    std::set<uint64_t> known = given_up_;
    for (const auto& [job, numbers] : accepted_) {
      EXPECT_TRUE(std::is_sorted(numbers.begin(), numbers.end())) << job;
      known.insert(numbers.begin(), numbers.end());
    }
    EXPECT_EQ(known.size(), kMessages) << "each is accepted, was refused, or is too old";
  }

 private:
  bool Chance(uint64_t of) { return random_.Below(of) == 0; }

  void Make() {
    const store::DeliveryRow message = {.number = static_cast<uint64_t>(++made_),
                                        .id = absl::StrCat(made_),
                                        .job_id = absl::StrCat("job-", random_.Below(kJobs)),
                                        .create_time = now_};
    stored_[message.number] = message;
    schedule_.Add(message);
  }

  // Keeps only what is stored.
  void Restart() {
    schedule_ = Schedule(Retries());
    for (const auto& [number, message] : stored_) schedule_.Add(message);
  }

  void Send(store::DeliveryRow message) {
    for (const auto& [number, other] : stored_) {
      if (number == message.number) break;
      EXPECT_NE(other.job_id, message.job_id) << "an older one of this job waits";
    }
    const Answer answer = AnswerTo(message);
    now_ += absl::Milliseconds(random_.Below(2000));
    // The receiver has the message, and musterd is killed before it knows.
    if (Chance(20)) return Restart();
    const Schedule::Result result =
        schedule_.Take(message, answer, now_, static_cast<double>(random_.Below(1000)) / 1000);
    for (const uint64_t number : result.settled) {
      if (answer.status != 200) {
        const bool too_old = now_ - stored_[number].create_time >= absl::Hours(24);
        EXPECT_TRUE(too_old || refused_.contains(number)) << number;
        given_up_.insert(number);
      }
      stored_.erase(number);
    }
  }

  Answer AnswerTo(const store::DeliveryRow& message) {
    if (now_ < down_until_) return {.trouble = "no connection"};
    switch (random_.Below(12)) {
      case 0:
        down_until_ = now_ + absl::Minutes(random_.Below(30));
        return {.trouble = "no connection"};
      case 1:
        return {.status = 500};
      case 2:
        return {.status = 429, .retry_after = absl::Seconds(random_.Below(10000))};
      case 3:
        refused_.insert(message.number);
        return {.status = 422};
      default:
        break;
    }
    std::vector<uint64_t>& accepted = accepted_[message.job_id];
    // A receiver drops repeats.
    if (std::find(accepted.begin(), accepted.end(), message.number) == accepted.end()) {
      accepted.push_back(message.number);
    }
    return {.status = 200};
  }

  random::Splitmix random_;
  absl::Time now_ = absl::FromUnixSeconds(1000);
  absl::Time down_until_ = absl::InfinitePast();
  int events_ = 0;
  int made_ = 0;
  Schedule schedule_{Retries()};
  std::map<uint64_t, store::DeliveryRow> stored_;
  // The accepted messages by job, in the order in which the receiver got them.
  std::map<std::string, std::vector<uint64_t>> accepted_;
  std::set<uint64_t> refused_, given_up_;
};

TEST(ScheduleSimulation, NothingIsLostAndEachJobsOrderIsKept) {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    Simulation simulation(seed);
    simulation.Run();
    simulation.Check();
    if (testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace muster::webhook
