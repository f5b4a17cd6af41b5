#include "coordinator/web/site.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

namespace muster::web {
namespace {

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

class SiteTest : public testing::Test {
 protected:
  SiteTest() {
    site_.Add("/well", [this] { return well_; });
    site_.Add("/ill", [] { return PlainPage(503, "because\n"); });
    site_.Add("/broken", []() -> Page { throw std::runtime_error("inside"); });
  }
  std::string Respond(const std::string& first_line) {
    const Response response = site_.Respond(first_line);
    return response.head + (response.body == nullptr ? "" : *response.body);
  }
  std::string Get(const std::string& target) { return Respond("GET " + target + " HTTP/1.1"); }

  const Page well_ = PlainPage(200, "all is well\n");
  Site site_;
};

TEST_F(SiteTest, APageIsAnsweredAndTheConnectionEnds) {
  for (const char* target : {"/well", "/well?a=b", "/well?"}) {
    const std::string response = Get(target);
    EXPECT_EQ(response.rfind("HTTP/1.1 200 OK\r\n", 0), 0) << response;
    EXPECT_TRUE(Has(response, "\r\nConnection: close\r\n")) << response;
    EXPECT_TRUE(Has(response, "\r\nContent-Type: text/plain; charset=utf-8\r\n")) << response;
    EXPECT_TRUE(Has(response, "\r\nContent-Length: 12\r\n")) << response;
    EXPECT_TRUE(Has(response, "\r\nCache-Control: no-store\r\n")) << response;
    EXPECT_TRUE(Has(response, "\r\nX-Content-Type-Options: nosniff\r\n")) << response;
    EXPECT_TRUE(Has(response, "\r\n\r\nall is well\n")) << response;
  }
}

TEST_F(SiteTest, ItsTextIsSharedNotCopied) {
  EXPECT_EQ(site_.Respond("GET /well HTTP/1.0").body, well_.text);
}

TEST_F(SiteTest, AStatusOfAPageIsKept) {
  const std::string response = Get("/ill");
  EXPECT_TRUE(Has(response, "HTTP/1.1 503 Service Unavailable\r\n")) << response;
  EXPECT_TRUE(Has(response, "\r\n\r\nbecause\n")) << response;
}

TEST_F(SiteTest, HeadHasNoBody) {
  const std::string response = Respond("HEAD /well HTTP/1.1");
  EXPECT_TRUE(Has(response, "HTTP/1.1 200 ")) << response;
  EXPECT_TRUE(Has(response, "\r\nContent-Length: 12\r\n")) << response;
  EXPECT_FALSE(Has(response, "all is well")) << response;
}

TEST_F(SiteTest, AnUnknownPathIsToldWhichPagesThereAre) {
  for (const char* target : {"/welll", "/wel", "/", "/well/", "/.*", "//well"}) {
    const std::string response = Get(target);
    EXPECT_TRUE(Has(response, "HTTP/1.1 404 ")) << response;
    EXPECT_TRUE(Has(response, "/well, /ill, /broken")) << response;
  }
}

TEST_F(SiteTest, OtherMethodsAreRefused) {
  for (const std::string method : {"POST", "PUT", "DELETE", "OPTIONS", "get", ""}) {
    const std::string response = Respond(method + " /well HTTP/1.1");
    EXPECT_TRUE(Has(response, "HTTP/1.1 405 ")) << response;
    EXPECT_TRUE(Has(response, "Allow: GET, HEAD\r\n")) << response;
  }
}

TEST_F(SiteTest, AnExceptionOfAPageIsAnErrorOfTheServerAndTellsNothing) {
  const std::string response = Get("/broken");
  EXPECT_TRUE(Has(response, "HTTP/1.1 500 ")) << response;
  EXPECT_FALSE(Has(response, "inside")) << response;
}

TEST_F(SiteTest, WhatIsNoRequestOfHttpIsAnsweredWithAnError) {
  for (const std::string line : {"", "hello", "GET", "GET /well", "\x16\x03\x01",
                                 "GET /well HTTP/9.9", "GET  /well HTTP/1.1", "GET well HTTP/1.1",
                                 "GET http://a/well HTTP/1.1", "GET /well HTTP/1.1 x"}) {
    EXPECT_TRUE(Has(Respond(line), "HTTP/1.1 400 Bad Request\r\n")) << line;
  }
}

TEST_F(SiteTest, ALineOfAnyLengthIsAnError) {
  const std::string any(2 << 20, 'a');
  EXPECT_TRUE(Has(Get("/" + any), "HTTP/1.1 404 "));
  EXPECT_TRUE(Has(Respond(any), "HTTP/1.1 400 "));
  EXPECT_TRUE(Has(Respond(any + " /well HTTP/1.1"), "HTTP/1.1 405 "));
  EXPECT_TRUE(Has(Get("/well?" + any), "HTTP/1.1 200 "));
}

}  // namespace
}  // namespace muster::web
