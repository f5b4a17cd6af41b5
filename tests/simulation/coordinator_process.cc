#include "tests/simulation/coordinator_process.h"

#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/lease/lease.h"
#include "coordinator/membership/refusal.h"

namespace muster::simulation {
namespace {

// The same value as in coordinator/service/engine.cc.
constexpr double kPauseOfLease = 0.5;

}  // namespace

CoordinatorProcess::CoordinatorProcess(Timeline* timeline, Network* network,
                                       const cluster::Options& options, int ticks_per_lease,
                                       Callbacks callbacks)
    : timeline_(*timeline),
      network_(*network),
      options_(options),
      ticks_per_lease_(ticks_per_lease),
      callbacks_(std::move(callbacks)) {
  options_.new_incarnation = [this] { return absl::StrCat("i", ++incarnations_); };
}

void CoordinatorProcess::Start() {
  ++process_;
  const auto image = store_->Load();
  if (!image.ok()) return timeline_.Wrong("the store cannot be loaded: ", image.status().message());
  timeline_.Tell("musterd starts");
  cluster_ = std::make_unique<cluster::Cluster>(options_, *image, timeline_.now());
  network_.Listen(this);
  last_wake_ = timeline_.now();
  tick_due_ = true;
  ScheduleWork(absl::ZeroDuration());
  ScheduleTick();
}

void CoordinatorProcess::Kill() {
  if (!running()) return;
  timeline_.Tell("musterd is killed");
  ++process_;
  cluster_.reset();
  tasks_.clear();
  aside_.clear();
  commit_.reset();
  trouble_since_.reset();
  ended_.clear();
  answered_.clear();
  work_scheduled_ = tick_due_ = false;
  still_until_ = absl::InfinitePast();
  crash_point_ = CrashPoint::kNever;
  network_.StopListening();
}

void CoordinatorProcess::StandStill(absl::Duration duration) {
  if (!running()) return;
  timeline_.Tell("musterd stands still for ", absl::FormatDuration(duration));
  still_until_ = timeline_.now() + duration;
}

void CoordinatorProcess::Take(StreamId stream, Apply apply) {
  Post({.stream = stream, .apply = std::move(apply), .done = nullptr, .applied = {}});
}

void CoordinatorProcess::Aside(StreamId stream, Apply apply) {
  if (!running()) return;
  aside_.push_back({.stream = stream, .apply = std::move(apply), .done = nullptr, .applied = {}});
  ScheduleWork(timeline_.Between(0, 0.004));
}

void CoordinatorProcess::Call(Apply apply, Done done) {
  Post({.apply = std::move(apply), .done = std::move(done), .applied = {}});
}

void CoordinatorProcess::StreamBroke(StreamId stream) {
  Post({
      .apply =
          [stream](cluster::Cluster& cluster, absl::Time now) {
            cluster.Detached(stream, now);
            return absl::OkStatus();
          },
      .done = nullptr,
      .applied = {},
  });
}

void CoordinatorProcess::Post(Task task) {
  if (!running()) return;
  tasks_.push_back(std::move(task));
  ScheduleWork(timeline_.Between(0, 0.004));
}

void CoordinatorProcess::ScheduleWork(absl::Duration delay) {
  if (std::exchange(work_scheduled_, true)) return;
  timeline_.After(delay, [this, process = process_] {
    if (process == process_) Work();
  });
}

void CoordinatorProcess::ScheduleTick() {
  timeline_.After(options_.timing.lease / ticks_per_lease_, [this, process = process_] {
    if (process != process_) return;
    tick_due_ = true;
    ScheduleWork(absl::ZeroDuration());
    ScheduleTick();
  });
}

void CoordinatorProcess::Work() {
  work_scheduled_ = false;
  if (timeline_.now() < still_until_) return ScheduleWork(still_until_ - timeline_.now());
  const absl::Time now = timeline_.now();
  for (const Task& task : std::exchange(aside_, {})) {
    if (!ended_.contains(task.stream)) task.apply(*cluster_, now).IgnoreError();
  }
  const absl::Duration gap = now - std::exchange(last_wake_, now);
  if (gap > kPauseOfLease * options_.timing.lease)
    cluster_->Handle(cluster::CoordinatorPaused{gap}, now);
  if (!commit_.has_value()) ApplyTasks(now);
  TryCommit(now);
}

void CoordinatorProcess::ApplyTasks(absl::Time now) {
  commit_.emplace();
  commit_->tasks = std::exchange(tasks_, {});
  for (Task& task : commit_->tasks) {
    if (task.stream == 0 || !ended_.contains(task.stream)) {
      task.applied = task.apply(*cluster_, now);
    }
    // No further messages of this stream are handled.
    if (task.stream != 0 && !task.applied.ok()) ended_.insert(task.stream);
  }
  if (std::exchange(tick_due_, false)) cluster_->Handle(cluster::TimePassed{}, now);
  commit_->batch = cluster_->TakeBatch();
  commit_->effects = cluster_->TakeEffects();
}

void CoordinatorProcess::TryCommit(absl::Time now) {
  if (!commit_->batch.empty()) {
    if (crash_point_ == CrashPoint::kBeforeCommit) return Kill();
    if (commits_fail_) {
      if (!trouble_since_.has_value()) timeline_.Tell("the store fails");
      trouble_since_ = trouble_since_.value_or(now);
      RefuseWhoDoesNotWait();
      return ScheduleWork(timeline_.Between(0.1, 1));
    }
    if (const absl::Status status = store_->Commit(commit_->batch); !status.ok()) {
      return timeline_.Wrong("the memory store fails: ", status.message());
    }
    callbacks_.committed(commit_->batch, *cluster_);
    if (crash_point_ == CrashPoint::kAfterCommit) return Kill();
  }
  if (trouble_since_.has_value()) {
    cluster_->Handle(cluster::StoreUnavailable{now - *std::exchange(trouble_since_, std::nullopt)},
                     now);
    ScheduleWork(absl::ZeroDuration());
  }
  const Commit done = *std::exchange(commit_, std::nullopt);
  for (const cluster::Effect& effect : done.effects) LetOut(effect);
  for (const Task& task : done.tasks) {
    if (task.done) task.done(task.applied);
    if (task.stream != 0 && !task.applied.ok()) Close(task.stream, task.applied);
  }
}

void CoordinatorProcess::RefuseWhoDoesNotWait() {
  const absl::Status why =
      Refuse(absl::StatusCode::kUnavailable, kStoreTrouble, "the store cannot be written");
  // Applied changes take effect even if the caller no longer waits.
  for (Task& task : commit_->tasks) task.done = nullptr;
  std::set<StreamId> unanswered;
  for (const Task& task : commit_->tasks) unanswered.insert(task.stream);
  for (const Task& task : tasks_) {
    unanswered.insert(task.stream);
    if (task.done) task.done(why);
  }
  std::erase_if(tasks_, [](const Task& task) { return task.done != nullptr; });
  for (const StreamId stream : unanswered) {
    if (stream == 0 || answered_.contains(stream) || ended_.contains(stream)) continue;
    Close(stream, why);
    StreamBroke(stream);
  }
}

void CoordinatorProcess::LetOut(const cluster::Effect& effect) {
  if (const auto* say = std::get_if<cluster::LogMessage>(&effect)) {
    timeline_.Tell("musterd: ", say->text);
  } else if (const auto* send = std::get_if<cluster::SendToAgent>(&effect)) {
    answered_.insert(send->stream);
    network_.SendDown(send->stream, [this, stream = send->stream, order = send->order] {
      callbacks_.to_agent(stream, order);
    });
  } else if (const auto* send = std::get_if<cluster::SendToWorker>(&effect)) {
    answered_.insert(send->stream);
    network_.SendDown(send->stream, [this, stream = send->stream, order = send->order] {
      callbacks_.to_worker(stream, order);
    });
  } else if (const auto* close = std::get_if<cluster::CloseStream>(&effect)) {
    Close(close->stream, close->why);
  }
}

void CoordinatorProcess::Close(StreamId stream, const absl::Status& why) {
  ended_.insert(stream);
  network_.CloseByServer(stream, why);
}

}  // namespace muster::simulation
