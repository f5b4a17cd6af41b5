#ifndef MUSTER_WORKER_COMM_GLOO_GLOO_OPTIONS_H_
#define MUSTER_WORKER_COMM_GLOO_GLOO_OPTIONS_H_

#include <chrono>
#include <functional>
#include <string>

namespace muster::comm {

struct GlooOptions {
  int rank = 0;
  int world_size = 1;
  // The communicator's name, unique within one store: "roll_call", "gradients". Equal on all ranks.
  std::string name;
  // The longest time that Create waits for all ranks to connect.
  std::chrono::milliseconds connect_timeout = std::chrono::minutes(2);
  // The longest time that Work::Wait waits for peers that are alive.
  std::chrono::milliseconds timeout = std::chrono::minutes(5);
  // Returns whether the coordinator is deciding which rank hangs. Called from any thread each time
  // that `timeout` is over. If the result is true, the wait continues for another `timeout`. Null
  // means false.
  std::function<bool()> watched;
  // The secret of the generation. Each rank proves to each other rank that it knows the secret.
  // Empty: ranks prove nothing.
  std::string secret;
  // The address of this machine that peers connect to.
  std::string hostname = "127.0.0.1";
};

}  // namespace muster::comm

#endif  // MUSTER_WORKER_COMM_GLOO_GLOO_OPTIONS_H_
