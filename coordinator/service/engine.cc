#include "coordinator/service/engine.h"

#include <spdlog/spdlog.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/muster/v1/job_spec.pb.h"

namespace muster::service {
namespace {

// Ticks within a lease.
constexpr int kTicksPerLease = 10;

absl::Status Stopping() { return absl::UnavailableError("the coordinator is stopping"); }

}  // namespace

absl::StatusOr<std::unique_ptr<Engine>> Engine::Start(EngineOptions options, store::Store* store) {
  auto image = store->Load();
  if (!image.ok()) return image.status();
  for (jobs::Job& job : image->jobs) {
    v1::JobSpec spec;
    if (spec.ParseFromString(job.spec)) job.plan.checkpoint_directory = spec.checkpoint().directory();
  }
  auto cluster = std::make_unique<cluster::Cluster>(options.cluster, *image, options.clock());
  std::unique_ptr<Engine> engine(new Engine(std::move(options), store, std::move(cluster)));
  engine->thread_ = std::thread([raw = engine.get()] { raw->Loop(); });
  return engine;
}

Engine::Engine(EngineOptions options, store::Store* store,
               std::unique_ptr<cluster::Cluster> cluster)
    : options_(std::move(options)),
      store_(store),
      cluster_(std::move(cluster)),
      next_tick_(options_.clock()) {}

Engine::~Engine() { Stop(); }

void Engine::Stop() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  if (thread_.joinable()) thread_.join();
}

void Engine::Post(Apply apply, Done done) {
  {
    absl::MutexLock lock(&mutex_);
    if (!stopping_) {
      queue_.push_back({std::move(apply), std::move(done)});
      return;
    }
  }
  if (done) done(Stopping());
}

void Engine::Loop() {
  while (true) {
    std::vector<Task> tasks;
    bool stopping = false;
    {
      const absl::Duration patience = next_tick_ - options_.clock();
      absl::MutexLock lock(&mutex_);
      mutex_.AwaitWithTimeout(absl::Condition(this, &Engine::QueueReady), patience);
      tasks.swap(queue_);
      stopping = stopping_;
    }
    Work(std::move(tasks));
    if (stopping) return;
  }
}

void Engine::Work(std::vector<Task> tasks) {
  if (failure_.ok()) {
    for (const Task& task : tasks) {
      if (task.apply) task.apply(*cluster_, options_.clock());
    }
    const absl::Time now = options_.clock();
    if (now >= next_tick_) {
      cluster_->Tick(now);
      next_tick_ = now + options_.cluster.timing.lease / kTicksPerLease;
    }
    const store::Batch batch = cluster_->TakeBatch();
    const absl::Status committed = batch.empty() ? absl::OkStatus() : store_->Commit(batch);
    const std::vector<cluster::Effect> effects = cluster_->TakeEffects();
    if (committed.ok()) {
      for (const cluster::Effect& effect : effects) options_.out(effect);
    } else {
      Fail(committed);
    }
  } else {
    next_tick_ = absl::InfiniteFuture();
  }
  for (const Task& task : tasks) {
    if (task.done) task.done(failure_);
  }
}

void Engine::Fail(const absl::Status& status) {
  failure_ =
      absl::UnavailableError(absl::StrCat("the coordinator's store failed: ", status.message()));
  options_.on_failure(failure_);
}

}  // namespace muster::service
