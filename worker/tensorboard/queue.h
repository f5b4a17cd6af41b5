// The records that wait to be written to an event file, and the steps that the files may lack.
// Pure.
#ifndef MUSTER_WORKER_TENSORBOARD_QUEUE_H_
#define MUSTER_WORKER_TENSORBOARD_QUEUE_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <utility>

namespace muster::tensorboard {

// The first and the last of some steps. Steps between them need not belong to the set.
struct Steps {
  int64_t first = 0;
  int64_t last = 0;

  friend bool operator==(const Steps&, const Steps&) = default;
};

// Threading: the caller's.
class Queue {
 public:
  // Records that follow one another.
  struct Batch {
    uint64_t newest = 0;  // the number of the last record, counted from 1
    Steps steps;
    std::string bytes;
  };

  // `limit`: the bytes of all records together. Beyond the limit, the oldest records are lost.
  explicit Queue(size_t limit) : limit_(limit) {}

  // Adds a record. Returns the steps of the records that are lost for lack of room.
  std::optional<Steps> Add(int64_t step, std::string bytes);
  // True if no record waits.
  bool empty() const { return waiting_.empty(); }
  // Returns the oldest waiting records: as many as have `size` bytes, and at least one. Requires a
  // waiting record. The records stay until Written.
  Batch Oldest(size_t size) const;
  // Takes in that these records, which were the oldest ones, are written, but not yet durable.
  void Written(const Batch& batch);
  // Takes in that all written records are durable.
  void Synced();
  // Takes in that written records that are not durable may be lost. Returns their steps.
  std::optional<Steps> FileFailed();

  // The number of the newest record; the number up to which all records are written; and the number
  // up to which all are durable or lost.
  uint64_t newest() const { return newest_; }
  uint64_t written() const { return written_; }
  uint64_t settled() const { return settled_; }

  // Returns the steps of records that were lost since the last call.
  std::optional<Steps> TakeLost() { return std::exchange(lost_, std::nullopt); }
  // Returns the steps of TakeLost, and those of records that are not durable.
  std::optional<Steps> Missing() const;

 private:
  struct Record {
    uint64_t number = 0;
    int64_t step = 0;
    std::string bytes;
  };
  void RemoveOldest();

  const size_t limit_;
  std::deque<Record> waiting_;
  size_t bytes_ = 0;  // of the waiting records
  uint64_t newest_ = 0;
  uint64_t written_ = 0;
  uint64_t settled_ = 0;
  std::optional<Steps> unsynced_;
  std::optional<Steps> lost_;
};

}  // namespace muster::tensorboard

#endif  // MUSTER_WORKER_TENSORBOARD_QUEUE_H_
