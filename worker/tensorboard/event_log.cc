#include "worker/tensorboard/event_log.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/files/files.h"
#include "common/status/status.h"
#include "common/steady/condition.h"
#include "common/steady/now.h"
#include "worker/tensorboard/event.h"
#include "worker/tensorboard/folder.h"

namespace muster::tensorboard {
namespace {

// The time that the end waits for a call of the file system.
constexpr absl::Duration kLastCall = absl::Seconds(1);

}  // namespace

// The state that the log's thread and its owner share.
class EventLog::Writer {
 public:
  explicit Writer(Options options)
      : options_(std::move(options)),
        folder_(options_.directory, options_.job),
        queue_(options_.limit) {}

  // The loop of the log's thread.
  void Loop();

  // The calls of the owner.
  void Begin(int64_t step, bool continued);
  void Add(const Event& event);
  bool Sync(absl::Duration timeout);
  std::optional<Steps> Finish(absl::Duration timeout);
  // Ends the thread. True: the thread has ended, or is about to.
  bool Close();

 private:
  struct Begun {
    int64_t step = 0;
    bool continued = false;
  };
  // The files of earlier sessions, and their numbers around `start_`.
  struct Earlier {
    std::vector<std::string> files;
    Numbers numbers;
  };
  struct Trouble {
    // True while nothing can be written. `dropping`: records are dropped because of the trouble.
    bool troubled = false;
    bool dropping = false;
    // The newest record at the last failure. The trouble is over when this record is written.
    uint64_t well_with = 0;
    absl::Time retry_at = absl::InfinitePast();
  };
  enum class Phase { kRunning, kClosing, kEnded };

  // Waits for something to do, and returns true; false: the thread ends.
  bool AwaitWork();
  bool HasWork() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Writes the oldest records, and syncs if a sync is due.
  absl::Status Work();
  absl::Status Write(const Queue::Batch& batch);
  // Returns the beginning of the session's first file. It makes the data server forget the values
  // of later steps in the `earlier` files.
  std::string TakeBack(const std::vector<std::string>& earlier, double wall_time);
  // Begins a new file with these records.
  absl::Status Open(const Queue::Batch& batch);
  absl::Status SyncFile();
  void Failed(const absl::Status& status);
  void Succeeded();
  // Calls back, unless the owner is gone.
  void Call(const std::function<void()>& callback);

  const Options options_;

  // The following members belong to the log's thread.
  Folder folder_;
  std::unique_ptr<EventFile> file_;
  std::string newest_path_;  // of the newest file of this session; empty: there is none yet
  // The step of the next file's START. This session has written nothing of this step or of later
  // steps.
  int64_t start_ = 0;
  Earlier earlier_;

  absl::Mutex mutex_;
  // Signalled after each change for which a thread may wait.
  SteadyCondition changed_;
  Queue queue_ ABSL_GUARDED_BY(mutex_);
  std::optional<Begun> begun_ ABSL_GUARDED_BY(mutex_);
  // The number up to which all records must become durable.
  uint64_t wanted_ ABSL_GUARDED_BY(mutex_) = 0;
  Trouble trouble_ ABSL_GUARDED_BY(mutex_);
  // The time since which the thread has been in Work.
  absl::Time busy_since_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();
  bool calling_ ABSL_GUARDED_BY(mutex_) = false;
  Phase phase_ ABSL_GUARDED_BY(mutex_) = Phase::kRunning;
};

void EventLog::Writer::Begin(int64_t step, bool continued) {
  absl::MutexLock lock(&mutex_);
  if (!begun_.has_value()) begun_ = {step, continued};
  changed_.Changed();
}

void EventLog::Writer::Add(const Event& event) {
  std::string record = RecordOf(event);
  absl::Duration stuck;
  std::optional<Steps> dropped;
  {
    absl::MutexLock lock(&mutex_);
    dropped = queue_.Add(event.step(), std::move(record));
    stuck = SteadyNow() - busy_since_;
    if (stuck <= options_.slow || trouble_.troubled) stuck = absl::ZeroDuration();
    if (stuck > absl::ZeroDuration()) trouble_.troubled = true;
    if (stuck > absl::ZeroDuration() || dropped.has_value()) trouble_.well_with = queue_.newest();
    if (dropped.has_value() && std::exchange(trouble_.dropping, true)) dropped.reset();
    changed_.Changed();
  }
  if (dropped.has_value() && options_.on_dropped) options_.on_dropped(dropped->first);
  if (stuck > absl::ZeroDuration() && options_.on_trouble) {
    options_.on_trouble(absl::DeadlineExceededError(absl::StrCat(
                            "the file system of ", options_.directory, " has not answered for ",
                            absl::FormatDuration(absl::Trunc(stuck, absl::Seconds(1))))),
                        std::nullopt);
  }
}

bool EventLog::Writer::Sync(absl::Duration timeout) {
  absl::MutexLock lock(&mutex_);
  const uint64_t newest = queue_.newest();
  wanted_ = std::max(wanted_, newest);
  changed_.Changed();
  const auto settled = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return queue_.settled() >= newest || trouble_.troubled || phase_ == Phase::kEnded;
  };
  changed_.Await(mutex_, timeout, settled);
  return queue_.settled() >= newest && !trouble_.troubled;
}

std::optional<Steps> EventLog::Writer::Finish(absl::Duration timeout) {
  absl::MutexLock lock(&mutex_);
  wanted_ = queue_.newest();
  trouble_.retry_at = absl::InfinitePast();
  changed_.Changed();
  changed_.Await(mutex_, timeout, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return queue_.settled() >= wanted_ || phase_ == Phase::kEnded;
  });
  return queue_.Missing();
}

bool EventLog::Writer::Close() {
  absl::MutexLock lock(&mutex_);
  if (phase_ == Phase::kRunning) phase_ = Phase::kClosing;
  changed_.Changed();
  changed_.Await(mutex_, absl::InfiniteDuration(),
                 [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !calling_; });
  return changed_.Await(mutex_, kLastCall, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return phase_ == Phase::kEnded;
  });
}

void EventLog::Writer::Loop() {
  while (AwaitWork()) {
    absl::Status mine;
    Call([&] {
      if (options_.still_mine) mine = options_.still_mine();
    });
    if (!mine.ok()) break;
    const absl::Status status = Work();
    if (status.ok()) {
      Succeeded();
    } else {
      Failed(status);
    }
  }
  absl::MutexLock lock(&mutex_);
  phase_ = Phase::kEnded;
  changed_.Changed();
}

bool EventLog::Writer::HasWork() const {
  return begun_.has_value() && (!queue_.empty() || wanted_ > queue_.settled());
}

bool EventLog::Writer::AwaitWork() {
  absl::MutexLock lock(&mutex_);
  busy_since_ = absl::InfiniteFuture();
  const auto ready = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return phase_ == Phase::kClosing || (HasWork() && SteadyNow() >= trouble_.retry_at);
  };
  while (!ready()) {
    // Only the owner's end matters before retry_at; afterwards, any change does.
    const absl::Duration wait = trouble_.retry_at - SteadyNow();
    changed_.Await(mutex_, wait > absl::ZeroDuration() ? wait : absl::InfiniteDuration(), ready);
  }
  busy_since_ = SteadyNow();
  return phase_ == Phase::kRunning;
}

absl::Status EventLog::Writer::Work() {
  std::optional<Queue::Batch> batch;
  {
    absl::MutexLock lock(&mutex_);
    if (!queue_.empty()) batch = queue_.Oldest(options_.batch);
  }
  if (batch.has_value()) RETURN_IF_ERROR(Write(*batch));
  {
    absl::MutexLock lock(&mutex_);
    const bool asked = wanted_ > queue_.settled() && queue_.written() >= wanted_;
    if (!asked && (!trouble_.troubled || queue_.written() < trouble_.well_with))
      return absl::OkStatus();
  }
  return SyncFile();
}

absl::Status EventLog::Writer::Write(const Queue::Batch& batch) {
  const absl::Status status = file_ == nullptr ? Open(batch) : file_->Append(batch.bytes);
  if (!status.ok()) {
    // The data in the file may still become durable.
    if (file_ != nullptr) SyncFile().IgnoreError();
    return status;
  }
  start_ = std::max(start_, batch.steps.last + 1);
  absl::MutexLock lock(&mutex_);
  queue_.Written(batch);
  return absl::OkStatus();
}

absl::Status EventLog::Writer::Open(const Queue::Batch& batch) {
  RETURN_IF_ERROR(folder_.Ensure(newest_path_));
  ASSIGN_OR_RETURN(const auto earlier, EventFiles(folder_.path()));
  Begun begun;
  {
    absl::MutexLock lock(&mutex_);
    begun = *begun_;
  }
  const bool first = newest_path_.empty();
  if (first) start_ = begun.continued ? begun.step + 1 : 0;
  // The clock of this node may be behind the clock of another node, so the number is made larger
  // than all others.
  const absl::Time now = absl::Now();
  const int64_t number = std::max(absl::ToUnixSeconds(now), LargestNumber(earlier) + 1);
  const std::string path = files::JoinPath(folder_.path(), FileName(number, options_.writer));
  const double wall_time = absl::ToDoubleSeconds(now - absl::UnixEpoch());
  std::string contents = RecordOf(VersionEvent(wall_time));
  if (first) contents += TakeBack(earlier, wall_time);
  contents += RecordOf(StartEvent(start_, wall_time)) + batch.bytes;
  ASSIGN_OR_RETURN(file_, EventFile::Create(path, contents, *options_.disk));
  newest_path_ = path;
  if (!first || !begun.continued || begun.step == 0) return absl::OkStatus();
  if (earlier_.numbers.newest != begun.step && options_.on_gap) {
    Call([&] { options_.on_gap(earlier_.numbers.newest, begun.step); });
  }
  return absl::OkStatus();
}

std::string EventLog::Writer::TakeBack(const std::vector<std::string>& earlier, double wall_time) {
  // The files are read only if they have changed: on a full disk, each attempt to begin a file
  // comes here.
  if (std::exchange(earlier_.files, earlier) != earlier) {
    earlier_.numbers = NumbersAround(folder_.path(), earlier, start_ - 1);
  }
  if (earlier_.numbers.tags_after.empty()) return "";
  Event event = EventAt(start_, wall_time);
  for (const std::string& tag : earlier_.numbers.tags_after) AddNoNumber(tag, &event);
  return RecordOf(event);
}

absl::Status EventLog::Writer::SyncFile() {
  RETURN_IF_ERROR(file_->Sync());
  absl::MutexLock lock(&mutex_);
  queue_.Synced();
  changed_.Changed();
  return absl::OkStatus();
}

void EventLog::Writer::Failed(const absl::Status& status) {
  file_.reset();
  bool first = false;
  std::optional<Steps> unsynced;
  {
    absl::MutexLock lock(&mutex_);
    unsynced = queue_.FileFailed();
    trouble_.well_with = queue_.newest();
    trouble_.retry_at = SteadyNow() + options_.retry;
    first = !std::exchange(trouble_.troubled, true);
    changed_.Changed();
  }
  if (first && options_.on_trouble) {
    Call([&] { options_.on_trouble(status, unsynced); });
  }
}

void EventLog::Writer::Succeeded() {
  std::optional<Steps> lost;
  {
    absl::MutexLock lock(&mutex_);
    if (queue_.written() < trouble_.well_with) return;
    trouble_.dropping = false;
    lost = queue_.TakeLost();
    if (!std::exchange(trouble_.troubled, false) && !lost.has_value()) return;
  }
  if (!options_.on_recovered) return;
  Call([&] { options_.on_recovered(lost); });
}

void EventLog::Writer::Call(const std::function<void()>& callback) {
  {
    absl::MutexLock lock(&mutex_);
    if (phase_ != Phase::kRunning) return;
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

void EventLog::Add(const Event& event) { writer_->Add(event); }

bool EventLog::Sync(absl::Duration timeout) { return writer_->Sync(timeout); }

std::optional<Steps> EventLog::Finish(absl::Duration timeout) { return writer_->Finish(timeout); }

}  // namespace muster::tensorboard
