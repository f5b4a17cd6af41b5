#include "coordinator/webhook/sender.h"

#include <spdlog/spdlog.h>

#include <random>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/status/status.h"
#include "coordinator/webhook/http_poster.h"
#include "coordinator/webhook/url.h"

namespace muster::webhook {
namespace {

std::function<double()> RandomNumbers() {
  return [engine = std::mt19937_64(std::random_device()())]() mutable {
    return std::uniform_real_distribution<double>(0, 1)(engine);
  };
}

}  // namespace

Sender::Sender(SenderOptions options, std::unique_ptr<Poster> poster)
    : options_(std::move(options)), poster_(std::move(poster)), schedule_(options_.retries) {}

absl::StatusOr<std::unique_ptr<Sender>> Sender::Start(SenderOptions options,
                                                      std::unique_ptr<Poster> poster) {
  std::unique_ptr<Sender> self(new Sender(std::move(options), std::move(poster)));
  try {
    self->thread_ = self->options_.start_thread([raw = self.get()] { raw->Loop(); });
  } catch (const std::system_error& error) {
    return absl::ResourceExhaustedError(
        absl::StrCat("webhook ", self->options_.receiver, ": there is no thread: ", error.what()));
  }
  return self;
}

Sender::~Sender() { Stop(); }

void Sender::Stop() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    changed_.Changed();
  }
  poster_->Abort();
  if (thread_.joinable()) thread_.join();
}

void Sender::Add(const store::DeliveryRow& message) {
  absl::MutexLock lock(&mutex_);
  if (stopping_) return;
  schedule_.Add(message);
  changed_.Changed();
}

void Sender::Withdraw(uint64_t number) {
  absl::MutexLock lock(&mutex_);
  schedule_.Withdraw(number);
}

std::optional<store::DeliveryRow> Sender::AwaitDue() {
  absl::MutexLock lock(&mutex_);
  while (!stopping_) {
    const absl::Time now = options_.clock();
    if (const store::DeliveryRow* due = schedule_.Due(now); due != nullptr) return *due;
    const absl::Time next = schedule_.NextDue();
    changed_.Await(mutex_, next - now, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return stopping_ || schedule_.NextDue() < next;
    });
  }
  return std::nullopt;
}

void Sender::Loop() {
  while (const std::optional<store::DeliveryRow> message = AwaitDue()) {
    const Answer answer = poster_->Post(*message);
    Schedule::Result result;
    {
      absl::MutexLock lock(&mutex_);
      // A call that Stop() ended says nothing about the receiver.
      if (stopping_ && answer.status == 0) return;
      result = schedule_.Take(*message, answer, options_.clock(), options_.random());
    }
    if (!result.say.empty()) spdlog::warn("webhook {}: {}", options_.receiver, result.say);
    if (!result.settled.empty()) options_.settled(result.settled);
  }
}

absl::StatusOr<std::unique_ptr<Senders>> Senders::Start(
    const Settings& settings, const std::function<absl::Time()>& clock,
    const std::function<void(const std::vector<uint64_t>& numbers)>& settled) {
  std::unique_ptr<Senders> self(new Senders());
  const std::vector<std::string> shown = ShownApart(settings.receivers);
  for (size_t i = 0; i < settings.receivers.size(); ++i) {
    const Url& url = settings.receivers[i];
    SenderOptions options = {
        .receiver = shown[i], .clock = clock, .random = RandomNumbers(), .settled = settled};
    HttpPosterOptions poster = {.url = url,
                                .secret = settings.secret,
                                .ca_file = settings.ca_file,
                                .user_agent = settings.user_agent};
    ASSIGN_OR_RETURN(
        self->senders_[url.text],
        Sender::Start(std::move(options), std::make_unique<HttpPoster>(std::move(poster))));
  }
  return self;
}

void Senders::Add(const store::DeliveryRow& message) {
  const auto sender = senders_.find(message.receiver);
  if (sender != senders_.end()) sender->second->Add(message);
}

void Senders::Withdraw(const std::string& receiver, uint64_t number) {
  const auto sender = senders_.find(receiver);
  if (sender != senders_.end()) sender->second->Withdraw(number);
}

void Senders::Stop() {
  for (const auto& [url, sender] : senders_) sender->Stop();
}

}  // namespace muster::webhook
