#include "coordinator/webhook/transfer.h"

#include <openssl/ssl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/printable/printable.h"
#include "common/steady/now.h"

namespace muster::webhook {
namespace {

// The bytes of an answer's body that are read, and the time for reading them, so that usual
// receivers do not see a broken connection.
constexpr size_t kReadOfBody = 64 << 10;
constexpr absl::Duration kReadFor = absl::Seconds(1);

CURLM* NewMulti() {
  static const CURLcode initialized = curl_global_init(CURL_GLOBAL_DEFAULT);
  return initialized == CURLE_OK ? curl_multi_init() : nullptr;
}

class List {
 public:
  ~List() { curl_slist_free_all(list_); }
  bool Add(const std::string& line) {
    curl_slist* longer = curl_slist_append(list_, line.c_str());
    if (longer != nullptr) list_ = longer;
    return longer != nullptr;
  }
  const curl_slist* get() const { return list_; }

 private:
  curl_slist* list_ = nullptr;
};

// One request and its state. libcurl calls the exchange on the thread that posts.
class Exchange {
 public:
  explicit Exchange(const Request& request) : request_(request) {}
  ~Exchange() { curl_easy_cleanup(easy_); }

  // Prepares the request. False if there is no memory, or libcurl does not know an option.
  bool Prepare();
  // Runs until the answer is complete, or will not come.
  void Run(CURLM* multi, const std::atomic<bool>& aborted);
  Response Result() const;

 private:
  CURLcode PrepareTls(SSL_CTX* context) const;
  curl_socket_t Open(const curl_sockaddr& address);
  size_t TakeHead(absl::string_view line);
  bool has_status() const;
  std::string Trouble() const;

  const Request& request_;
  CURL* const easy_ = curl_easy_init();
  List headers_, connect_to_;
  std::array<char, CURL_ERROR_SIZE> words_{};
  // The reason why the transfer has ended. CURLE_AGAIN: it was stopped.
  CURLcode ended_ = CURLE_AGAIN;
  // The errno of socket(2); 0 if there is a socket.
  int no_socket_ = 0;
  bool at_limit_ = false;
  bool sent_ = false;
  size_t head_bytes_ = 0, body_bytes_ = 0;
  bool head_complete_ = false;
};

bool Exchange::Prepare() {
  const Url& url = request_.options.url;
  const bool is_v6 = request_.address.find(':') != std::string::npos;
  const std::string address = is_v6 ? absl::StrCat("[", request_.address, "]") : request_.address;
  bool done = easy_ != nullptr && connect_to_.Add(absl::StrCat("::", address, ":", url.port));
  // libcurl does not send a header without a value.
  for (const std::string& line : {absl::StrCat("Host: ", HostHeader(url)), std::string("Expect:"),
                                  std::string("Connection: close")}) {
    done = done && headers_.Add(line);
  }
  for (const std::string& line : request_.headers) done = done && headers_.Add(line);
  const auto set = [&](CURLoption option, auto value) {
    done = done && curl_easy_setopt(easy_, option, value) == CURLE_OK;
  };
  set(CURLOPT_ERRORBUFFER, words_.data());
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_PROTOCOLS_STR, "http,https");
  set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  set(CURLOPT_FOLLOWLOCATION, 0L);
  set(CURLOPT_PROXY, "");
  set(CURLOPT_FORBID_REUSE, 1L);
  set(CURLOPT_CONNECT_TO, connect_to_.get());
  set(CURLOPT_URL, absl::StrCat(url.tls ? "https" : "http", "://", HostHeader(url), "/").c_str());
  // The path and the query are sent byte for byte.
  set(CURLOPT_REQUEST_TARGET, url.target.c_str());
  set(CURLOPT_HTTPHEADER, headers_.get());
  set(CURLOPT_POSTFIELDSIZE, static_cast<long>(request_.body.size()));
  set(CURLOPT_POSTFIELDS, request_.body.data());
  set(CURLOPT_SSLVERSION, static_cast<long>(CURL_SSLVERSION_TLSv1_2));
  // No protocol other than HTTP/1 is offered, so the receiver cannot choose one.
  set(CURLOPT_SSL_ENABLE_ALPN, 0L);
  // Trusted certificates are ends of chains. A certificate that another authority has signed is no
  // such end.
  set(CURLOPT_SSL_OPTIONS, static_cast<long>(CURLSSLOPT_NO_PARTIALCHAIN));
  // PrepareTls() reads the trusted certificates for each connection, because the file may have
  // changed.
  set(CURLOPT_CA_CACHE_TIMEOUT, 0L);
  set(CURLOPT_CAPATH, static_cast<const char*>(nullptr));
  set(CURLOPT_CAINFO, static_cast<const char*>(nullptr));
  set(CURLOPT_SSL_CTX_DATA, this);
  set(
      CURLOPT_SSL_CTX_FUNCTION, +[](CURL*, void* context, void* self) {
        return static_cast<Exchange*>(self)->PrepareTls(static_cast<SSL_CTX*>(context));
      });
  set(CURLOPT_OPENSOCKETDATA, this);
  set(
      CURLOPT_OPENSOCKETFUNCTION, +[](void* self, curlsocktype, curl_sockaddr* address) {
        return static_cast<Exchange*>(self)->Open(*address);
      });
  set(CURLOPT_PREREQDATA, this);
  set(
      CURLOPT_PREREQFUNCTION, +[](void* self, char*, char*, int, int) {
        static_cast<Exchange*>(self)->sent_ = true;
        return CURL_PREREQFUNC_OK;
      });
  set(CURLOPT_HEADERDATA, this);
  set(
      CURLOPT_HEADERFUNCTION, +[](char* line, size_t, size_t size, void* self) {
        return static_cast<Exchange*>(self)->TakeHead({line, size});
      });
  set(CURLOPT_WRITEDATA, this);
  set(
      CURLOPT_WRITEFUNCTION, +[](char*, size_t, size_t size, void* self) -> size_t {
        size_t& read = static_cast<Exchange*>(self)->body_bytes_;
        read += size;
        return read < kReadOfBody ? size : 0;
      });
  return done;
}

// Sets up TLS. libcurl calls this before it sends anything to the receiver.
CURLcode Exchange::PrepareTls(SSL_CTX* context) const {
  // Without this, one call of OpenSSL would run for as long as the receiver sends records without
  // data.
  SSL_CTX_clear_mode(context, SSL_MODE_AUTO_RETRY);
  // libcurl would write the keys of connections to the file that $SSLKEYLOGFILE names.
  SSL_CTX_set_keylog_callback(context, nullptr);
  // The system's certificates are those that OpenSSL finds, and not the paths of the machine on
  // which libcurl was compiled.
  const int trusts =
      request_.options.ca_file.empty()
          ? SSL_CTX_set_default_verify_paths(context)
          : SSL_CTX_load_verify_locations(context, request_.options.ca_file.c_str(), nullptr);
  return trusts == 1 ? CURLE_OK : CURLE_SSL_CACERT_BADFILE;
}

// Opens a socket. libcurl does not report why there is no socket.
curl_socket_t Exchange::Open(const curl_sockaddr& address) {
  const int made = socket(address.family, address.socktype | SOCK_CLOEXEC, address.protocol);
  no_socket_ = made < 0 ? errno : 0;
  return made < 0 ? CURL_SOCKET_BAD : made;
}

// Takes a line of the head. A result other than the line's size ends the transfer. Headers may also
// follow a chunked body.
size_t Exchange::TakeHead(absl::string_view line) {
  if (head_complete_) return line.size();
  head_bytes_ += line.size();
  if (head_bytes_ > Transfer::kMostOfHead) return 0;
  head_complete_ = (line == "\r\n" || line == "\n") && has_status();
  return line.size();
}

void Exchange::Run(CURLM* multi, const std::atomic<bool>& aborted) {
  absl::Time deadline = SteadyNow() + request_.options.limit;
  absl::Time moved = SteadyNow();
  bool reads_body = false;
  if (curl_multi_add_handle(multi, easy_) != CURLM_OK) return;
  for (int running = 1; !aborted;) {
    const CURLMcode performed = curl_multi_perform(multi, &running);
    if (performed != CURLM_OK || running == 0) break;
    const absl::Time now = SteadyNow();
    // A complete head is an answer, even if its body fails.
    if (head_complete_ && !std::exchange(reads_body, true)) {
      deadline = std::min(deadline, now + kReadFor);
    }
    const absl::Duration wait =
        sent_ ? request_.options.answer_wait : request_.options.connect_wait;
    const absl::Duration left = std::min(deadline, moved + wait) - now;
    at_limit_ = now >= deadline;
    if (left <= absl::ZeroDuration()) break;
    int ready = 0;
    const int64_t most =
        absl::ToInt64Milliseconds(std::min(left, request_.options.longest_poll)) + 1;
    if (curl_multi_poll(multi, nullptr, 0, static_cast<int>(most), &ready) != CURLM_OK) break;
    if (ready > 0) moved = SteadyNow();
  }
  int others = 0;
  if (const CURLMsg* message = curl_multi_info_read(multi, &others); message != nullptr) {
    ended_ = message->data.result;
  }
  curl_multi_remove_handle(multi, easy_);
}

Response Exchange::Result() const {
  Response response{.sent = sent_};
  // libcurl refuses some headers that do not matter here.
  const bool odd = ended_ == CURLE_WEIRD_SERVER_REPLY || ended_ == CURLE_BAD_CONTENT_ENCODING;
  if (!head_complete_ && !(odd && has_status())) {
    response.trouble = Trouble();
    return response;
  }
  long status = 0;
  curl_easy_getinfo(easy_, CURLINFO_RESPONSE_CODE, &status);
  response.status = static_cast<int>(status);
  curl_header* header = nullptr;
  if (curl_easy_header(easy_, "Retry-After", 0, CURLH_HEADER, -1, &header) == CURLHE_OK) {
    response.retry_after = header->value;
  }
  return response;
}

// Returns whether the status line of the final answer, and not only of an interim answer, was read.
bool Exchange::has_status() const {
  long status = 0;
  curl_easy_getinfo(easy_, CURLINFO_RESPONSE_CODE, &status);
  return status >= 200 || status == 101;
}

std::string Exchange::Trouble() const {
  if (at_limit_) {
    return absl::StrCat("no HTTP answer within ", absl::FormatDuration(request_.options.limit));
  }
  if (ended_ == CURLE_PEER_FAILED_VERIFICATION) {
    return absl::StrCat("the receiver's certificate is not valid for '", request_.options.url.host,
                        "', or nobody that is trusted has signed it (--webhook-ca): ",
                        PrintableLine(words_.data()));
  }
  if (ended_ == CURLE_SSL_CACERT_BADFILE) {
    return absl::StrCat("the trusted certificates cannot be read",
                        request_.options.ca_file.empty() ? "" : " from ", request_.options.ca_file);
  }
  if (no_socket_ != 0) return absl::StrCat("there is no socket: ", strerror(no_socket_));
  if (ended_ == CURLE_SSL_CONNECT_ERROR) return "no TLS connection";
  if (!sent_) return ended_ == CURLE_AGAIN ? "no connection in time" : "no connection";
  // libcurl keeps no line of more than 100 KB.
  if (head_bytes_ > Transfer::kMostOfHead || ended_ == CURLE_OUT_OF_MEMORY) {
    return absl::StrCat("no HTTP answer: its status line and headers have more than ",
                        Transfer::kMostOfHead, " bytes");
  }
  if (ended_ == CURLE_UNSUPPORTED_PROTOCOL || ended_ == CURLE_WEIRD_SERVER_REPLY) {
    return absl::StrCat("no HTTP answer: ", PrintableLine(words_.data()));
  }
  return "the connection ended, or was silent, before an HTTP answer";
}

}  // namespace

Transfer::Transfer() : multi_(NewMulti(), curl_multi_cleanup) {}

Response Transfer::Post(const Request& request) {
  Exchange exchange(request);
  if (multi_ == nullptr || !exchange.Prepare()) {
    return {.trouble = "libcurl has no memory, or is older than 7.87"};
  }
  exchange.Run(multi_.get(), aborted_);
  Response response = exchange.Result();
  if (aborted_ && response.status == 0) response.trouble = "aborted";
  return response;
}

void Transfer::Abort() {
  aborted_ = true;
  if (multi_ != nullptr) curl_multi_wakeup(multi_.get());
}

}  // namespace muster::webhook
