#include "worker/agent/coordinator_link.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "common/rpc/rpc.h"
#include "common/status/status.h"
#include "common/steady/now.h"

namespace muster::agent {
namespace {

// How many attempts to attach are made within a lease at least, so that a lease does not end during
// a pause between two attempts.
constexpr int kAttemptsPerLease = 10;

}  // namespace

CoordinatorLink::CoordinatorLink(LinkOptions options, LogQueue* logs, Mailbox* mailbox,
                                 Events events)
    : options_(std::move(options)),
      mailbox_(*mailbox),
      events_(std::move(events)),
      outbox_(logs),
      jitter_(std::random_device()()),
      channel_(OpenChannel(options_.coordinator, {}, options_.credentials)),
      retry_(options_.first_retry),
      connect_at_(SteadyNow()),
      knocker_(options_.coordinator, [this](absl::Time begun) {
        mailbox_.Post([this, begun] { events_.on_nobody_listens(begun); });
      }) {}

void CoordinatorLink::Connect() {
  connect_at_ = absl::InfiniteFuture();
  // The Hello must come first, and it says everything that matters. Effects that the core decided
  // before it learned of the end of the old stream may have added messages since then.
  outbox_.Clear();
  const uint64_t attempt = ++attempt_;
  const auto post = [this, attempt](Mailbox::Task task) {
    mailbox_.Post([this, attempt, task = std::move(task)] {
      if (attempt == attempt_) task();
    });
  };
  CoordinatorStream::Events events;
  events.on_directive = [this, post](v1::AgentDirective directive) {
    post([this, directive = std::move(directive)] { events_.on_directive(directive); });
  };
  events.on_written = [this, post] { post([this] { writing_ = false; }); };
  events.on_closed = [this, post](absl::Status status) {
    post([this, status] { OnClosed(status); });
  };
  opened_ = SteadyNow();
  stream_ = CoordinatorStream::Open(channel_, std::move(events));
}

void CoordinatorLink::BeWelcome() {
  spdlog::info("attached to the coordinator at {}", options_.coordinator);
  knocker_.Stop();
  welcomed_ = true;
  away_ = false;
  retry_ = options_.first_retry;
}

void CoordinatorLink::Drop(absl::Duration lease) {
  spdlog::warn("the coordinator at {} does not answer; trying another connection",
               options_.coordinator);
  ++attempt_;
  NewChannel(lease);
  OnClosed(absl::UnavailableError("it does not answer"));
}

void CoordinatorLink::OnClosed(const absl::Status& status) {
  stream_.reset();
  writing_ = welcomed_ = false;
  events_.on_closed(status);
}

void CoordinatorLink::PlanNext(const absl::Status& why, absl::Duration lease) {
  // A certificate belongs to a connection: one that was renewed counts for another one.
  if (absl::IsPermissionDenied(why) || absl::IsUnauthenticated(why)) NewChannel(lease);
  knocker_.Begin(lease / kAttemptsPerLease);
  if (!std::exchange(away_, true)) {
    spdlog::warn("no connection to the coordinator at {} ({}); trying again", options_.coordinator,
                 why.ok() ? "it closed the stream" : Message(why));
  }
  // The pauses are random, because all agents of a cluster lose their coordinator at the same
  // moment.
  const absl::Duration pause = std::min(retry_, lease / kAttemptsPerLease);
  connect_at_ = SteadyNow() + pause * std::uniform_real_distribution<>(0.5, 1.0)(jitter_);
  retry_ = std::min(2 * retry_, options_.last_retry);
}

void CoordinatorLink::NewChannel(absl::Duration lease) {
  channel_ = OpenChannel(options_.coordinator, KeepAlive::Within(lease), options_.credentials);
}

void CoordinatorLink::Pump() {
  if (stream_ == nullptr || writing_) return;
  std::optional<v1::AgentMessage> message = outbox_.Take(welcomed_);
  if (!message.has_value()) return;
  writing_ = true;
  stream_->Write(*std::move(message));
}

}  // namespace muster::agent
