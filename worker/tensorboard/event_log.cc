#include "worker/tensorboard/event_log.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/files/files.h"
#include "common/status/status.h"
#include "common/steady/condition.h"
#include "common/steady/now.h"
#include "worker/tensorboard/event.h"
#include "worker/tensorboard/event_file.h"
#include "worker/tensorboard/folder.h"
#include "worker/tensorboard/history.h"

namespace muster::tensorboard {
namespace {

// Entries that are written and not synced stay in memory. Also about how much is written at a time.
constexpr size_t kSyncBytes = size_t{1} << 20;
// How long the end waits for a call of the file system.
constexpr absl::Duration kLastCall = absl::Seconds(1);

double WallTime() { return absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch()); }

std::string RecordsOf(const Backlog::Batch& batch) {
  std::string records;
  if (batch.start.has_value()) records = StartRecord(*batch.start, WallTime());
  return records + EntryRecords(batch.entries);
}

void Include(const std::optional<LostSteps>& more, std::optional<LostSteps>* steps) {
  if (!more.has_value()) return;
  if (!steps->has_value()) {
    *steps = more;
    return;
  }
  (*steps)->first = std::min((*steps)->first, more->first);
  (*steps)->last = std::max((*steps)->last, more->last);
  (*steps)->entries += more->entries;
}

}  // namespace

absl::Duration RetryAfter(int64_t failures, absl::Duration first, absl::Duration longest) {
  absl::Duration wait = std::min(first, longest);
  for (int64_t count = 1; count < failures && wait < longest; ++count) {
    wait = std::min(2 * wait, longest);
  }
  return wait;
}

// What the log's thread and its owner share.
class EventLog::Writer {
 public:
  explicit Writer(Options options)
      : options_(std::move(options)),
        folder_(options_.directory, options_.job),
        backlog_(options_.limit, kSyncBytes) {}

  // The log's thread.
  void Loop();

  // The owner's calls.
  void Begin(int64_t step, bool continued);
  void Add(std::vector<Entry> entries);
  bool Sync(absl::Duration timeout);
  std::optional<LostSteps> Finish(absl::Duration timeout);
  // True: the thread has ended, or is about to.
  bool Close();

 private:
  struct Begun {
    int64_t step = 0;
    bool continued = false;
  };

  // Waits for something to write, and returns true; false: the thread ends.
  bool AwaitWork();
  bool HasWork() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Writes all that there is.
  absl::Status Write();
  // Begins a new file, with the first part of what is to be written.
  absl::Status Open();
  absl::Status ReadEarlierSessions();
  void Failed(const absl::Status& status);
  void Succeeded();
  // Calls back, unless the owner has gone.
  void Call(const std::function<void()>& callback);

  const Options options_;

  // The following members belong to the log's thread.
  Folder folder_;
  std::unique_ptr<EventFile> file_;
  std::string newest_path_;  // of the newest file that this session has begun
  bool has_begun_ = false;   // the backlog knows the session's begin

  absl::Mutex mutex_;
  // Signalled after each change for which a thread may wait.
  SteadyCondition changed_;
  Backlog backlog_ ABSL_GUARDED_BY(mutex_);
  std::optional<Begun> begun_ ABSL_GUARDED_BY(mutex_);
  bool open_ ABSL_GUARDED_BY(mutex_) = false;  // there is a file_
  // All entries up to this one are to be durable.
  uint64_t wanted_ ABSL_GUARDED_BY(mutex_) = 0;
  bool troubled_ ABSL_GUARDED_BY(mutex_) = false;
  int64_t failures_ ABSL_GUARDED_BY(mutex_) = 0;  // since a success
  // The newest entry when the newest file was begun: once it is durable, there is no trouble.
  uint64_t caught_up_ ABSL_GUARDED_BY(mutex_) = 0;
  bool finishing_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Time retry_at_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  // Since when the thread has been in Write.
  absl::Time busy_since_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();
  bool calling_ ABSL_GUARDED_BY(mutex_) = false;
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
};

void EventLog::Writer::Begin(int64_t step, bool continued) {
  absl::MutexLock lock(&mutex_);
  if (!begun_.has_value()) begun_ = {step, continued};
  changed_.Changed();
}

void EventLog::Writer::Add(std::vector<Entry> entries) {
  absl::Duration stuck;
  {
    absl::MutexLock lock(&mutex_);
    for (Entry& entry : entries) backlog_.Add(std::move(entry));
    stuck = SteadyNow() - busy_since_;
    if (stuck <= options_.slow || troubled_) stuck = absl::ZeroDuration();
    if (stuck > absl::ZeroDuration()) troubled_ = true;
    changed_.Changed();
  }
  if (stuck > absl::ZeroDuration() && options_.on_trouble) {
    options_.on_trouble(absl::DeadlineExceededError(
        absl::StrCat("the file system of ", options_.directory, " has not answered for ",
                     absl::FormatDuration(absl::Trunc(stuck, absl::Seconds(1))))));
  }
}

bool EventLog::Writer::Sync(absl::Duration timeout) {
  absl::MutexLock lock(&mutex_);
  const uint64_t newest = backlog_.newest();
  wanted_ = std::max(wanted_, newest);
  changed_.Changed();
  const auto done = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return backlog_.durable() >= newest || troubled_ || ended_;
  };
  changed_.Await(mutex_, timeout, done);
  return backlog_.durable() >= newest;
}

std::optional<LostSteps> EventLog::Writer::Finish(absl::Duration timeout) {
  absl::MutexLock lock(&mutex_);
  wanted_ = backlog_.newest();
  finishing_ = true;
  // There is no time for a long wait.
  retry_at_ = absl::InfinitePast();
  changed_.Changed();
  changed_.Await(mutex_, timeout, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return backlog_.durable() >= backlog_.newest() || ended_;
  });
  std::optional<LostSteps> lost = backlog_.NotDurable();
  Include(backlog_.TakeDropped(), &lost);
  return lost;
}

bool EventLog::Writer::Close() {
  absl::MutexLock lock(&mutex_);
  closing_ = true;
  changed_.Changed();
  changed_.Await(mutex_, absl::InfiniteDuration(),
                 [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !calling_; });
  return changed_.Await(mutex_, kLastCall,
                        [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return ended_; });
}

void EventLog::Writer::Loop() {
  while (AwaitWork()) {
    absl::Status mine;
    Call([&] {
      if (options_.still_mine) mine = options_.still_mine();
    });
    if (!mine.ok()) break;
    const absl::Status status = Write();
    if (status.ok()) {
      Succeeded();
    } else {
      Failed(status);
    }
  }
  absl::MutexLock lock(&mutex_);
  ended_ = true;
  changed_.Changed();
}

bool EventLog::Writer::HasWork() const {
  if (!begun_.has_value() || backlog_.newest() == 0) return false;
  return !open_ || !backlog_.complete() || wanted_ > backlog_.durable();
}

bool EventLog::Writer::AwaitWork() {
  absl::MutexLock lock(&mutex_);
  busy_since_ = absl::InfiniteFuture();
  const auto ready = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return closing_ || (HasWork() && SteadyNow() >= retry_at_);
  };
  while (!ready()) {
    // Until then nothing but the owner's end matters; after it, any change does.
    const absl::Duration wait = retry_at_ - SteadyNow();
    changed_.Await(mutex_, wait > absl::ZeroDuration() ? wait : absl::InfiniteDuration(), ready);
  }
  busy_since_ = SteadyNow();
  return !closing_;
}

absl::Status EventLog::Writer::Write() {
  if (file_ == nullptr) return Open();
  Backlog::Batch batch;
  {
    absl::MutexLock lock(&mutex_);
    batch = backlog_.Next();
  }
  if (!batch.empty()) RETURN_IF_ERROR(file_->Append(RecordsOf(batch)));
  {
    absl::MutexLock lock(&mutex_);
    backlog_.Written(batch);
    const bool asked = wanted_ > backlog_.durable() && backlog_.written() >= wanted_;
    const bool sync = asked || troubled_ || backlog_.unsynced() >= kSyncBytes;
    if (!sync) return absl::OkStatus();
  }
  RETURN_IF_ERROR(file_->Sync());
  absl::MutexLock lock(&mutex_);
  backlog_.Synced();
  changed_.Changed();
  return absl::OkStatus();
}

absl::Status EventLog::Writer::Open() {
  RETURN_IF_ERROR(folder_.Ensure(newest_path_));
  ASSIGN_OR_RETURN(const int64_t largest, LargestNumber(folder_.path()));
  if (!has_begun_) RETURN_IF_ERROR(ReadEarlierSessions());
  Backlog::Batch batch;
  {
    absl::MutexLock lock(&mutex_);
    batch = backlog_.ForNewFile();
    caught_up_ = batch.newest;
  }
  // The clock of this node may be behind that of another one.
  const int64_t number = std::max(absl::ToUnixSeconds(absl::Now()), largest + 1);
  const std::string path = files::JoinPath(folder_.path(), FileName(number, options_.writer));
  ASSIGN_OR_RETURN(
      file_, EventFile::Create(path, VersionRecord(WallTime()) + RecordsOf(batch), *options_.disk));
  newest_path_ = path;
  absl::MutexLock lock(&mutex_);
  open_ = true;
  backlog_.Written(batch);
  backlog_.Synced();
  changed_.Changed();
  return absl::OkStatus();
}

absl::Status EventLog::Writer::ReadEarlierSessions() {
  Begun begun;
  {
    absl::MutexLock lock(&mutex_);
    begun = *begun_;
  }
  History history;
  if (begun.continued) {
    ASSIGN_OR_RETURN(history, ReadHistory(folder_.path(), begun.step));
  }
  {
    absl::MutexLock lock(&mutex_);
    backlog_.Begin(begun.continued ? begun.step : 0, history.at_step);
  }
  has_begun_ = true;
  const bool gap = begun.continued && begun.step > 0 && history.newest != begun.step;
  if (gap && options_.on_gap) {
    Call([&] { options_.on_gap(history.newest, begun.step); });
  }
  return absl::OkStatus();
}

void EventLog::Writer::Failed(const absl::Status& status) {
  file_.reset();
  bool first = false;
  {
    absl::MutexLock lock(&mutex_);
    open_ = false;
    ++failures_;
    retry_at_ =
        SteadyNow() + (finishing_ ? options_.retry
                                  : RetryAfter(failures_, options_.retry, options_.longest_retry));
    first = !std::exchange(troubled_, true);
    changed_.Changed();
  }
  if (first && options_.on_trouble) {
    Call([&] { options_.on_trouble(status); });
  }
}

void EventLog::Writer::Succeeded() {
  std::optional<LostSteps> dropped;
  {
    absl::MutexLock lock(&mutex_);
    if (backlog_.durable() < caught_up_) return;
    failures_ = 0;
    dropped = backlog_.TakeDropped();
    if (!std::exchange(troubled_, false) && !dropped.has_value()) return;
  }
  if (!options_.on_recovered) return;
  Call([&] { options_.on_recovered(dropped); });
}

void EventLog::Writer::Call(const std::function<void()>& callback) {
  {
    absl::MutexLock lock(&mutex_);
    if (closing_) return;
    calling_ = true;
  }
  callback();
  absl::MutexLock lock(&mutex_);
  calling_ = false;
  changed_.Changed();
}

EventLog::EventLog(Options options)
    : writer_(std::make_shared<Writer>(std::move(options))),
      thread_([writer = writer_] { writer->Loop(); }) {}

EventLog::~EventLog() {
  if (writer_->Close()) {
    thread_.join();
  } else {
    thread_.detach();
  }
}

void EventLog::Begin(int64_t step, bool continued) { writer_->Begin(step, continued); }

void EventLog::Add(std::vector<Entry> entries) { writer_->Add(std::move(entries)); }

bool EventLog::Sync(absl::Duration timeout) { return writer_->Sync(timeout); }

std::optional<LostSteps> EventLog::Finish(absl::Duration timeout) {
  return writer_->Finish(timeout);
}

}  // namespace muster::tensorboard
