// A poster and a TLS server: which certificates the poster accepts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <signal.h>
#include <sys/socket.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "common/certs/authority.h"
#include "common/files/temp_dir.h"
#include "coordinator/webhook/http_poster.h"
#include "coordinator/webhook/raw_server.h"

namespace muster::webhook {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

// A time longer than any test.
constexpr absl::Duration kEver = absl::Hours(1);
const store::DeliveryRow kMessage = {.number = 1, .id = "d-1", .job_id = "j", .body = R"({"a":1})"};

const std::string kOk = RawServer::Status("200 OK");

class HttpPosterTlsTest : public testing::Test {
 protected:
  HttpPosterTlsTest() {
    const auto made = certs::InitAuthority({.folder = folder_.Path("ca"), .now = absl::Now()});
    EXPECT_TRUE(made.ok()) << made.status();
    const auto issued = certs::Issue({.authority = folder_.Path("ca"),
                                      .subject = {certs::Role::kCoordinator, "receiver"},
                                      .hosts = {"good.example", "127.0.0.1"},
                                      .out = folder_.Path("out"),
                                      .now = absl::Now()});
    EXPECT_TRUE(issued.ok()) << issued.status();
    files_ = issued->files;
    context_.reset(SSL_CTX_new(TLS_server_method()));
    EXPECT_EQ(SSL_CTX_use_certificate_chain_file(context_.get(), files_.certificate.c_str()), 1);
    EXPECT_EQ(SSL_CTX_use_PrivateKey_file(context_.get(), files_.key.c_str(), SSL_FILETYPE_PEM), 1);
    SSL_CTX_set_alpn_select_cb(
        context_.get(),
        [](SSL*, const unsigned char**, unsigned char*, const unsigned char*, unsigned int,
           void* self) {
          static_cast<HttpPosterTlsTest*>(self)->offers_protocols_ = true;
          return SSL_TLSEXT_ERR_NOACK;
        },
        this);
    // libcurl reads the variable once, for the first poster of the process.
    setenv("SSLKEYLOGFILE", KeyLog().c_str(), 1);
  }
  static std::string KeyLog() { return testing::TempDir() + "/keylog"; }

  // Posts to a server of this host that writes these bytes.
  Answer Post(const std::string& host, const std::string& ca_file, const std::string& bytes = kOk) {
    RawServer server([&](const std::string&, int connection) { Serve(connection, bytes); },
                     RawServer::Reads::kNothing);
    const std::string url =
        absl::StrReplaceAll(server.url(), {{"http:", "https:"}, {"127.0.0.1", host}});
    return HttpPoster(
               {.url = *ParseUrl(url),
                .ca_file = ca_file,
                .connect_wait = kEver,
                .answer_wait = kEver,
                .limit = kEver,
                .look_up =
                    [](const std::string&) { return std::vector<std::string>{"127.0.0.1"}; }})
        .Post(kMessage);
  }

  void Serve(int connection, const std::string& bytes) {
    const Tls tls = AcceptRequest(connection);
    if (tls == nullptr) return;
    if (SSL_write(tls.get(), bytes.data(), static_cast<int>(bytes.size())) > 0) {
      SSL_shutdown(tls.get());
    }
  }

  // After the request, sends messages of TLS without data until the other side closes.
  void Flood(int connection, const std::function<int(SSL*)>& message,
             const std::function<void()>& begun) {
    const Tls tls = AcceptRequest(connection);
    if (tls == nullptr) return;
    BIO* const written = BIO_new(BIO_s_mem());
    SSL_set0_wbio(tls.get(), written);
    // Many messages are written at once, so that they are made faster than the other side reads
    // them.
    constexpr int kAtOnce = 500;
    for (int batch = 0;; ++batch) {
      for (int i = 0; i < kAtOnce; ++i) {
        EXPECT_EQ(message(tls.get()), 1);
        EXPECT_EQ(SSL_do_handshake(tls.get()), 1);
      }
      char* bytes = nullptr;
      const long size = BIO_get_mem_data(written, &bytes);
      for (long sent = 0; sent < size;) {
        const ssize_t more = send(connection, bytes + sent, size - sent, MSG_NOSIGNAL);
        if (more <= 0) return;
        sent += more;
      }
      BIO_reset(written);
      if (batch == 0) begun();
    }
  }

  // Gives the server a certificate for this subject only, signed by its own key. The certificate is
  // written to the file `trusted`, for clients.
  void UseCertificateFor(const std::string& subject, const std::string& trusted) {
    const std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> key(EVP_EC_gen("P-256"),
                                                                  EVP_PKEY_free);
    const std::unique_ptr<X509, decltype(&X509_free)> made(X509_new(), X509_free);
    X509_gmtime_adj(X509_getm_notBefore(made.get()), 0);
    X509_gmtime_adj(X509_getm_notAfter(made.get()), 24 * 60 * 60);
    X509_set_pubkey(made.get(), key.get());
    X509_NAME* const name = X509_get_subject_name(made.get());
    const auto* const bytes = reinterpret_cast<const unsigned char*>(subject.data());
    const int size = static_cast<int>(subject.size());
    EXPECT_EQ(X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_UTF8, bytes, size, -1, 0), 1);
    EXPECT_EQ(X509_set_issuer_name(made.get(), name), 1);
    EXPECT_GT(X509_sign(made.get(), key.get(), EVP_sha256()), 0);
    EXPECT_EQ(SSL_CTX_use_certificate(context_.get(), made.get()), 1);
    EXPECT_EQ(SSL_CTX_use_PrivateKey(context_.get(), key.get()), 1);
    const std::unique_ptr<BIO, decltype(&BIO_free)> file(BIO_new_file(trusted.c_str(), "w"),
                                                         BIO_free);
    EXPECT_EQ(PEM_write_bio_X509(file.get(), made.get()), 1);
  }

  files::TempDir folder_;
  certs::TlsFiles files_;
  // The server's received request, and the server name that the client sent.
  std::string request_, name_;
  // Whether the client named protocols to choose from (ALPN).
  bool offers_protocols_ = false;

 private:
  using Tls = std::unique_ptr<SSL, decltype(&SSL_free)>;

  // Null if there was no request.
  Tls AcceptRequest(int connection) {
    sigset_t pipe;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe, nullptr);
    Tls tls(SSL_new(context_.get()), SSL_free);
    SSL_set_fd(tls.get(), connection);
    request_.clear();
    if (SSL_accept(tls.get()) != 1) return Tls(nullptr, SSL_free);
    const char* name = SSL_get_servername(tls.get(), TLSEXT_NAMETYPE_host_name);
    name_ = name == nullptr ? "" : name;
    char buffer[1000];
    while (request_.find(kMessage.body) == std::string::npos) {
      const int size = SSL_read(tls.get(), buffer, sizeof(buffer));
      if (size <= 0) return Tls(nullptr, SSL_free);
      request_.append(buffer, size);
    }
    return tls;
  }

  std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context_{nullptr, SSL_CTX_free};
};

TEST_F(HttpPosterTlsTest, ACertificateForTheNameIsTaken) {
  EXPECT_EQ(Post("good.example", files_.ca).status, 200);
  EXPECT_THAT(request_, StartsWith("POST /hook?a=b HTTP/1.1\r\nHost: good.example:"));
  EXPECT_EQ(name_, "good.example");
}

TEST_F(HttpPosterTlsTest, ACertificateForTheAddressIsTaken) {
  EXPECT_EQ(Post("127.0.0.1", files_.ca).status, 200);
  EXPECT_EQ(name_, "") << "an address is no name";
}

TEST_F(HttpPosterTlsTest, ACertificateForAnotherNameIsRefused) {
  for (const char* host : {"bad.example", "sub.good.example"}) {
    EXPECT_THAT(
        Post(host, files_.ca).trouble,
        HasSubstr(absl::StrCat("the receiver's certificate is not valid for '", host, "'")));
  }
  EXPECT_EQ(request_, "") << "nothing is sent to a stranger";
}

TEST_F(HttpPosterTlsTest, ACertificateThatNobodyWhoIsTrustedHasSignedIsRefused) {
  const auto other = certs::InitAuthority({.folder = folder_.Path("other"), .now = absl::Now()});
  ASSERT_TRUE(other.ok()) << other.status();
  for (const std::string& ca : {folder_.Path("other") + "/ca.crt", std::string()}) {
    EXPECT_THAT(Post("good.example", ca).trouble,
                HasSubstr("or nobody that is trusted has signed it (--webhook-ca)"));
  }
  EXPECT_EQ(request_, "");
}

TEST_F(HttpPosterTlsTest, TheCertificatesOfTheSystemAreThoseOfOpenssl) {
  setenv("SSL_CERT_FILE", files_.ca.c_str(), 1);
  EXPECT_EQ(Post("good.example", "").status, 200);
  unsetenv("SSL_CERT_FILE");
}

TEST_F(HttpPosterTlsTest, TrustedCertificatesAreReadForEachPost) {
  const auto other = certs::InitAuthority({.folder = folder_.Path("other"), .now = absl::Now()});
  ASSERT_TRUE(other.ok()) << other.status();
  const std::string trusted = folder_.Path("trusted");
  RawServer server([&](const std::string&, int connection) { Serve(connection, kOk); },
                   RawServer::Reads::kNothing);
  HttpPoster poster({.url = *ParseUrl(absl::StrReplaceAll(server.url(), {{"http:", "https:"}})),
                     .ca_file = trusted});
  std::filesystem::copy_file(files_.ca, trusted);
  EXPECT_EQ(poster.Post(kMessage).status, 200);
  std::filesystem::copy_file(folder_.Path("other") + "/ca.crt", trusted,
                             std::filesystem::copy_options::overwrite_existing);
  EXPECT_THAT(poster.Post(kMessage).trouble, HasSubstr("nobody that is trusted"));
}

TEST_F(HttpPosterTlsTest, TrustedCertificatesThatCannotBeReadAreNamed) {
  EXPECT_EQ(Post("good.example", folder_.Path("missing")).trouble,
            absl::StrCat("the trusted certificates cannot be read from ", folder_.Path("missing")));
}

TEST_F(HttpPosterTlsTest, ACertificateThatIsTrustedDoesNotStandForTheOneThatSignedIt) {
  EXPECT_THAT(Post("good.example", files_.certificate).trouble,
              HasSubstr("nobody that is trusted"));
}

TEST_F(HttpPosterTlsTest, WhatACertificateSaysIsShownWithoutControlCharacters) {
  const std::string trusted = folder_.Path("trusted");
  UseCertificateFor("\x1b[31m\nevil", trusted);
  const std::string trouble = Post("good.example", trusted).trouble;
  EXPECT_THAT(trouble, HasSubstr("'\\x1b[31m\\nevil'"));
  EXPECT_EQ(trouble.find_first_of("\x1b\n"), std::string::npos) << trouble;
}

TEST_F(HttpPosterTlsTest, AProxyOfTheEnvironmentIsNotUsed) {
  const std::vector<const char*> names = {"https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"};
  for (const char* name : {"no_proxy", "NO_PROXY"}) unsetenv(name);
  for (const char* name : names) setenv(name, "http://127.0.0.1:1", 1);
  EXPECT_EQ(Post("good.example", files_.ca).status, 200);
  for (const char* name : names) unsetenv(name);
}

TEST_F(HttpPosterTlsTest, NoProtocolButHttp1CanBeChosen) {
  EXPECT_EQ(Post("good.example", files_.ca).status, 200);
  EXPECT_FALSE(offers_protocols_);
}

TEST_F(HttpPosterTlsTest, TheKeysOfAConnectionAreNotWrittenDown) {
  EXPECT_EQ(Post("good.example", files_.ca).status, 200);
  std::ifstream file(KeyLog());
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), "");
}

// Messages of TLS without data, which are no answer.
const std::pair<const char*, std::function<int(SSL*)>> kFloods[] = {
    {"tickets", SSL_new_session_ticket},
    {"keys", [](SSL* tls) { return SSL_key_update(tls, SSL_KEY_UPDATE_NOT_REQUESTED); }},
};

TEST_F(HttpPosterTlsTest, AReceiverThatSendsWhatIsNoDataIsLeftAfterTheLimit) {
  for (const auto& [name, message] : kFloods) {
    RawServer server([&](const std::string&, int connection) { Flood(connection, message, [] {}); },
                     RawServer::Reads::kNothing);
    HttpPoster poster({.url = *ParseUrl(absl::StrReplaceAll(server.url(), {{"http:", "https:"}})),
                       .ca_file = files_.ca,
                       .connect_wait = kEver,
                       .answer_wait = kEver,
                       .limit = absl::Seconds(1)});
    EXPECT_THAT(poster.Post(kMessage).trouble, StartsWith("no HTTP answer within")) << name;
  }
}

TEST_F(HttpPosterTlsTest, AbortEndsAPostToAReceiverThatSendsWhatIsNoData) {
  for (const auto& [name, message] : kFloods) {
    absl::Notification begun;
    RawServer server(
        [&](const std::string&, int connection) {
          Flood(connection, message, [&] { begun.Notify(); });
        },
        RawServer::Reads::kNothing);
    HttpPoster poster({.url = *ParseUrl(absl::StrReplaceAll(server.url(), {{"http:", "https:"}})),
                       .ca_file = files_.ca,
                       .connect_wait = kEver,
                       .answer_wait = kEver,
                       .limit = kEver});
    std::thread post([&] { EXPECT_EQ(poster.Post(kMessage).trouble, "aborted") << name; });
    begun.WaitForNotification();
    poster.Abort();
    post.join();
  }
}

TEST_F(HttpPosterTlsTest, ALongLineIsNoAnswerAndDisturbsNothing) {
  for (const size_t size : {size_t{100'000}, size_t{2} << 20}) {
    const std::string line = absl::StrCat("HTTP/1.1 200 ", std::string(size, 'x'), "\n");
    EXPECT_THAT(Post("good.example", files_.ca, line).trouble,
                HasSubstr("headers have more than 16384 bytes"));
  }
}

TEST_F(HttpPosterTlsTest, AnAnswerCountsWithoutTheEndOfTls) {
  EXPECT_EQ(Post("good.example", files_.ca, "HTTP/1.1 202 OK\r\n\r\n").status, 202);
}

}  // namespace
}  // namespace muster::webhook
