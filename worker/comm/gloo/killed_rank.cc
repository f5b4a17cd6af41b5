// killed_rank PORT RANK WORLD_SIZE: takes part in two reductions, then waits for a byte on standard
// input and kills itself with SIGKILL.
#include <csignal>
#include <cstdlib>
#include <iostream>

#include "ATen/ops/ones.h"
#include "worker/comm/gloo/gloo_communicator.h"

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  auto store =
      muster::comm::ConnectStore("127.0.0.1", std::atoi(argv[1]), std::chrono::seconds(20));
  if (!store.ok()) return 3;
  auto ranks = muster::comm::CreateGlooCommunicator(
      {.rank = std::atoi(argv[2]), .world_size = std::atoi(argv[3]), .name = "test"}, **store);
  if (!ranks.ok()) return 4;
  for (int step = 0; step < 2; ++step) {
    if (!(*ranks)->AllReduceSum(at::ones({1000}), {"warm-up", step})->Wait().ok()) return 5;
  }
  std::cin.get();
  std::raise(SIGKILL);
}
