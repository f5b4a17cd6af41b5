#include "worker/control/control_stream.h"

#include <grpcpp/client_context.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/rpc/error.h"
#include "common/rpc/knock.h"
#include "common/rpc/rpc.h"
#include "common/status/status.h"
#include "common/steady/condition.h"
#include "common/steady/now.h"
#include "proto/muster/v1/worker_service.grpc.pb.h"
#include "worker/control/lease_keeper.h"
#include "worker/control/outbox.h"
#include "worker/control/report_spool.h"

namespace muster::control {
namespace {

using Stream = grpc::ClientReaderWriter<v1::WorkerMessage, v1::WorkerDirective>;

absl::Duration FromProto(const google::protobuf::Duration& duration) {
  return absl::Seconds(duration.seconds()) + absl::Nanoseconds(duration.nanos());
}

// Of WorkerService; the coordinator's may be one apart.
constexpr uint32_t kProtocol = 3;
constexpr std::chrono::milliseconds kRetry(100);
// One wait for a connection; the end of this process waits for it.
constexpr std::chrono::milliseconds kConnecting(200);
// So often, at most, reports go to the disk while the coordinator is away.
constexpr absl::Duration kSpoolPause = absl::Milliseconds(200);
// While the stream is broken: so often within a lease the coordinator's host is asked whether anybody listens.
constexpr int kKnocksPerLease = 10;
// Before the first welcome, which says how long a lease is.
constexpr absl::Duration kFirstKnocks = absl::Seconds(1);

LeaseTerms TermsOf(const v1::WorkerWelcome& welcome) {
  LeaseTerms terms{.lease = FromProto(welcome.lease()), .autonomy = FromProto(welcome.autonomy())};
  if (welcome.has_lease_margin()) terms.margin = FromProto(welcome.lease_margin());
  return terms;
}

bool IsRefusal(const absl::Status& status) {
  return status.code() == absl::StatusCode::kFailedPrecondition ||
         status.code() == absl::StatusCode::kNotFound ||
         status.code() == absl::StatusCode::kInvalidArgument;
}

// An older coordinator gives paths: wherever they point, only the job's own folder is looked at.
std::vector<std::string> NamesToRemove(const v1::CheckpointRecorded& recorded) {
  std::vector<std::string> names(recorded.remove_names().begin(), recorded.remove_names().end());
  if (!names.empty()) return names;
  for (const std::string& path : recorded.remove()) names.push_back(path.substr(path.rfind('/') + 1));
  return names;
}

// Four threads: one reads, and opens the stream anew when it breaks; one writes, and keeps the heartbeat (gRPC allows one reader and one
// writer at a time on a stream); the lease's; and one that asks whether anybody listens while the stream is broken. Nothing that may block
// is done under mutex_, also no logging (of a stopped agent the log is a full pipe): the lease's thread takes it.
class ControlStreamImpl : public ControlStream {
 public:
  explicit ControlStreamImpl(ControlStreamOptions options)
      : options_(std::move(options)),
        channel_(OpenChannel(options_.coordinator)),
        stub_(v1::WorkerService::NewStub(channel_)),
        spool_(options_.spool, options_.worker),
        keeper_({.on_over = options_.on_lease_over, .on_silent = [this] { Reconnect(); }}),
        knocker_(options_.coordinator, [this](absl::Time begun) { Refused(begun); }) {}

  ~ControlStreamImpl() override {
    {
      absl::MutexLock lock(&mutex_);
      closing_ = true;
      if (context_ != nullptr) context_->TryCancel();
    }
    Wake();
    if (reader_.joinable()) reader_.join();
    if (writer_.joinable()) writer_.join();
  }

  absl::Status Start() {
    knocker_.Begin(std::min(kFirstKnocks, options_.connect_timeout / kKnocksPerLease));
    reader_ = std::thread([this] { ReadLoop(); });
    const absl::Time begun = SteadyNow();
    absl::MutexLock lock(&mutex_);
    const auto decided = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return (first_welcome_.has_value() &&
              commands_.size() >= first_welcome_->newest_command()) ||
             refusal_.has_value();
    };
    const auto until = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return std::min(begun + options_.down_timeout,
                      std::max(begun, refused_) + options_.connect_timeout);
    };
    const auto& agents_end = options_.agents_lease_end;
    absl::Time lease_end = agents_end ? agents_end() : absl::InfiniteFuture();
    while (!changed_.Await(mutex_, std::min(until(), lease_end) - SteadyNow(), decided)) {
      if (agents_end) lease_end = agents_end();
      if (SteadyNow() >= lease_end) {
        return absl::AbortedError("the lease of this worker's agent is over, and the coordinator has not welcomed it");
      }
      if (SteadyNow() < until()) continue;
      return absl::UnavailableError(absl::StrCat("coordinator ", options_.coordinator,
                                                 " did not welcome this worker within ",
                                                 absl::FormatDuration(options_.connect_timeout)));
    }
    if (refusal_.has_value()) return *refusal_;
    writer_ = std::thread([this] { WriteLoop(); });
    return absl::OkStatus();
  }

  // first_welcome_ is set before Start returns and never changes.
  const v1::WorkerWelcome& welcome() const override ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return *first_welcome_;
  }

  absl::Status StillMine() const override { return keeper_.StillMine(); }

  bool Away() const override {
    absl::MutexLock lock(&mutex_);
    return !attached_;
  }

  void Report(v1::WorkerReport report) override {
    {
      absl::MutexLock lock(&mutex_);
      outbox_.Add(std::move(report));
    }
    Wake();
  }

  absl::Status Flush(absl::Duration timeout) override {
    {
      absl::MutexLock lock(&mutex_);
      flushing_ = true;
    }
    Wake();
    absl::MutexLock lock(&mutex_);
    const auto durable = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return outbox_.empty() || flushed_ >= outbox_.last();
    };
    if (changed_.Await(mutex_, timeout, durable)) return absl::OkStatus();
    return absl::DeadlineExceededError(
        absl::StrCat("coordinator ", options_.coordinator, " did not acknowledge all reports within ",
                     absl::FormatDuration(timeout)));
  }

  void SetProgress(v1::WorkerHeartbeat progress) override {
    absl::MutexLock lock(&mutex_);
    progress_ = std::move(progress);
  }

  absl::StatusOr<v1::Rendezvous> WaitForRendezvous(absl::Duration timeout) override {
    absl::MutexLock lock(&mutex_);
    const auto known = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return rendezvous_.has_value();
    };
    if (changed_.Await(mutex_, timeout, known)) return *rendezvous_;
    return absl::DeadlineExceededError(absl::StrCat("rank 0 did not say within ",
                                                    absl::FormatDuration(timeout),
                                                    " where its rendezvous store listens"));
  }

  bool WaitForExportGranted(const std::string& path, absl::Duration timeout) override {
    absl::MutexLock lock(&mutex_);
    return changed_.Await(mutex_, timeout, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return granted_export_ == path;
    });
  }

  bool Preempted() const override {
    absl::MutexLock lock(&mutex_);
    return preempted_;
  }

  uint64_t NewestCommand() const override {
    absl::MutexLock lock(&mutex_);
    return commands_.size();
  }

  v1::Command GetCommand(uint64_t number) const override {
    absl::MutexLock lock(&mutex_);
    return commands_[number - 1];
  }

 private:
  void ReadLoop() {
    while (true) {
      const absl::Status status = ReadOneConnection();
      bool broke = false;
      {
        absl::MutexLock lock(&mutex_);
        if (closing_) return;
        if (IsRefusal(status)) {
          refusal_ = status;
          changed_.Changed();
          if (!first_welcome_.has_value()) return;  // Connect reports it
          break;
        }
        broke = std::exchange(attached_, false);
        if (broke) away_since_ = SteadyNow();
      }
      keeper_.Broken();
      if (broke) {
        knocker_.Begin(lease_ / kKnocksPerLease);
        spdlog::warn("the stream to the coordinator broke ({}); trying again", Message(status));
      }
      // Not absl::SleepFor (common/steady/condition.h).
      std::this_thread::sleep_for(kRetry);
    }
    options_.on_fatal(Refusal());
  }

  void Refused(absl::Time begun) {
    keeper_.Refused(begun);
    absl::MutexLock lock(&mutex_);
    refused_ = begun;
    changed_.Changed();
  }

  // The stream stands, and nothing comes: it is given up, and the next one gets a connection of its own.
  void Reconnect() {
    absl::MutexLock lock(&mutex_);
    new_channel_ = true;
    if (context_ != nullptr) context_->TryCancel();
  }

  void Wake() {
    {
      absl::MutexLock lock(&mutex_);
      woken_ = true;
    }
    changed_.Changed();
  }

  absl::Status Refusal() const {
    absl::MutexLock lock(&mutex_);
    return *refusal_;
  }

  // From opening a stream to its end; says why it ended.
  absl::Status ReadOneConnection() {
    grpc::ClientContext context;
    {
      absl::MutexLock lock(&mutex_);
      if (closing_) return absl::CancelledError("closing");
      if (std::exchange(new_channel_, false)) {
        channel_ = OpenChannel(options_.coordinator, KeepAlive::Within(lease_));
        stub_ = v1::WorkerService::NewStub(channel_);
      }
    }
    // A call on a channel that is not connected fails at once, and only a call that waits reads what comes on a connection: without this
    // wait the connection that is being made would be looked at every 5 s.
    if (!channel_->WaitForConnected(std::chrono::system_clock::now() + kConnecting)) {
      return absl::UnavailableError("no connection");
    }
    {
      absl::MutexLock lock(&mutex_);
      if (closing_) return absl::CancelledError("closing");
      context_ = &context;
    }
    opened_ = SteadyNow();
    const std::unique_ptr<Stream> stream = stub_->Attach(&context);
    stream->Write(Hello());
    v1::WorkerDirective directive;
    while (stream->Read(&directive)) Handle(directive, stream.get());
    {
      absl::MutexLock lock(&mutex_);
      stream_ = nullptr;
      mutex_.Await(absl::Condition(
          +[](bool* writing) { return !*writing; }, &writing_));
    }
    const absl::Status status = FromGrpc(stream->Finish());
    absl::MutexLock lock(&mutex_);
    context_ = nullptr;
    return status.ok() ? absl::UnavailableError("the coordinator closed the stream") : status;
  }

  v1::WorkerMessage Hello() const {
    v1::WorkerMessage message;
    auto* hello = message.mutable_hello();
    *hello->mutable_worker() = options_.worker;
    hello->set_pid(options_.pid);
    hello->set_protocol(kProtocol);
    absl::MutexLock lock(&mutex_);
    hello->set_newest_command(commands_.size());
    return message;
  }

  void Handle(const v1::WorkerDirective& directive, Stream* stream) {
    if (directive.has_checkpoint_recorded()) {
      const std::vector<std::string> names = NamesToRemove(directive.checkpoint_recorded());
      if (!names.empty()) options_.on_remove(names);
      return;
    }
    if (directive.has_heartbeat_ack()) return keeper_.Acked(directive.heartbeat_ack().sequence());
    if (directive.has_welcome()) {
      const v1::WorkerWelcome& welcome = directive.welcome();
      knocker_.Stop();
      lease_ = FromProto(welcome.lease());
      keeper_.Welcomed(TermsOf(welcome), opened_,
                       welcome.spec().when_cut_off() == v1::JobSpec::CONTINUE);
      if (welcomes_++ > 0) spdlog::info("attached to the coordinator again");
    }
    const bool notice = directive.has_preemption_notice() && !Preempted();
    Take(directive, stream);
    Wake();
    if (notice) spdlog::info("{}: to end at the next step", directive.preemption_notice().reason());
  }

  void Take(const v1::WorkerDirective& directive, Stream* stream) {
    absl::MutexLock lock(&mutex_);
    switch (directive.kind_case()) {
      case v1::WorkerDirective::kWelcome:
        if (!first_welcome_.has_value()) first_welcome_ = directive.welcome();
        if (directive.welcome().has_rendezvous()) rendezvous_ = directive.welcome().rendezvous();
        outbox_.Rewind(directive.welcome().acked_sequence());
        attached_ = true;
        stream_ = stream;
        break;
      case v1::WorkerDirective::kExportGranted:
        granted_export_ = directive.export_granted().path();
        break;
      case v1::WorkerDirective::kRendezvous:
        rendezvous_ = directive.rendezvous();
        break;
      case v1::WorkerDirective::kCommand:
        if (directive.command().number() == commands_.size() + 1) {
          commands_.push_back(directive.command());
        }
        break;
      case v1::WorkerDirective::kPreemptionNotice:
        preempted_ = true;
        break;
      case v1::WorkerDirective::kReportAck:
        outbox_.Acknowledge(directive.report_ack().sequence());
        break;
      default:
        break;
    }
  }

  void WriteLoop() {
    const absl::Duration interval = FromProto(welcome().heartbeat_interval());
    absl::Time next_heartbeat = SteadyNow() + interval;
    while (true) {
      std::optional<v1::WorkerMessage> message;
      Stream* stream = nullptr;
      bool more = false;
      {
        absl::MutexLock lock(&mutex_);
        if (closing_) return;
        const absl::Time now = SteadyNow();
        // First of all, so that a rank whose reports never end still says where it is.
        const bool heartbeat_due = now >= next_heartbeat;
        if (heartbeat_due) next_heartbeat = now + interval;
        more = stream_ != nullptr && (heartbeat_due || outbox_.HasNext());
        if (more) {
          message = heartbeat_due ? Heartbeat() : NextReport();
          stream = stream_;
          writing_ = true;
        }
      }
      if (!more) {
        const absl::Time next_spool = Spool(interval);
        AwaitWork(std::min(next_heartbeat, next_spool) - SteadyNow());
        continue;
      }
      if (message->has_heartbeat()) {
        if (options_.measure) options_.measure(message->mutable_heartbeat());
        message->mutable_heartbeat()->set_sequence(keeper_.Beat());
      }
      const bool written = stream->Write(*message);
      absl::MutexLock lock(&mutex_);
      writing_ = false;
      // A broken stream: the reader sees it too and opens another.
      if (!written && stream_ == stream) stream_ = nullptr;
    }
  }

  // Puts what is not there yet on the agent's disk, where the coordinator has been away for so long, or this process is about to end;
  // takes it away again once it is told. When to look again.
  absl::Time Spool(absl::Duration patience) {
    if (!spool_.enabled()) return absl::InfiniteFuture();
    const absl::Time now = SteadyNow();
    std::vector<std::string> fresh;
    uint64_t last = 0;
    bool attached = false;
    bool told = false;
    bool anew = false;
    bool flushing = false;
    {
      absl::MutexLock lock(&mutex_);
      attached = attached_;
      told = outbox_.empty();
      flushing = flushing_;
      const absl::Time due = std::max(away_since_ + patience, spooled_at_ + kSpoolPause);
      if (!attached && !flushing && now < due) return due;
      while (!attached && outbox_.bytes() > spool_.limit() && outbox_.Thin()) anew = true;
      last = outbox_.last();
      if (!attached) fresh = outbox_.After(anew ? 0 : spool_.through());
    }
    if (attached) {
      if (told && spool_.through() > 0) spool_.Remove();
      return absl::InfiniteFuture();
    }
    if (anew) spool_.BeginAnew();
    spooled_at_ = now;
    absl::Status status = fresh.empty() ? absl::OkStatus() : spool_.Add(fresh, last);
    if (status.ok() && flushing) status = spool_.Sync();
    if (!status.ok()) {
      if (!std::exchange(spool_failed_, true)) spdlog::error("{}", Message(status));
      return now + absl::Seconds(1);
    }
    absl::MutexLock lock(&mutex_);
    if (flushing) flushed_ = last;
    changed_.Changed();
    return absl::InfiniteFuture();
  }

  // Until something was queued or has come, at most `timeout`.
  void AwaitWork(absl::Duration timeout) {
    absl::MutexLock lock(&mutex_);
    changed_.Await(mutex_, timeout, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return woken_; });
    woken_ = false;
  }

  v1::WorkerMessage Heartbeat() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    v1::WorkerMessage message;
    *message.mutable_heartbeat() = progress_;
    return message;
  }

  v1::WorkerMessage NextReport() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    v1::WorkerMessage message;
    *message.mutable_report() = *outbox_.Next();
    return message;
  }

  const ControlStreamOptions options_;
  // Of the reader's thread.
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::WorkerService::Stub> stub_;
  absl::Time opened_;
  absl::Duration lease_;
  int welcomes_ = 0;

  mutable absl::Mutex mutex_;
  // Anything that somebody waits for.
  SteadyCondition changed_;
  // There is something for the writer.
  bool woken_ ABSL_GUARDED_BY(mutex_) = false;
  // Empty: none yet.
  std::string granted_export_ ABSL_GUARDED_BY(mutex_);
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  bool preempted_ ABSL_GUARDED_BY(mutex_) = false;
  grpc::ClientContext* context_ ABSL_GUARDED_BY(mutex_) = nullptr;
  // The welcomed stream; null while there is none. The reader ends it only when not writing_.
  Stream* stream_ ABSL_GUARDED_BY(mutex_) = nullptr;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  // Welcomed, and not known to be broken.
  bool attached_ ABSL_GUARDED_BY(mutex_) = false;
  bool new_channel_ ABSL_GUARDED_BY(mutex_) = false;
  // The newest connection that was refused.
  absl::Time refused_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  absl::Time away_since_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  // This process is about to end; all reports up to flushed_ are on the agent's disk for good.
  bool flushing_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t flushed_ ABSL_GUARDED_BY(mutex_) = 0;
  std::optional<absl::Status> refusal_ ABSL_GUARDED_BY(mutex_);
  std::optional<v1::WorkerWelcome> first_welcome_ ABSL_GUARDED_BY(mutex_);
  std::optional<v1::Rendezvous> rendezvous_ ABSL_GUARDED_BY(mutex_);
  std::vector<v1::Command> commands_ ABSL_GUARDED_BY(mutex_);
  v1::WorkerHeartbeat progress_ ABSL_GUARDED_BY(mutex_);
  Outbox outbox_ ABSL_GUARDED_BY(mutex_);

  // Of the writer's thread.
  ReportSpool spool_;
  absl::Time spooled_at_ = absl::InfinitePast();
  bool spool_failed_ = false;

  LeaseKeeper keeper_;
  Knocker knocker_;
  std::thread reader_;
  std::thread writer_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ControlStream>> ControlStream::Connect(
    ControlStreamOptions options) {
  if (!options.on_lease_over) options.on_lease_over = options.on_fatal;
  auto stream = std::make_unique<ControlStreamImpl>(std::move(options));
  RETURN_IF_ERROR(stream->Start());
  return stream;
}

}  // namespace muster::control
