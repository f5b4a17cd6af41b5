// Clients that submit jobs and give commands. A call is repeated under its request id until it is
// answered, whatever happens to musterd and to answers meanwhile.
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
  // Any command to any job.
  void CommandSomething();
  void Resume(const std::string& job);

  // Every call has come to its answer.
  bool Answered() const;
  // What was answered is still true.
  void Check(const cluster::Cluster& cluster);
  // The database is an older one: what it does not know does not count.
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
  // Never moved: calls under way point to them.
  std::deque<Ask> asks_;
  std::set<std::string> submitted_;
};

}  // namespace muster::simulation

#endif  // MUSTER_TESTS_SIMULATION_CLIENT_H_
