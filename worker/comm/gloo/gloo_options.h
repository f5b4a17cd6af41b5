#ifndef MUSTER_WORKER_COMM_GLOO_GLOO_OPTIONS_H_
#define MUSTER_WORKER_COMM_GLOO_GLOO_OPTIONS_H_

#include <chrono>
#include <functional>
#include <string>

namespace muster::comm {

struct GlooOptions {
  int rank = 0;
  int world_size = 1;
  // Tells the communicators of one store apart: "roll_call", "gradients". The same on all ranks.
  std::string name;
  // The longest time that Create waits for all ranks to connect.
  std::chrono::milliseconds connect_timeout = std::chrono::minutes(2);
  // The longest time that Work::Wait waits for peers that are alive.
  std::chrono::milliseconds timeout = std::chrono::minutes(5);
  // Returns whether the coordinator decides at present which rank hangs. It is asked each time that
  // `timeout` is over; if true, the wait continues for another `timeout`. Null: false. Called from
  // any thread.
  std::function<bool()> watched;
  // Each rank proves to each other one that it knows this. Empty: nothing is proved.
  std::string secret;
  // The address of this machine that peers connect to.
  std::string hostname = "127.0.0.1";
};

}  // namespace muster::comm

#endif  // MUSTER_WORKER_COMM_GLOO_GLOO_OPTIONS_H_
