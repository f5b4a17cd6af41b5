#include "worker/comm/test_groups.h"

#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "worker/comm/gloo/gloo_communicator.h"
#include "worker/comm/gloo/rendezvous.h"
#include "worker/comm/local/local_group.h"
#include "worker/comm/staged/staged_communicator.h"
#ifdef MUSTER_CUDA
#include "c10/cuda/CUDAFunctions.h"
#include "worker/comm/nccl/nccl_communicator.h"
#else
#include "worker/device/stand_in/stand_in_device.h"
#endif

namespace muster::comm {

const char* Name(Implementation implementation) {
  switch (implementation) {
    case Implementation::kLocal:
      return "Local";
    case Implementation::kGloo:
      return "Gloo";
    case Implementation::kStaged:
      return "Staged";
    case Implementation::kStagedOnDevice:
      return "StagedOnDevice";
    case Implementation::kNccl:
      return "Nccl";
  }
  return "";
}

namespace {

thread_local c10::Device test_device = c10::kCPU;

// The device of a rank. On machines with a GPU, all ranks share one GPU.
c10::Device DeviceOfRank(int rank) {
#ifdef MUSTER_CUDA
  return c10::Device(c10::kCUDA, 0);
#else
  return device::StandInDevice(static_cast<c10::DeviceIndex>(rank));
#endif
}

absl::StatusOr<std::unique_ptr<Communicator>> Connect(Implementation implementation, int rank,
                                                      int world_size, RendezvousStore& store,
                                                      std::chrono::milliseconds timeout) {
#ifdef MUSTER_CUDA
  if (implementation == Implementation::kNccl) {
    return CreateNcclCommunicator({.rank = rank,
                                   .world_size = world_size,
                                   .name = "test",
                                   .device = test_device,
                                   .timeout = timeout,
                                   .order = SumOrder::kRank},
                                  store);
  }
#endif
  return CreateGlooCommunicator(
      {.rank = rank, .world_size = world_size, .name = "test", .timeout = timeout}, store);
}

}  // namespace

std::vector<std::tuple<Implementation, int>> GroupsToTest() {
#ifdef MUSTER_CUDA
  return {{Implementation::kStagedOnDevice, 2},
          {Implementation::kStagedOnDevice, 4},
          {Implementation::kNccl, 1}};
#else
  // Few world sizes: a staged communicator does nothing that depends on the number of ranks.
  std::vector<std::tuple<Implementation, int>> groups = {{Implementation::kStaged, 1},
                                                         {Implementation::kStaged, 3},
                                                         {Implementation::kStagedOnDevice, 3}};
  for (const Implementation one : {Implementation::kLocal, Implementation::kGloo}) {
    for (int world_size = 1; world_size <= 4; ++world_size) groups.emplace_back(one, world_size);
  }
  return groups;
#endif
}

const char* WhyNot() {
#ifdef MUSTER_CUDA
  if (c10::cuda::device_count() == 0) return "this machine has no GPU";
#endif
  return "";
}

c10::Device TestDevice() { return test_device; }

void RunRanks(Implementation implementation, int world_size,
              const std::function<void(std::unique_ptr<Communicator> ranks)>& body,
              std::chrono::milliseconds timeout) {
  std::vector<std::unique_ptr<Communicator>> local;
  std::unique_ptr<RendezvousStore> store;
  const bool connects =
      implementation == Implementation::kGloo || implementation == Implementation::kNccl;
  const bool on_device =
      implementation == Implementation::kStagedOnDevice || implementation == Implementation::kNccl;
  if (!connects) {
    local = LocalGroup::Create(world_size);
  } else {
    auto hosted = HostStore();
    ASSERT_TRUE(hosted.ok()) << hosted.status();
    store = std::move(*hosted);
  }
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world_size; ++rank) {
    threads.emplace_back([&, rank] {
      if (on_device) test_device = DeviceOfRank(rank);
      if (implementation == Implementation::kLocal) return body(std::move(local[rank]));
      if (!connects) return body(Staged(std::move(local[rank]), {.device = test_device}));
      auto connected = ConnectStore("127.0.0.1", store->port(), std::chrono::seconds(30));
      ASSERT_TRUE(connected.ok()) << connected.status();
      auto ranks = Connect(implementation, rank, world_size, **connected, timeout);
      ASSERT_TRUE(ranks.ok()) << ranks.status();
      body(std::move(*ranks));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace muster::comm
