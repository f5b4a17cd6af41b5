#include "coordinator/web/site.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <stdexcept>
#include <string>

namespace muster::web {
namespace {

std::string Get(const std::string& path, const std::string& headers = "") {
  return "GET " + path + " HTTP/1.1\r\nhost: localhost\r\n" + headers + "\r\n";
}

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

class SiteTest : public testing::Test {
 protected:
  SiteTest() {
    site_.Add("/well", [] { return Page{.text = "all is well\n"}; });
    site_.Add("/ill", [] { return Page{.status = 503, .text = "because\n"}; });
    site_.Add("/broken", []() -> Page { throw std::runtime_error("inside"); });
  }
  Site site_;
};

TEST_F(SiteTest, APageIsAnsweredAndTheConnectionEnds) {
  const std::string response = site_.Respond(Get("/well"));
  EXPECT_EQ(response.rfind("HTTP/1.1 200 OK\r\n", 0), 0) << response;
  EXPECT_TRUE(Has(response, "Connection: close\r\n")) << response;
  EXPECT_TRUE(Has(response, "Content-Length: 12\r\n")) << response;
  EXPECT_TRUE(Has(response, "\r\n\r\nall is well\n")) << response;
}

TEST_F(SiteTest, AStatusOfAPageIsKept) {
  const std::string response = site_.Respond(Get("/ill"));
  EXPECT_TRUE(Has(response, "HTTP/1.1 503 ")) << response;
  EXPECT_TRUE(Has(response, "\r\n\r\nbecause\n")) << response;
}

TEST_F(SiteTest, HeadHasNoBody) {
  const std::string response = site_.Respond("HEAD /well HTTP/1.1\r\nhost: localhost\r\n\r\n");
  EXPECT_TRUE(Has(response, "HTTP/1.1 200 ")) << response;
  EXPECT_FALSE(Has(response, "all is well")) << response;
}

TEST_F(SiteTest, AnUnknownPathIsToldWhichPagesThereAre) {
  const std::string response = site_.Respond(Get("/welll"));
  EXPECT_TRUE(Has(response, "HTTP/1.1 404 ")) << response;
  EXPECT_TRUE(Has(response, "/well, /ill, /broken")) << response;
}

TEST_F(SiteTest, OtherMethodsAreRefused) {
  for (const std::string method : {"POST", "PUT", "DELETE", "OPTIONS"}) {
    const std::string response =
        site_.Respond(method + " /well HTTP/1.1\r\nhost: localhost\r\n\r\n");
    EXPECT_TRUE(Has(response, "HTTP/1.1 405 ")) << response;
    EXPECT_TRUE(Has(response, "Allow: GET, HEAD\r\n")) << response;
  }
}

TEST_F(SiteTest, AnExceptionOfAPageIsAnErrorOfTheServerAndTellsNothing) {
  const std::string response = site_.Respond(Get("/broken"));
  EXPECT_TRUE(Has(response, "HTTP/1.1 500 ")) << response;
  EXPECT_FALSE(Has(response, "inside")) << response;
}

TEST_F(SiteTest, WhatIsNoHttpIsAnsweredWithAnErrorOrNothing) {
  for (const std::string text : {"\r\n\r\n", "hello\r\n\r\n", "GET\r\n\r\n", "\x16\x03\x01\r\n\r\n",
                                 "GET / HTTP/9.9\r\n\r\n"}) {
    const std::string response = site_.Respond(text);
    EXPECT_TRUE(response.empty() || Has(response, "HTTP/1.1 400 ")) << response;
  }
}

TEST_F(SiteTest, ALongPathIsAnError) {
  const std::string response = site_.Respond(Get("/" + std::string(8100, 'a')));
  EXPECT_TRUE(Has(response, "HTTP/1.1 404 ")) << response.substr(0, 200);
}

TEST_F(SiteTest, ACompressedResponseIsSmaller) {
  site_.Add("/long", [] { return Page{.text = std::string(100000, 'a')}; });
  const std::string response = site_.Respond(Get("/long", "accept-encoding: gzip\r\n"));
  EXPECT_TRUE(Has(response, "Content-Encoding: gzip\r\n")) << response.substr(0, 300);
  EXPECT_LT(response.size(), 2000);
}

TEST(SignalTest, AClosedPipeEndsTheProcessAsBefore) {
  signal(SIGPIPE, SIG_DFL);
  const Site site;
  struct sigaction after = {};
  sigaction(SIGPIPE, nullptr, &after);
  EXPECT_EQ(after.sa_handler, SIG_DFL);
}

}  // namespace
}  // namespace muster::web
