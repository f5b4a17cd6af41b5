#include "worker/comm/test_groups.h"

#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "worker/comm/gloo/gloo_communicator.h"
#include "worker/comm/gloo/rendezvous.h"
#include "worker/comm/local/local_group.h"
#include "worker/comm/staged/staged_communicator.h"

namespace muster::comm {

const char* Name(Implementation implementation) {
  switch (implementation) {
    case Implementation::kLocal:
      return "Local";
    case Implementation::kGloo:
      return "Gloo";
    case Implementation::kStaged:
      return "Staged";
  }
  return "";
}

void RunRanks(Implementation implementation, int world_size,
              const std::function<void(std::unique_ptr<Communicator> ranks)>& body,
              std::chrono::milliseconds timeout) {
  std::vector<std::unique_ptr<Communicator>> local;
  std::unique_ptr<RendezvousStore> store;
  if (implementation != Implementation::kGloo) {
    local = LocalGroup::Create(world_size);
  } else {
    auto hosted = HostStore();
    ASSERT_TRUE(hosted.ok()) << hosted.status();
    store = std::move(*hosted);
  }
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world_size; ++rank) {
    threads.emplace_back([&, rank] {
      if (implementation == Implementation::kLocal) return body(std::move(local[rank]));
      if (implementation == Implementation::kStaged) {
        return body(Staged(std::move(local[rank]), {}));
      }
      auto connected = ConnectStore("127.0.0.1", store->port(), std::chrono::seconds(30));
      ASSERT_TRUE(connected.ok()) << connected.status();
      auto ranks = CreateGlooCommunicator(
          {.rank = rank, .world_size = world_size, .name = "test", .timeout = timeout},
          **connected);
      ASSERT_TRUE(ranks.ok()) << ranks.status();
      body(std::move(*ranks));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace muster::comm
