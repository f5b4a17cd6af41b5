// Which entries must still be written to an event file, and which must be written again if the file
// fails. Pure.
//
// Entries are held until they are durable, and those of the newest steps longer, because a START
// makes a reader forget whole steps. So a new file can always begin at the first step that is not
// durable, and a reader sees each step once.
#ifndef MUSTER_WORKER_TENSORBOARD_BACKLOG_H_
#define MUSTER_WORKER_TENSORBOARD_BACKLOG_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "worker/tensorboard/entry.h"

namespace muster::tensorboard {

// Steps of which entries are lost; there may be others between them.
struct LostSteps {
  int64_t first = 0;
  int64_t last = 0;
  int64_t entries = 0;

  friend bool operator==(const LostSteps&, const LostSteps&) = default;
};

// Threading: the caller's.
class Backlog {
 public:
  // `limit`: bytes of all entries together, by SizeOf. If there are more, the oldest steps are
  // dropped: the curves continue, with a gap. `batch`: about how many bytes are written at a time,
  // so that a batch, which is a copy, is small even if much is held.
  Backlog(size_t limit, size_t batch) : limit_(limit), batch_(batch) {}

  // Before the first batch: what the session writes takes the place of everything from this step
  // on in the files that there are. `carried`: those of their entries that stay. They come before
  // what was added already.
  void Begin(int64_t step, std::vector<Entry> carried);

  // A number replaces one with the same tag and step. A text that is there already is ignored.
  // Steps do not decrease, except that an entry may be late.
  void Add(Entry entry);

  // What to write. There may be more: complete() says so.
  struct Batch {
    std::optional<int64_t> start;  // a START comes first, at this step
    std::vector<Entry> entries;
    uint64_t through = 0;   // the number up to which the file then has all
    uint64_t newest = 0;    // the newest number when the batch was made
    bool new_file = false;  // it begins a file
    bool empty() const { return !start.has_value() && entries.empty(); }
  };
  // To the current file; empty if it has all.
  Batch Next();
  // To a new file: also what may be lost in the current one.
  Batch ForNewFile();
  // The current file has all.
  bool complete() const { return written_ == newest() && !rewrite_from_.has_value(); }
  // A batch is written to the current file; one of ForNewFile begins this file.
  void Written(const Batch& batch);
  // All that is written is durable.
  void Synced();

  // The number of the newest entry, and the numbers up to which all are written, and durable.
  uint64_t newest() const { return next_ - 1; }
  uint64_t written() const { return written_; }
  uint64_t durable() const { return durable_; }
  int64_t newest_step() const { return newest_step_; }
  // Bytes that are written and not durable.
  size_t unsynced() const;
  // The steps of entries that are not durable.
  std::optional<LostSteps> NotDurable() const;
  // Those of entries that were dropped before they were durable, since the last call.
  std::optional<LostSteps> TakeDropped();

 private:
  struct Held {
    uint64_t number = 0;
    Entry entry;
  };
  using Iterator = std::deque<Held>::const_iterator;

  // How many steps before the newest one are held although they are durable.
  static constexpr int64_t kLateSteps = 4;

  void Push(Entry entry);
  // Removes the oldest entry, after which its step is not whole any more.
  void Pop();
  // The first one with a higher number.
  Iterator After(uint64_t number) const;
  // Fills a batch with what the current file, or that of the batch, must have again of the entries
  // up to the number `had`, and with the first of those after it.
  void Fill(uint64_t had, Batch* batch);
  static void Count(const Entry& entry, std::optional<LostSteps>* steps);

  const size_t limit_;
  const size_t batch_;
  std::deque<Held> held_;  // by number
  size_t bytes_ = 0;
  uint64_t next_ = 1;
  uint64_t taken_ = 0;  // as written_, including the newest batch, which may not be written yet
  uint64_t written_ = 0;
  uint64_t durable_ = 0;
  int64_t newest_step_ = 0;
  int64_t begin_ = 0;
  // All entries of this step and of later ones are held.
  int64_t whole_from_ = 0;
  // A written entry of this step, or one of the newest batch, was replaced; the newest one that
  // replaces another has the number rewritten_through_.
  std::optional<int64_t> rewrite_from_;
  uint64_t rewritten_through_ = 0;
  std::optional<LostSteps> dropped_;
};

}  // namespace muster::tensorboard

#endif  // MUSTER_WORKER_TENSORBOARD_BACKLOG_H_
