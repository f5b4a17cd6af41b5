#include "coordinator/webhook/senders.h"

#include <random>
#include <utility>

#include "coordinator/webhook/http_poster.h"

namespace muster::webhook {
namespace {

std::function<double()> RandomNumbers() {
  return [engine = std::mt19937_64(std::random_device()())]() mutable {
    return std::uniform_real_distribution<double>(0, 1)(engine);
  };
}

}  // namespace

Senders::Senders(const Settings& settings, const std::function<absl::Time()>& clock,
                 const std::function<void(const std::vector<uint64_t>& numbers)>& settled) {
  for (const Url& url : settings.receivers) {
    SenderOptions options = {
        .receiver = Shown(url), .clock = clock, .random = RandomNumbers(), .settled = settled};
    HttpPosterOptions poster = {.url = url,
                                .secret = settings.secret,
                                .ca_file = settings.ca_file,
                                .user_agent = settings.user_agent};
    senders_[url.text] = std::make_unique<Sender>(std::move(options),
                                                  std::make_unique<HttpPoster>(std::move(poster)));
  }
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
