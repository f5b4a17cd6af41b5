#include "worker/control/run_worker.h"

#include <google/protobuf/util/time_util.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <random>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/activity/activity.h"
#include "common/rpc/proto_time.h"
#include "common/rpc/rpc.h"
#include "common/status/status.h"
#include "worker/checkpoint/remover.h"
#include "worker/control/control_stream.h"
#include "worker/control/job_from_spec.h"
#include "worker/control/meet_ranks.h"
#include "worker/control/own_checkpoints.h"
#include "worker/control/reach.h"
#include "worker/control/received.h"
#include "worker/control/report_from_event.h"
#include "worker/control/session_heartbeat.h"
#include "worker/control/worker_end.h"
#include "worker/memory/counting_allocator.h"
#include "worker/memory/device_memory.h"
#include "worker/memory/resident.h"
#include "worker/tensorboard/folder.h"
#include "worker/tensorboard/sink.h"
#include "worker/train/save/checkpoints.h"
#include "worker/train/session/session.h"

namespace muster::control {
namespace {

// A session's view of the coordinator, over the stream.
class StreamCoordinator : public train::CommandSource,
                          public train::EventSink,
                          public train::LeaseHolder,
                          public train::ExportGate {
 public:
  struct Listeners {
    // The session has started, and knows the checkpoint from which it continues.
    std::function<void()> on_started;
    // The rank has reported a checkpoint.
    std::function<void(const train::CheckpointWritten& written)> on_checkpoint;
  };
  StreamCoordinator(ControlStream* stream, int64_t generation, Downloads downloads,
                    Listeners listeners)
      : stream_(stream),
        generation_(generation),
        downloads_(std::move(downloads)),
        listeners_(std::move(listeners)) {}

  int64_t Newest() const override { return static_cast<int64_t>(stream_->NewestCommand()); }
  train::Command Get(int64_t number) const override {
    return CommandFromWire(stream_->GetCommand(number), downloads_);
  }
  bool Preempted() const override { return stream_->Preempted(); }

  absl::Status StillMine() const override { return stream_->StillMine(); }

  void Report(const train::Event& event) override {
    stream_->Report(ReportFromEvent(event, generation_, stream_->welcome().node()));
    if (std::holds_alternative<train::SessionStarted>(event)) listeners_.on_started();
    if (const auto* written = std::get_if<train::CheckpointWritten>(&event)) {
      listeners_.on_checkpoint(*written);
    }
  }
  void Progress(int64_t step, const char* stage, const char* doing) override {
    step_ = step;
    v1::WorkerHeartbeat heartbeat;
    heartbeat.set_step(step);
    heartbeat.set_stage(stage);
    heartbeat.set_progress(doing);
    activity::Moved();
    stream_->SetProgress(std::move(heartbeat));
  }
  void Settle(absl::Duration timeout) override { stream_->AwaitAcknowledged(timeout); }
  // The newest step passed to Progress; session thread only.
  int64_t step() const { return step_; }

  bool WaitForGrant(const std::string& path, absl::Duration timeout) override {
    return stream_->WaitForExportGranted(path, timeout);
  }
  absl::Duration grant_timeout() const override {
    // A coordinator that can be reached may still need long, because its disk is full. If it cannot
    // be reached, the lease ends long before this time.
    constexpr absl::Duration kLeast = absl::Hours(12);
    return std::max(kLeast, FromProto(stream_->welcome().autonomy()));
  }

 private:
  ControlStream* const stream_;
  const int64_t generation_;
  const Downloads downloads_;
  const Listeners listeners_;
  int64_t step_ = 0;
};

WorkerEnd FailedToMeet(const absl::Status& error, bool hosting) {
  const absl::Status explained = ExplainOpenFiles(error);
  return {.error = Annotate(explained, "meeting the other ranks"),
          .kind = KindOfMeetingFailure(explained, hosting)};
}

// Ends the communicators after an error. If the error is the cause of the failure, its report is
// made durable first. The reason: other ranks then fail as a consequence. After the first such
// report, the coordinator ends all processes, including this one, and the cause would be lost.
void LeaveOthers(ControlStream& stream, const Communicators& communicators, WorkerEnd& end) {
  if (end.kind != train::FailureKind::kConsequence) ReportEnd(stream, end);
  communicators.control->Abort(end.error);
  communicators.files->Abort(end.error);
  communicators.gradients->Abort(end.error);
  if (communicators.parameters != nullptr) communicators.parameters->Abort(end.error);
}

// The longest wait for TensorBoard's event files of a finished job, and of a failed job.
constexpr absl::Duration kLongestEventFiles = absl::Seconds(10);
constexpr absl::Duration kEventFilesAfterFailure = absl::Milliseconds(500);

absl::Status PrepareTensorboard(const std::string& directory, const train::Identity& identity,
                                const std::string& node) {
  const absl::Status prepared = tensorboard::Prepare(directory, identity.job);
  if (absl::IsFailedPrecondition(prepared)) {
    return Annotate(prepared, absl::StrCat("metrics.tensorboard: rank 0 on node ", node));
  }
  return absl::OkStatus();  // other errors may pass by themselves
}

WorkerEnd Train(ControlStream& stream, const train::Identity& identity, const train::Job& job,
                const Communicators& communicators, checkpoint::Remover& remover,
                SessionHeartbeat& heartbeat, const std::string& downloads) {
  OwnCheckpoints own(stream.welcome().spec().checkpoint().keep());
  StreamCoordinator coordinator(
      &stream, identity.generation, {.folder = downloads, .job_id = identity.job},
      {.on_started =
           [&] {
             if (identity.rank != 0 || !job.checkpoint.has_value()) return;
             remover.Begin(train::CheckpointFolder(identity, *job.checkpoint),
                           train::EpochOf(identity));
           },
       .on_checkpoint =
           [&](const train::CheckpointWritten& written) {
             // The coordinator decides about checkpoints of earlier generations.
             if (written.generation != identity.generation) return;
             using Kind = OwnCheckpoints::Kind;
             const auto surplus =
                 own.Written(written.path.substr(written.path.rfind('/') + 1),
                             written.best ? Kind::kBest : Kind::kPlain, stream.Away());
             if (!surplus.empty()) remover.Remove(surplus);
           }});
  std::optional<tensorboard::Sink> tensorboard;
  if (const std::string& directory = job.spec.metrics().tensorboard();
      identity.rank == 0 && !directory.empty()) {
    // Later generations do not end because of an error here, because the file system may be away
    // only for a moment.
    if (identity.generation == 1) {
      WorkerEnd end{.error = PrepareTensorboard(directory, identity, stream.welcome().node()),
                    .kind = train::FailureKind::kPermanent};
      if (!end.error.ok()) {
        LeaveOthers(stream, communicators, end);
        return end;
      }
    }
    tensorboard.emplace(
        tensorboard::Sink::Options{
            .directory = directory,
            .job = identity.job,
            .generation = identity.generation,
            .ranks = stream.welcome().spec().world_size(),
            .node = stream.welcome().node(),
            .start = job.start.has_value() ? job.start->checkpoint : std::string(),
            .commands = &coordinator,
            .lease = &coordinator},
        &coordinator);
  }
  train::SessionParts parts{.control = communicators.control.get(),
                            .gradients = communicators.gradients.get(),
                            .parameters = communicators.parameters != nullptr
                                              ? communicators.parameters.get()
                                              : communicators.gradients.get(),
                            .files = communicators.files.get(),
                            .commands = &coordinator,
                            .events = &coordinator,
                            .checkpoints = {}};
  if (tensorboard.has_value()) parts.events = &*tensorboard;
  parts.flight = heartbeat.flight();
  parts.writing = heartbeat.writing();
  parts.lease = &coordinator;
  parts.export_gate = &coordinator;
  for (const v1::Checkpoint& checkpoint : stream.welcome().checkpoints()) {
    parts.checkpoints.recorded.push_back(checkpoint.path());
  }
  for (const v1::Checkpoint& known : stream.welcome().known_checkpoints()) {
    // A damaged checkpoint was renamed. If a whole checkpoint has its name now, the new one may
    // count.
    if (known.bad_reason().empty()) {
      parts.checkpoints.retired.push_back(known.path());
      // The coordinator names only the path of such a checkpoint.
      if (known.generation() == 0) parts.checkpoints.dropped.push_back(known.path());
    } else {
      parts.checkpoints.had_others = true;
    }
  }
  parts.checkpoints.from_scratch = stream.welcome().from_scratch();
  parts.checkpoints.start_from = stream.welcome().start_from();
  parts.learning_rate_since = static_cast<int64_t>(stream.welcome().learning_rate_since());
  parts.stages_done = {.stages = stream.welcome().stages_done(),
                       .step = static_cast<int64_t>(stream.welcome().stages_done_step())};
  const auto session = train::Session::Create(identity, job, parts);
  const absl::StatusOr<train::SessionEnd> end = session.ok() ? (*session)->Run() : session.status();
  if (end.ok()) {
    if (tensorboard.has_value()) tensorboard->Finish(kLongestEventFiles);
    return {.end = *end};
  }
  const auto phase = session.ok() ? train::Phase::kRun : train::Phase::kCreate;
  WorkerEnd failed{.end = {.step = coordinator.step()},
                   .error = end.status(),
                   .kind = train::Classify(end.status(), phase)};
  // The session must still exist here. Its destructor would wait for operations that need the other
  // ranks, which may not take part.
  LeaveOthers(stream, communicators, failed);
  if (tensorboard.has_value()) tensorboard->Finish(kEventFilesAfterFailure);
  return failed;
}

WorkerEnd RunSession(ControlStream& stream, const train::Identity& identity,
                     checkpoint::Remover& remover, SessionHeartbeat& heartbeat,
                     const std::string& downloads) {
  const auto job = JobFromSpec(stream.welcome().spec());
  if (!job.ok()) return {.error = job.status(), .kind = train::FailureKind::kPermanent};
  if (stream.welcome().spec().device() == v1::JobSpec::CUDA) memory::CountDeviceMemory();
  const absl::Duration timeout = FromProto(stream.welcome().collective_timeout());
  auto store = OpenStore(stream, identity.rank, timeout);
  if (!store.ok()) return FailedToMeet(store.status(), /*hosting=*/identity.rank == 0);
  const auto listener = ReachRanks(stream, identity.rank, timeout, **store);
  if (!listener.ok()) return FailedToMeet(listener.status(), /*hosting=*/false);
  heartbeat.WatchedFor(FromProto(stream.welcome().lease()));
  // A coordinator that is down cannot look for hanging ranks, and ranks need not report to it in
  // time.
  const auto watched = [&] {
    return heartbeat.Watched() || (stream.Away() && stream.StillMine().ok());
  };
  const auto communicators =
      ConnectRanks(stream.welcome(), identity.rank, timeout, watched, *std::move(store));
  if (!communicators.ok()) return FailedToMeet(communicators.status(), /*hosting=*/false);
  return Train(stream, identity, *job, *communicators, remover, heartbeat, downloads);
}

// The longest time of each of two waits before a finished job counts as ended. The waits are for
// the names of checkpoints to remove, and for their removal.
constexpr absl::Duration kLongestRemoval = absl::Seconds(30);
constexpr absl::Duration kRemovalBeat = absl::Seconds(1);

void FinishRemovals(ControlStream& stream, checkpoint::Remover& remover) {
  // The acknowledgement of the last checkpoint names the checkpoints that it replaces. The next
  // generation removes the checkpoints that a preempted generation could not remove.
  const absl::Status flushed = FlushUnlessPreempted(stream, kLongestRemoval);
  if (flushed.ok()) {
    // The work of the remover's thread counts as this rank's activity, so that the rank does not
    // count as hanging.
    for (absl::Duration waited; waited < kLongestRemoval; waited += kRemovalBeat) {
      if (remover.Drain(kRemovalBeat)) return;
      activity::Moved();
    }
  }
  spdlog::warn("old checkpoints may stay: they were not named and removed in time");
}

}  // namespace

absl::Status RunWorker(const WorkerOptions& options) {
  const train::Identity& identity = options.identity;
  ControlStreamOptions stream_options;
  stream_options.coordinator = options.coordinator;
  auto credentials = CredentialsFor(options.coordinator, options.tls);
  if (!credentials.ok()) {
    options.on_fatal(credentials.status());
    return credentials.status();
  }
  stream_options.credentials = *std::move(credentials);
  stream_options.worker.set_job_id(identity.job);
  stream_options.worker.set_generation(identity.generation);
  stream_options.worker.set_rank(identity.rank);
  stream_options.worker.set_incarnation(identity.incarnation);
  stream_options.pid = getpid();
  stream_options.secret = options.secret;
  stream_options.spool = options.spool;
  stream_options.agents_lease_end = options.agents_lease_end;
  SessionHeartbeat heartbeat;        // outlives the stream
  std::atomic<bool> on_gpu = false;  // known once the coordinator has welcomed this worker
  stream_options.measure = [&heartbeat, &on_gpu](v1::WorkerHeartbeat* message) {
    const memory::DeviceMemory gpu = memory::DeviceMemoryInUse();
    *message->mutable_memory() = MemoryReport(on_gpu ? gpu.in_use : memory::MemoryInUse(),
                                              memory::ResidentBytes(), gpu.reserved_bytes);
    heartbeat.AddTo(message);
  };
  // Rank 0 alone removes checkpoints, which the coordinator names.
  std::atomic<ControlStream*> connected = nullptr;
  checkpoint::Remover remover({.on_removed =
                                   [&connected](const std::vector<std::string>& names) {
                                     v1::WorkerReport report;
                                     for (const std::string& name : names)
                                       report.mutable_checkpoints_removed()->add_names(name);
                                     if (ControlStream* stream = connected)
                                       stream->Report(std::move(report));
                                   },
                               .on_error =
                                   [](const absl::Status& error) {
                                     spdlog::warn("an old checkpoint stays: {}", Message(error));
                                   }});
  stream_options.on_remove = [&remover,
                              rank = identity.rank](const std::vector<std::string>& names) {
    if (rank == 0) remover.Remove(names);
  };
  stream_options.on_fatal = options.on_fatal;
  stream_options.on_lease_over = options.on_lease_over;
  const auto stream = ControlStream::Connect(std::move(stream_options));
  if (!stream.ok()) {
    const bool lease_over = absl::IsAborted(stream.status()) && options.on_lease_over;
    (lease_over ? options.on_lease_over : options.on_fatal)(stream.status());
    return stream.status();
  }
  spdlog::info("job {} generation {} rank {} of {}", identity.job, identity.generation,
               identity.rank, (*stream)->welcome().spec().world_size());
  train::Identity instance = identity;
  // A coordinator with a restored database may start the same rank again, as another process.
  instance.incarnation = absl::StrCat(identity.incarnation, "-", std::random_device()());
  instance.job_instance =
      google::protobuf::util::TimeUtil::ToString((*stream)->welcome().job_create_time());
  connected = stream->get();
  const activity::Scope scope(heartbeat.activity());
  on_gpu = (*stream)->welcome().spec().device() == v1::JobSpec::CUDA;
  WorkerEnd end = RunSession(**stream, instance, remover, heartbeat, options.downloads);
  if (end.error.ok()) FinishRemovals(**stream, remover);
  ReportEnd(**stream, end);
  // The remover reports over the stream, which ends next.
  remover.Stop();
  return end.error;
}

}  // namespace muster::control
