#include "coordinator/service/engine.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/lease/lease.h"
#include "common/version/protocol.h"
#include "coordinator/membership/refusal.h"

namespace muster::service {
namespace {

// The number of ticks in one lease.
constexpr int kTicksPerLease = 20;
// The part of a lease by which a late wake-up shows that the whole process stood still. The
// engine's thread never waits for a disk.
constexpr double kPauseOfLease = 0.5;
// The duration after which a commit counts as trouble, so that callers get an error and do not
// wait.
constexpr absl::Duration kSlowCommit = absl::Seconds(5);
constexpr absl::Duration kFirstBackOff = absl::Milliseconds(100);
constexpr absl::Duration kLongestBackOff = absl::Seconds(5);

void Answer(const std::vector<EngineInbox::Task>& tasks, const absl::Status& status) {
  for (const EngineInbox::Task& task : tasks) {
    if (task.done) task.done(status);
  }
}

}  // namespace

absl::Status RefusalOf(const StoreTrouble& trouble) {
  return Refuse(
      absl::StatusCode::kUnavailable, kStoreTrouble,
      absl::StrCat("the coordinator's store cannot be written at present: ", trouble.message,
                   "; running jobs continue; try again with the same request id"));
}

void SetUnstored(const v1::JobSpec& spec, jobs::Plan* plan) {
  plan->name = spec.name();
  plan->checkpoint_directory = spec.checkpoint().directory();
  // Workers of the version before this one do not know this setting (common/version/protocol.h).
  plan->worker_protocol = spec.start().what() == v1::StartSpec::EVERYTHING ? kWorkerProtocol : 0;
}

absl::StatusOr<std::unique_ptr<Engine>> Engine::Start(EngineOptions options, store::Store* store) {
  auto image = store->Load();
  if (!image.ok()) return image.status();
  for (jobs::Job& job : image->jobs) {
    v1::JobSpec spec;
    if (spec.ParseFromString(job.spec)) SetUnstored(spec, &job.plan);
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
      next_tick_(options_.clock()),
      last_wake_(next_tick_),
      short_of_room_(store->OpenedShortOfRoom()),
      next_look_for_room_(next_tick_),
      committer_(store,
                 [this](absl::Status committed) { inbox_.Committed(std::move(committed)); }) {}

Engine::~Engine() { Stop(); }

void Engine::Stop() {
  inbox_.Stop();
  if (thread_.joinable()) thread_.join();
}

void Engine::Post(Apply apply, Done done) {
  inbox_.Post({Kind::kEvent, std::move(apply), std::move(done)});
}

void Engine::Request(Apply apply, Done done) {
  inbox_.Post({Kind::kRequest, std::move(apply), std::move(done)});
}

void Engine::RequestRoom(Apply apply, Done done) {
  inbox_.Post({Kind::kRoom, std::move(apply), std::move(done)});
}

void Engine::Read(Done done) { inbox_.Post({Kind::kRead, nullptr, std::move(done)}); }

void Engine::Aside(Apply apply) { inbox_.Aside({std::move(apply), options_.clock()}); }

absl::Time Engine::NextWake(absl::Time now) const {
  // Ticks are so frequent that a standstill of the process is noticed.
  absl::Time next = now + options_.cluster.timing.lease / kTicksPerLease;
  if (commit_.has_value() && !commit_->under_way) next = std::min(next, commit_->next_try);
  if (!commit_.has_value() && !trouble_.has_value()) next = std::min(next, next_tick_);
  return next;
}

void Engine::Loop() {
  if (short_of_room_) {
    BeInTrouble(
        "the disk was full at the start: there is no room for the reserve that deletions need");
  }
  while (true) {
    const absl::Time before = options_.clock();
    // A stopping engine answers new tasks, but does not wait for more of them.
    EngineInbox::Contents arrived =
        inbox_.Take(NextWake(before) - before, commit_.has_value() && commit_->under_way);
    const bool stopping = arrived.stopping;
    std::move(arrived.tasks.begin(), arrived.tasks.end(), std::back_inserter(waiting_));
    const absl::Time now = options_.clock();
    for (const EngineInbox::AsideTask& task : arrived.aside) task.apply(*cluster_, task.posted);
    if (options_.on_wake) options_.on_wake(now);
    const absl::Duration gap = now - std::exchange(last_wake_, now);
    if (gap > kPauseOfLease * options_.cluster.timing.lease) {
      cluster_->Handle(cluster::CoordinatorPaused{gap}, now);
    }
    if (arrived.committed.has_value()) TakeResult(*arrived.committed);
    LookAfterCommit(now, stopping);
    LookForRoom(now);
    RefuseWhoDoesNotWait();
    if (!commit_.has_value()) Work(now);
    if (!stopping || (commit_.has_value() && commit_->under_way)) continue;
    // The tasks that are left cannot be stored.
    if (commit_.has_value()) {
      std::move(waiting_.begin(), waiting_.end(), std::back_inserter(commit_->tasks));
      waiting_ = std::move(commit_->tasks);
    }
    return Answer(waiting_, Stopping());
  }
}

bool Engine::Admits(const Task& task) const {
  if (!trouble_.has_value()) return true;
  return task.kind == Kind::kRead || task.kind == Kind::kRoom;
}

void Engine::Work(absl::Time now) {
  std::vector<Task> tasks;
  std::vector<Task> rest;
  for (Task& task : waiting_) (Admits(task) ? tasks : rest).push_back(std::move(task));
  waiting_ = std::move(rest);
  if (failure_.ok()) {
    for (const Task& task : tasks) {
      if (task.apply) task.apply(*cluster_, options_.clock());
    }
    // There is no tick while the store is in trouble: its decisions must be durable before their
    // effects.
    if (now >= next_tick_ && !trouble_.has_value()) {
      cluster_->Handle(cluster::TimePassed{}, now);
      next_tick_ = now + options_.cluster.timing.lease / kTicksPerLease;
    }
    store::Batch batch = cluster_->TakeBatch();
    std::vector<cluster::Effect> effects = cluster_->TakeEffects();
    if (!batch.empty()) {
      commit_ = Commit{.batch = std::move(batch),
                       .effects = std::move(effects),
                       .tasks = std::move(tasks),
                       .begun = now};
      HandToCommitter();
      return;
    }
    for (const cluster::Effect& effect : effects) options_.out(effect);
  }
  Answer(tasks, failure_);
}

void Engine::HandToCommitter() {
  commit_->under_way = true;
  committer_.Commit(commit_->batch);
}

void Engine::TakeResult(const absl::Status& committed) {
  commit_->under_way = false;
  if (committed.ok() || absl::IsDataLoss(committed)) {
    Commit done = *std::exchange(commit_, std::nullopt);
    if (committed.ok()) {
      if (trouble_.has_value() && !short_of_room_) BeWell();
      for (const cluster::Effect& effect : done.effects) options_.out(effect);
    } else {
      Fail(committed);
    }
    return Answer(done.tasks, failure_);
  }
  const absl::Time now = options_.clock();
  if (absl::IsResourceExhausted(committed) && store_->ReleaseReserve()) {
    short_of_room_ = true;
    next_look_for_room_ = now + kFirstBackOff;
    BeInTrouble(std::string(committed.message()));
    HandToCommitter();
    return;
  }
  commit_->back_off = std::clamp(2 * commit_->back_off, kFirstBackOff, kLongestBackOff);
  commit_->next_try = now + commit_->back_off;
  commit_->held = true;
  BeInTrouble(std::string(committed.message()));
}

void Engine::LookAfterCommit(absl::Time now, bool stopping) {
  if (!commit_.has_value()) return;
  if (commit_->under_way) {
    if (commit_->held || now - commit_->begun < kSlowCommit) return;
    commit_->held = true;
    BeInTrouble(absl::StrCat("a write has not finished for ", absl::FormatDuration(kSlowCommit)));
    return;
  }
  const bool last_try = stopping && !std::exchange(commit_->last_try, stopping);
  if (last_try || (!stopping && now >= commit_->next_try)) HandToCommitter();
}

void Engine::LookForRoom(absl::Time now) {
  if (!short_of_room_ || commit_.has_value() || now < next_look_for_room_) return;
  next_look_for_room_ = now + kFirstBackOff;
  if (!store_->RestoreReserve()) return;
  short_of_room_ = false;
  BeWell();
}

void Engine::BeInTrouble(const std::string& message) {
  if (trouble_.has_value()) return;
  trouble_ = StoreTrouble{message, options_.clock()};
  spdlog::error(
      "the store cannot be written: {}; running jobs continue; changes are held and tried again",
      message);
  if (options_.on_trouble) options_.on_trouble(trouble_);
}

void Engine::BeWell() {
  const absl::Time now = options_.clock();
  const absl::Duration lasted = now - trouble_->since;
  spdlog::info("the store can be written again, after {}", absl::FormatDuration(lasted));
  trouble_.reset();
  // StoreUnavailable comes before the next tick: peers that could not attach during the trouble
  // still hold their lease.
  cluster_->Handle(cluster::StoreUnavailable{lasted}, now);
  if (options_.on_trouble) options_.on_trouble(trouble_);
}

void Engine::RefuseWhoDoesNotWait() {
  if (!trouble_.has_value()) return;
  const bool held = commit_.has_value() && commit_->held;
  std::vector<Done> refused;
  const auto refuse = [&](Task* task) { refused.push_back(std::exchange(task->done, nullptr)); };
  if (held) {
    // These changes are applied already and take effect even if their callers get an error.
    for (Task& task : commit_->tasks) {
      if (task.kind != Kind::kEvent && task.done) refuse(&task);
    }
  }
  std::erase_if(waiting_, [&](Task& task) {
    if (task.kind == Kind::kEvent || (Admits(task) && !held)) return false;
    refuse(&task);
    return true;
  });
  const absl::Status why = RefusalOf(*trouble_);
  for (const Done& done : refused) {
    if (done) done(why);
  }
}

void Engine::Fail(const absl::Status& status) {
  failure_ = Refuse(absl::StatusCode::kUnavailable, "STORE_FAILED",
                    absl::StrCat("the coordinator's store failed: ", status.message()));
  next_tick_ = absl::InfiniteFuture();
  options_.on_failure(failure_);
}

Committer::Committer(store::Store* store, std::function<void(absl::Status)> done)
    : store_(store), done_(std::move(done)), thread_([this] { Run(); }) {}

Committer::~Committer() {
  {
    absl::MutexLock lock(&mutex_);
    ended_ = true;
  }
  thread_.join();
}

void Committer::Commit(const store::Batch& batch) {
  absl::MutexLock lock(&mutex_);
  batch_ = &batch;
}

void Committer::Run() {
  while (true) {
    const store::Batch* batch = nullptr;
    {
      absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(this, &Committer::Woken));
      if (batch_ == nullptr) return;
      batch = std::exchange(batch_, nullptr);
    }
    done_(store_->Commit(*batch));
  }
}

}  // namespace muster::service
