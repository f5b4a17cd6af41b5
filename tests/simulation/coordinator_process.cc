#include "tests/simulation/coordinator_process.h"

#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"

namespace muster::simulation {
namespace {

// As in coordinator/service/engine.cc.
constexpr int kTicksPerLease = 10;
constexpr double kPauseOfLease = 0.5;

}  // namespace

CoordinatorProcess::CoordinatorProcess(Timeline* timeline, Network* network,
                                       const cluster::Options& options, Outside outside)
    : timeline_(*timeline), network_(*network), options_(options), outside_(std::move(outside)) {
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
  ended_.clear();
  work_scheduled_ = tick_due_ = false;
  still_until_ = absl::InfinitePast();
  dies_ = Dies::kNever;
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
  timeline_.After(options_.timing.lease / kTicksPerLease, [this, process = process_] {
    if (process != process_) return;
    tick_due_ = true;
    ScheduleWork(absl::ZeroDuration());
    ScheduleTick();
  });
}

void CoordinatorProcess::Work() {
  work_scheduled_ = false;
  if (timeline_.now() < still_until_) return ScheduleWork(still_until_ - timeline_.now());
  std::deque<Task> tasks = std::exchange(tasks_, {});
  const absl::Time now = timeline_.now();
  const absl::Duration gap = now - std::exchange(last_wake_, now);
  if (gap > kPauseOfLease * options_.timing.lease) cluster_->WasAway(gap, now);
  for (Task& task : tasks) {
    if (task.stream == 0 || !ended_.contains(task.stream)) {
      task.applied = task.apply(*cluster_, now);
    }
    // Nothing more of this stream is taken.
    if (task.stream != 0 && !task.applied.ok()) ended_.insert(task.stream);
  }
  if (std::exchange(tick_due_, false)) cluster_->Tick(now);
  const store::Batch batch = cluster_->TakeBatch();
  const std::vector<cluster::Effect> effects = cluster_->TakeEffects();
  if (!batch.empty()) {
    if (dies_ == Dies::kBeforeCommit) return Kill();
    if (commits_fail_) {
      timeline_.Tell("the store fails");
      return Kill();
    }
    if (const absl::Status status = store_->Commit(batch); !status.ok()) {
      return timeline_.Wrong("the memory store fails: ", status.message());
    }
    outside_.committed(batch, *cluster_);
    if (dies_ == Dies::kAfterCommit) return Kill();
  }
  for (const cluster::Effect& effect : effects) LetOut(effect);
  for (const Task& task : tasks) {
    if (task.done) task.done(task.applied);
    if (task.stream != 0 && !task.applied.ok()) Close(task.stream, task.applied);
  }
}

void CoordinatorProcess::LetOut(const cluster::Effect& effect) {
  if (const auto* say = std::get_if<cluster::Say>(&effect)) {
    timeline_.Tell("musterd: ", say->text);
  } else if (const auto* send = std::get_if<cluster::SendToAgent>(&effect)) {
    network_.SendDown(send->session, [this, stream = send->session, order = send->order] {
      outside_.to_agent(stream, order);
    });
  } else if (const auto* send = std::get_if<cluster::SendToWorker>(&effect)) {
    network_.SendDown(send->session, [this, stream = send->session, order = send->order] {
      outside_.to_worker(stream, order);
    });
  } else if (const auto* close = std::get_if<cluster::CloseSession>(&effect)) {
    Close(close->session, close->why);
  }
}

void CoordinatorProcess::Close(StreamId stream, const absl::Status& why) {
  ended_.insert(stream);
  network_.CloseByServer(stream, why);
}

}  // namespace muster::simulation
