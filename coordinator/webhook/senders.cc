#include "coordinator/webhook/senders.h"

#include <random>
#include <utility>

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
