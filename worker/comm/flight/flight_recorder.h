// The newest collectives of this rank: the number of each within the generation, its name, and
// whether it has ended. The watchdog (coordinator/membership/watchdog.h) and the roll call compare
// the recorders of the ranks. The comparison shows which rank is behind, and which rank calls other
// collectives than the others.
//
// Collectives are numbered twice. The number over all communicators of a rank tells how far the
// rank has come. The number within one communicator means the same operation on all ranks, because
// their order on a communicator is the same on all ranks.
#ifndef MUSTER_WORKER_COMM_FLIGHT_FLIGHT_RECORDER_H_
#define MUSTER_WORKER_COMM_FLIGHT_FLIGHT_RECORDER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "worker/comm/communicator.h"

namespace muster::comm {

// Threading: thread-safe. Nothing is allocated for a collective.
class FlightRecorder {
 public:
  static constexpr size_t kKept = 64;
  // The largest number of communicators of one rank. Each communicator is one channel.
  static constexpr size_t kChannels = 4;
  // The channel of the communicator whose operations a background thread issues. The order of its
  // operations among those of the other channels differs between ranks.
  static constexpr size_t kBackground = 3;

  // Returns the number of the collective, from 1. `operation`: for example "all_reduce", of static
  // lifetime. `channel`: the number of the communicator, below kChannels.
  uint64_t Begin(size_t channel, const char* operation, OpLabel label);
  // Marks the collective as ended. Must be called once for each number.
  void End(uint64_t number);

  struct Record {
    uint64_t number = 0;
    size_t channel = 0;
    uint64_t of_channel = 0;  // the number within the channel, from 1
    std::string name;         // "all_reduce 'bucket 2' step 120"
    bool ended = false;
  };
  struct Flight {
    uint64_t begun = 0;
    uint64_t ended = 0;
    std::vector<Record> newest;  // at most kKept, oldest first
  };
  Flight Read() const;

  // A hash of all collectives that have begun so far, except those of kBackground. Ranks that have
  // begun the same operations in the same order on each communicator have equal hashes.
  struct Digest {
    uint64_t begun = 0;
    uint64_t hash = 0;
  };
  Digest digest() const;

 private:
  // The number of bytes of a label that are kept, with the final 0. Longer labels are cut.
  static constexpr size_t kLabelBytes = 96;
  struct Entry {
    uint64_t number = 0;
    size_t channel = 0;
    uint64_t of_channel = 0;
    const char* operation = "";
    std::array<char, kLabelBytes> what{};
    int64_t step = 0;
    bool ended = false;
  };

  mutable absl::Mutex mutex_;
  uint64_t begun_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t ended_ ABSL_GUARDED_BY(mutex_) = 0;
  std::array<uint64_t, kChannels> begun_of_ ABSL_GUARDED_BY(mutex_){};  // by channel
  std::array<uint64_t, kChannels> hashes_ ABSL_GUARDED_BY(mutex_){};    // by channel
  std::array<Entry, kKept> entries_ ABSL_GUARDED_BY(mutex_);            // a ring, by number
};

}  // namespace muster::comm

#endif  // MUSTER_WORKER_COMM_FLIGHT_FLIGHT_RECORDER_H_
