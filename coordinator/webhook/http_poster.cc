#include "coordinator/webhook/http_poster.h"

#include <httplib.h>
#include <openssl/ssl.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status/status.h"
#include "coordinator/webhook/signature.h"

namespace muster::webhook {
namespace {

constexpr size_t kMostAddresses = 4;
// Of an answer's body so much is read, so that usual receivers do not see a broken connection.
constexpr size_t kReadOfBody = 64 << 10;

// A write to a connection that the receiver has closed must not end the process.
void BlockSigpipe() {
  sigset_t pipe;
  sigemptyset(&pipe);
  sigaddset(&pipe, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &pipe, nullptr);
}

std::string Trouble(httplib::Error error, const Url& url, const std::string& ca_file) {
  switch (error) {
    case httplib::Error::Connection:
      return "no connection";
    case httplib::Error::ConnectionTimeout:
      return "no connection in time";
    case httplib::Error::Read:
      return "the connection ended, or was silent, before an HTTP answer";
    case httplib::Error::Write:
      return "the message could not be written";
    case httplib::Error::SSLConnection:
      return "no TLS connection";
    case httplib::Error::SSLLoadingCerts:
      return absl::StrCat("the trusted certificates cannot be read",
                          ca_file.empty() ? "" : absl::StrCat(" from ", ca_file));
    case httplib::Error::SSLServerVerification:
      return absl::StrCat("the receiver's certificate is not valid for '", url.host,
                          "', or nobody that is trusted has signed it (--webhook-ca)");
    default:
      return absl::StrCat("no HTTP answer (", httplib::to_string(error), ")");
  }
}

}  // namespace

HttpPoster::HttpPoster(HttpPosterOptions options)
    : options_(std::move(options)), resolver_(options_.url.host) {}

void HttpPoster::Abort() {
  resolver_.Abort();
  limit_.Abort();
}

Answer HttpPoster::Post(const store::DeliveryRow& message) {
  BlockSigpipe();
  const auto addresses = resolver_.Resolve(options_.connect_wait);
  if (!addresses.ok()) return {.trouble = Message(addresses.status())};
  Answer answer = {.trouble = absl::StrCat("the host '", options_.url.host, "' has no address")};
  for (size_t i = 0; i < std::min(addresses->size(), kMostAddresses); ++i) {
    answer = PostTo((*addresses)[i], message);
    if (answer.status != 0 || limit_.aborted()) break;
  }
  return answer;
}

Answer HttpPoster::PostTo(const std::string& address, const store::DeliveryRow& message) {
  const Url& url = options_.url;
  std::unique_ptr<httplib::ClientImpl> client;
  if (url.tls) {
    auto tls = std::make_unique<httplib::SSLClient>(url.host, url.port);
    SSL_CTX_set_min_proto_version(tls->ssl_context(), TLS1_2_VERSION);
    tls->enable_server_certificate_verification(true);
    if (!options_.ca_file.empty()) tls->set_ca_cert_path(options_.ca_file);
    client = std::move(tls);
  } else {
    client = std::make_unique<httplib::ClientImpl>(url.host, url.port);
  }
  const auto answer_wait = absl::ToChronoMilliseconds(options_.answer_wait);
  client->set_hostname_addr_map({{url.host, address}});
  client->set_connection_timeout(absl::ToChronoMilliseconds(options_.connect_wait));
  client->set_read_timeout(answer_wait);
  client->set_write_timeout(answer_wait);
  client->set_url_encode(false);
  client->set_decompress(false);
  client->set_follow_location(false);
  client->set_keep_alive(false);
  client->set_socket_options([this](socket_t socket) { limit_.Use(socket); });

  httplib::Request request;
  request.method = "POST";
  request.path = url.target;
  request.body = message.body;
  request.headers = {{"Host", HostHeader(url)},
                     {"Content-Type", "application/json"},
                     {"User-Agent", options_.user_agent},
                     {"Accept-Encoding", "identity"},
                     {"Muster-Delivery", message.id}};
  if (!options_.secret.empty()) {
    const int64_t now = absl::ToUnixSeconds(options_.date());
    request.set_header("Muster-Timestamp", absl::StrCat(now));
    request.set_header("Muster-Signature", Sign(options_.secret, now, message.body));
  }
  Answer answer;
  const auto take = [&](const httplib::Response& response) {
    answer.status = response.status;
    answer.retry_after = ParseRetryAfter(response.get_header_value("Retry-After"), options_.date());
    return true;
  };
  // An answer counts as soon as its headers are here, whatever becomes of its body.
  request.response_handler = take;
  size_t read = 0;
  request.content_receiver = [&read](const char*, size_t size, uint64_t, uint64_t) {
    read += size;
    return read < kReadOfBody;
  };
  if (!limit_.Begin(options_.limit)) return {.trouble = "aborted"};
  const httplib::Result result = client->send(request);
  const bool over = limit_.End();
  // The library does not call the handler for an answer that never has a body, such as 204.
  if (result) take(*result);
  if (answer.status == 0 && over) {
    answer.trouble = absl::StrCat("no HTTP answer within ", absl::FormatDuration(options_.limit));
  } else if (answer.status == 0) {
    answer.trouble = Trouble(result.error(), url, options_.ca_file);
  }
  return answer;
}

}  // namespace muster::webhook
