// Clients that submit jobs and give commands. A call is repeated with its request id until it is
// answered, even if musterd fails or answers are lost.
#ifndef MUSTER_TESTS_SIMULATION_CLIENT_H_
#define MUSTER_TESTS_SIMULATION_CLIENT_H_

#include <cstdint>
#include <deque>
#include <set>
#include <string>

#include "coordinator/cluster/event.h"
#include "tests/simulation/scene.h"

namespace muster::simulation {

class Client {
 public:
  explicit Client(Scene* scene) : scene_(*scene) {}

  void Submit(const std::string& job, const JobSettings& settings, uint32_t max_restarts);
  // Gives any command to any job.
  void CommandSomething();
  void Resume(const std::string& job);

  // True once every call is answered.
  bool Answered() const;
  // Checks that all answers still agree with the state.
  void Check(const cluster::Cluster& cluster);
  // True if an older database contains all answers. Answers that it does not contain are not
  // checked any more.
  bool AllAreIn(const store::Image& image) const;
  void Forget(const store::Image& image);

 private:
  struct Ask {
    std::string job;
    bool submits = false;
    cluster::Submission submission;
    cluster::CommandRequest command;
    bool answered = false;
    std::set<uint64_t> numbers;
    uint64_t attempts = 0;
  };

  void Add(Ask ask);
  void Call(Ask* ask);
  void Answer(Ask* ask, const absl::StatusOr<uint64_t>& answer);

  Scene& scene_;
  // Elements keep their addresses, because calls in flight point to them.
  std::deque<Ask> asks_;
  std::set<std::string> submitted_;
};

}  // namespace muster::simulation

#endif  // MUSTER_TESTS_SIMULATION_CLIENT_H_
