#include "coordinator/webhook/resolver.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/steady/condition.h"
#include "coordinator/webhook/url.h"

namespace muster::webhook {

struct Resolver::State {
  absl::Mutex mutex;
  SteadyCondition changed;
  bool aborted ABSL_GUARDED_BY(mutex) = false;
  bool looks_up ABSL_GUARDED_BY(mutex) = false;
  std::optional<absl::StatusOr<std::vector<std::string>>> found ABSL_GUARDED_BY(mutex);
};

absl::StatusOr<std::vector<std::string>> SystemLookUp(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  if (const int error = getaddrinfo(host.c_str(), nullptr, &hints, &list); error != 0) {
    return absl::UnavailableError(
        absl::StrCat("the host '", host, "' cannot be found: ", gai_strerror(error)));
  }
  std::vector<std::string> addresses;
  for (const addrinfo* entry = list; entry != nullptr; entry = entry->ai_next) {
    std::array<char, INET6_ADDRSTRLEN> text{};
    const void* address =
        entry->ai_family == AF_INET6
            ? static_cast<const void*>(&reinterpret_cast<sockaddr_in6*>(entry->ai_addr)->sin6_addr)
            : static_cast<const void*>(&reinterpret_cast<sockaddr_in*>(entry->ai_addr)->sin_addr);
    if (inet_ntop(entry->ai_family, address, text.data(), text.size()) == nullptr) continue;
    if (std::find(addresses.begin(), addresses.end(), text.data()) != addresses.end()) continue;
    addresses.emplace_back(text.data());
  }
  freeaddrinfo(list);
  return addresses;
}

Resolver::Resolver(const std::string& host, ResolverOptions options)
    : host_(host), options_(std::move(options)), state_(std::make_shared<State>()) {}

absl::StatusOr<std::vector<std::string>> Resolver::Resolve(absl::Duration limit) {
  State& state = *state_;
  absl::MutexLock lock(&state.mutex);
  if (state.aborted) return absl::CancelledError("aborted");
  if (IsAddress(host_)) return std::vector<std::string>{host_};
  if (!state.looks_up) {
    state.found.reset();
    try {
      options_
          .start_thread([state = state_, host = host_, look_up = options_.look_up] {
            auto found = look_up(host);
            absl::MutexLock lock(&state->mutex);
            state->found = std::move(found);
            state->looks_up = false;
            state->changed.Changed();
          })
          .detach();
    } catch (const std::system_error& error) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "the host '", host_, "' cannot be looked up: there is no thread: ", error.what()));
    }
    state.looks_up = true;
  }
  state.changed.Await(state.mutex, limit, [&state]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mutex) {
    return state.aborted || state.found.has_value();
  });
  if (state.aborted) return absl::CancelledError("aborted");
  if (state.found.has_value()) return *std::exchange(state.found, std::nullopt);
  return absl::DeadlineExceededError(absl::StrCat(
      "the lookup of the host '", host_, "' has not ended within ", absl::FormatDuration(limit)));
}

void Resolver::Abort() {
  absl::MutexLock lock(&state_->mutex);
  state_->aborted = true;
  state_->changed.Changed();
}

}  // namespace muster::webhook
