// A poster and a server of TLS: whose certificate is taken.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/ssl.h>
#include <signal.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/time/clock.h"
#include "common/certs/authority.h"
#include "common/files/temp_dir.h"
#include "coordinator/webhook/http_poster.h"
#include "coordinator/webhook/raw_server.h"

namespace muster::webhook {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

// Longer than a test may take.
constexpr absl::Duration kEver = absl::Hours(1);
const store::DeliveryRow kMessage = {.number = 1, .id = "d-1", .job_id = "j", .body = R"({"a":1})"};

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
  }
  // Posts to a server of this host that writes these bytes.
  Answer Post(const std::string& host, const std::string& ca_file,
              const std::string& bytes = RawServer::Status("200 OK")) {
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

  files::TempDir folder_;
  certs::TlsFiles files_;
  // What the server got; and the name that it was called.
  std::string request_, name_;

 private:
  void Serve(int connection, const std::string& bytes) {
    sigset_t pipe;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe, nullptr);
    const std::unique_ptr<SSL, decltype(&SSL_free)> tls(SSL_new(context_.get()), SSL_free);
    SSL_set_fd(tls.get(), connection);
    if (SSL_accept(tls.get()) != 1) return;
    const char* name = SSL_get_servername(tls.get(), TLSEXT_NAMETYPE_host_name);
    name_ = name == nullptr ? "" : name;
    char buffer[1000];
    while (request_.find(kMessage.body) == std::string::npos) {
      const int size = SSL_read(tls.get(), buffer, sizeof(buffer));
      if (size <= 0) return;
      request_.append(buffer, size);
    }
    if (SSL_write(tls.get(), bytes.data(), static_cast<int>(bytes.size())) > 0) {
      SSL_shutdown(tls.get());
    }
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

TEST_F(HttpPosterTlsTest, TrustedCertificatesThatCannotBeReadAreNamed) {
  EXPECT_EQ(Post("good.example", folder_.Path("missing")).trouble,
            absl::StrCat("the trusted certificates cannot be read from ", folder_.Path("missing")));
}

TEST_F(HttpPosterTlsTest, ALongLineIsNoAnswerAndDisturbsNothing) {
  for (const size_t size : {size_t{100'000}, size_t{2} << 20}) {
    request_.clear();
    EXPECT_THAT(Post("good.example", files_.ca, "HTTP/1.1 200 " + std::string(size, 'x')).trouble,
                HasSubstr("headers have more than 16384 bytes"));
  }
}

TEST_F(HttpPosterTlsTest, AnAnswerCountsWithoutTheEndOfTls) {
  EXPECT_EQ(Post("good.example", files_.ca, "HTTP/1.1 202 OK\r\n\r\n").status, 202);
}

}  // namespace
}  // namespace muster::webhook
