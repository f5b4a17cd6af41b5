#include "coordinator/webhook/http_poster.h"

#include <signal.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/status/status.h"
#include "common/steady/now.h"
#include "coordinator/webhook/answer_head.h"
#include "coordinator/webhook/connection.h"
#include "coordinator/webhook/signature.h"

namespace muster::webhook {
namespace {

constexpr size_t kMostAddresses = 4;
// Of an answer's body so much is read, and for so long, so that usual receivers do not see a broken
// connection.
constexpr uint64_t kReadOfBody = 64 << 10;
constexpr absl::Duration kReadFor = absl::Seconds(1);

// A write to a connection that the receiver has closed must not end the process.
void BlockSigpipe() {
  sigset_t pipe;
  sigemptyset(&pipe);
  sigaddset(&pipe, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &pipe, nullptr);
}

}  // namespace

HttpPoster::HttpPoster(HttpPosterOptions options)
    : options_(std::move(options)), resolver_(options_.url.host, {.look_up = options_.look_up}) {}

void HttpPoster::Abort() {
  resolver_.Abort();
  interrupt_.Set();
}

Answer HttpPoster::Post(const store::DeliveryRow& message) {
  BlockSigpipe();
  const auto addresses = resolver_.Resolve(options_.connect_wait);
  if (!addresses.ok()) return {.trouble = Message(addresses.status())};
  Try done = {
      .answer = {.trouble = absl::StrCat("the host '", options_.url.host, "' has no address")}};
  for (size_t i = 0; i < std::min(addresses->size(), kMostAddresses); ++i) {
    if (interrupt_.is_set()) return {.trouble = "aborted"};
    done = PostTo((*addresses)[i], message);
    if (done.sent) break;
  }
  return done.answer;
}

HttpPoster::Try HttpPoster::PostTo(const std::string& address,
                                   const store::DeliveryRow& message) const {
  const absl::Time deadline = SteadyNow() + options_.limit;
  Try done;
  const absl::Status exchanged = Exchange(address, message, deadline, &done);
  if (exchanged.ok()) return done;
  if (interrupt_.is_set()) {
    done.answer.trouble = "aborted";
  } else if (SteadyNow() >= deadline) {
    done.answer.trouble =
        absl::StrCat("no HTTP answer within ", absl::FormatDuration(options_.limit));
  } else {
    done.answer.trouble = Message(exchanged);
  }
  return done;
}

absl::Status HttpPoster::Exchange(const std::string& address, const store::DeliveryRow& message,
                                  absl::Time deadline, Try* done) const {
  ASSIGN_OR_RETURN(const auto connection, Connection::Open({.url = options_.url,
                                                            .address = address,
                                                            .ca_file = options_.ca_file,
                                                            .connect_wait = options_.connect_wait,
                                                            .wait = options_.answer_wait,
                                                            .deadline = deadline,
                                                            .interrupt = &interrupt_}));
  done->sent = true;
  RETURN_IF_ERROR(connection->Write(RequestOf(message)));
  std::array<char, 4096> buffer;
  AnswerHead head;
  while (!head.complete()) {
    ASSIGN_OR_RETURN(const size_t size, connection->Read(buffer.data(), buffer.size()));
    if (size == 0) {
      return absl::UnavailableError("the connection ended, or was silent, before an HTTP answer");
    }
    RETURN_IF_ERROR(head.Take(absl::string_view(buffer.data(), size)));
  }
  done->answer.status = head.status();
  done->answer.retry_after = ParseRetryAfter(head.retry_after(), options_.date());
  // The answer counts, whatever becomes of its body.
  connection->EndBefore(SteadyNow() + kReadFor);
  const uint64_t length = head.content_length().value_or(std::numeric_limits<uint64_t>::max());
  for (uint64_t read = head.taken_of_body(); read < std::min(length, kReadOfBody);) {
    const auto size = connection->Read(buffer.data(), buffer.size());
    if (!size.ok() || *size == 0) break;
    read += *size;
  }
  return absl::OkStatus();
}

std::string HttpPoster::RequestOf(const store::DeliveryRow& message) const {
  std::string request = absl::StrCat(
      "POST ", options_.url.target, " HTTP/1.1\r\n", "Host: ", HostHeader(options_.url), "\r\n",
      "User-Agent: ", options_.user_agent, "\r\n", "Accept: */*\r\n",
      "Accept-Encoding: identity\r\n", "Connection: close\r\n",
      "Content-Type: application/json\r\n", "Content-Length: ", message.body.size(), "\r\n",
      "Muster-Delivery: ", message.id, "\r\n");
  if (!options_.secret.empty()) {
    const int64_t now = absl::ToUnixSeconds(options_.date());
    absl::StrAppend(&request, "Muster-Timestamp: ", now, "\r\n",
                    "Muster-Signature: ", Sign(options_.secret, now, message.body), "\r\n");
  }
  absl::StrAppend(&request, "\r\n", message.body);
  return request;
}

}  // namespace muster::webhook
