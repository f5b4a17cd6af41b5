#include "coordinator/web/request.h"

#include <gtest/gtest.h>

#include <string>

namespace muster::web {
namespace {

TEST(RequestTest, IsCompleteWithItsEmptyLineHoweverItArrives) {
  const std::string text = "GET /metrics HTTP/1.1\r\nHost: localhost:9090\r\n\r\n";
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    Request request(1000, Hosts::kLocal);
    const bool complete = request.Take(text.substr(0, cut));
    EXPECT_EQ(complete, cut == text.size());
    if (!complete) EXPECT_TRUE(request.Take(text.substr(cut)));
    EXPECT_EQ(request.refused(), 0);
    EXPECT_EQ(request.forwarded(), "GET /metrics HTTP/1.1\r\nhost: localhost:9090\r\n\r\n");
  }
}

TEST(RequestTest, ForwardsOnlyTheHeadersThatPagesNeed) {
  Request request(1000, Hosts::kAny);
  ASSERT_TRUE(request.Take(
      "GET / HTTP/1.1\r\nRange: bytes=0-,0-\r\nACCEPT-Encoding:gzip \r\nContent-Length: 9\r\n"
      "Transfer-Encoding: chunked\r\nno colon\r\nHost: example.com\r\n\r\nthe body"));
  EXPECT_EQ(request.refused(), 0);
  EXPECT_EQ(request.forwarded(),
            "GET / HTTP/1.1\r\naccept-encoding: gzip\r\nhost: example.com\r\n\r\n");
}

TEST(RequestTest, ARequestThatIsTooLargeIsRefusedAtOnce) {
  Request endless(100, Hosts::kAny);
  EXPECT_FALSE(endless.Take(std::string(100, 'a')));
  EXPECT_TRUE(endless.Take("a"));
  EXPECT_EQ(endless.refused(), 431);
  Request whole(100, Hosts::kAny);
  EXPECT_TRUE(whole.Take("GET / HTTP/1.1\r\nAccept: " + std::string(100, 'a') + "\r\n\r\n"));
  EXPECT_EQ(whole.refused(), 431);
}

TEST(RequestTest, OnLoopbackOnlyLocalNamesAndAddressesAreHosts) {
  const auto refused = [](const std::string& host) {
    Request request(1000, Hosts::kLocal);
    EXPECT_TRUE(request.Take("GET / HTTP/1.1\r\nHost: " + host + "\r\n\r\n"));
    return request.refused();
  };
  for (const char* host : {"localhost", "LocalHost:9090", "127.0.0.1", "127.0.0.1:9090", "[::1]",
                           "[::1]:9090", "10.0.0.1:80"}) {
    EXPECT_EQ(refused(host), 0) << host;
  }
  for (const char* host :
       {"example.com", "example.com:9090", "localhost.example.com", "1.2.3.a", "", ":9090"}) {
    EXPECT_EQ(refused(host), 403) << host;
  }
}

TEST(RequestTest, ARefusalSaysWhatToDo) {
  EXPECT_NE(Refusal(403).find("HTTP/1.1 403 Forbidden\r\n"), std::string::npos);
  EXPECT_NE(Refusal(403).find("localhost"), std::string::npos);
  EXPECT_NE(Refusal(431).find("HTTP/1.1 431 "), std::string::npos);
  EXPECT_NE(Refusal(400).find("HTTP/1.1 400 "), std::string::npos);
}

}  // namespace
}  // namespace muster::web
