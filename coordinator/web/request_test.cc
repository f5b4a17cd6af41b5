#include "coordinator/web/site.h"

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
    if (!complete) {
      EXPECT_TRUE(request.Take(text.substr(cut)));
    }
    EXPECT_EQ(request.refused(), 0);
    EXPECT_EQ(request.first_line(), "GET /metrics HTTP/1.1");
  }
}

TEST(RequestTest, NothingMattersButItsFirstLine) {
  Request request(1000, Hosts::kAny);
  ASSERT_TRUE(request.Take(
      "GET / HTTP/1.1\r\nRange: bytes=0-,0-\r\nACCEPT-Encoding:gzip \r\nContent-Length: 9\r\n"
      "Transfer-Encoding: chunked\r\nno colon\r\nHost: example.com\r\n\r\nthe body"));
  EXPECT_EQ(request.refused(), 0);
  EXPECT_EQ(request.first_line(), "GET / HTTP/1.1");
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

TEST(RequestTest, LinesOfAnyLengthAreRefusedOrAnswered) {
  for (const size_t size : {size_t{100'000}, size_t{2} << 20}) {
    const std::string any(size, 'a');
    for (const std::string& text :
         {"GET /" + any + " HTTP/1.1\r\nHost: localhost\r\n\r\n",
          "GET / HTTP/1.1\r\nHost: localhost\r\nRange: " + any + "\r\n\r\n",
          "GET / HTTP/1.1\r\nHost: " + any + "\r\n\r\n", any + "\r\n\r\n"}) {
      Request small(8192, Hosts::kLocal);
      EXPECT_TRUE(small.Take(text));
      EXPECT_EQ(small.refused(), 431);
      Request large(4 << 20, Hosts::kAny);
      EXPECT_TRUE(large.Take(text));
      EXPECT_EQ(large.refused(), 0);
    }
  }
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
  EXPECT_NE(Refusal(403).head.find("HTTP/1.1 403 Forbidden\r\n"), std::string::npos);
  EXPECT_NE(Refusal(403).body->find("localhost"), std::string::npos);
  EXPECT_NE(Refusal(431).head.find("HTTP/1.1 431 "), std::string::npos);
  EXPECT_NE(Refusal(400).head.find("HTTP/1.1 400 "), std::string::npos);
}

}  // namespace
}  // namespace muster::web
