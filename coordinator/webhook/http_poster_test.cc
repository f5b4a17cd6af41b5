// A poster and servers over real connections.
#include "coordinator/webhook/http_poster.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/synchronization/notification.h"
#include "coordinator/webhook/raw_server.h"
#include "coordinator/webhook/signature.h"

namespace muster::webhook {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

// Longer than a test may take.
constexpr absl::Duration kEver = absl::Hours(1);
constexpr char kSecret[] = "sixteen bytes...";
const store::DeliveryRow kMessage = {.number = 1, .id = "d-1", .job_id = "j", .body = R"({"a":1})"};

HttpPosterOptions OptionsFor(const std::string& url) {
  return {.url = *ParseUrl(url),
          .secret = kSecret,
          .user_agent = "muster/1",
          .connect_wait = kEver,
          .answer_wait = kEver,
          .limit = kEver,
          .date = [] { return absl::FromUnixSeconds(1700000000); }};
}

// The answer of a server that writes these bytes.
Answer AnswerOf(const std::string& bytes) {
  RawServer server(
      [&](const std::string&, int connection) { RawServer::Write(connection, bytes); });
  return HttpPoster(OptionsFor(server.url())).Post(kMessage);
}

TEST(HttpPoster, SendsTheMessageWithItsHeaders) {
  std::string request;
  RawServer server([&](const std::string& read, int connection) {
    request = read;
    RawServer::Write(connection, RawServer::Status("204 No Content"));
  });
  EXPECT_EQ(HttpPoster(OptionsFor(server.url())).Post(kMessage).status, 204);
  EXPECT_THAT(request, StartsWith("POST /hook?a=b HTTP/1.1\r\n"));
  EXPECT_THAT(request, EndsWith("\r\n\r\n{\"a\":1}"));
  const std::string host = server.url().substr(7, server.url().find("/hook") - 7);
  for (const std::string& header :
       {"Host: " + host, std::string("Content-Type: application/json"),
        std::string("User-Agent: muster/1"), std::string("Muster-Delivery: d-1"),
        std::string("Muster-Timestamp: 1700000000"),
        "Muster-Signature: " + Sign(kSecret, 1700000000, kMessage.body)}) {
    EXPECT_THAT(request, HasSubstr("\r\n" + header + "\r\n"));
  }
}

TEST(HttpPoster, WithoutASecretNothingIsSigned) {
  std::string request;
  RawServer server([&](const std::string& read, int connection) {
    request = read;
    RawServer::Write(connection, RawServer::Status("200 OK"));
  });
  HttpPosterOptions options = OptionsFor(server.url());
  options.secret.clear();
  EXPECT_EQ(HttpPoster(options).Post(kMessage).status, 200);
  EXPECT_FALSE(absl::StrContains(request, "Muster-Signature"));
}

TEST(HttpPoster, TellsTheStatusAndWhenToTryAgain) {
  EXPECT_EQ(AnswerOf(RawServer::Status("500 Oh")).status, 500);
  EXPECT_EQ(AnswerOf(RawServer::Status("429 Slow", "Retry-After: 7\r\n")).retry_after,
            absl::Seconds(7));
}

TEST(HttpPoster, ARedirectIsNotFollowed) {
  int requests = 0;
  std::string url;
  RawServer server([&](const std::string&, int connection) {
    ++requests;
    RawServer::Write(connection, RawServer::Status("302 Found", "Location: " + url + "\r\n"));
  });
  url = server.url();
  EXPECT_EQ(HttpPoster(OptionsFor(url)).Post(kMessage).status, 302);
  EXPECT_EQ(requests, 1);
}

TEST(HttpPoster, GarbageIsNoAnswer) {
  for (const std::string bytes :
       {std::string(), std::string("\0\xff\n\r\n\r\n", 7), std::string("220 smtp ready\r\n"),
        std::string("HTTP/1.1 20x OK\r\n\r\n"), std::string("HTTP/1.1 200"),
        std::string("HTTP/1.1 200 OK\r\nContent-Le"), std::string(100000, 'x')}) {
    const Answer answer = AnswerOf(bytes);
    EXPECT_EQ(answer.status, 0) << bytes.substr(0, 40);
    EXPECT_NE(answer.trouble, "");
  }
}

TEST(HttpPoster, WhatFollowsTheHeadersOfAnAnswerDoesNotMatter) {
  for (const char* body : {"Content-Length: 100\r\n\r\ncut", "Content-Length: x\r\n\r\n",
                           "Transfer-Encoding: chunked\r\n\r\nzzz",
                           "Content-Encoding: gzip\r\n"
                           "Content-Length: 3\r\n\r\nbad"}) {
    EXPECT_EQ(AnswerOf(absl::StrCat("HTTP/1.1 200 OK\r\n", body)).status, 200) << body;
  }
}

// The server only ends when the poster has closed the connection.
TEST(HttpPoster, AnEndlessBodyIsNotReadToItsEnd) {
  RawServer server([](const std::string&, int connection) {
    RawServer::Write(connection, "HTTP/1.1 200 OK\r\nContent-Length: 1000000000000\r\n\r\n");
    const std::string part(1 << 20, 'x');
    while (send(connection, part.data(), part.size(), MSG_NOSIGNAL) > 0) {
    }
  });
  EXPECT_EQ(HttpPoster(OptionsFor(server.url())).Post(kMessage).status, 200);
}

TEST(HttpPoster, ALongLineIsNoAnswerAndDisturbsNothing) {
  for (const char* start : {"HTTP/1.1 200 ", "HTTP/1.1 200 OK\r\nX: ", ""}) {
    for (const size_t size : {size_t{30'000}, size_t{100'000}, size_t{2} << 20}) {
      const Answer answer = AnswerOf(absl::StrCat(start, std::string(size, 'x'), "\r\n\r\n"));
      EXPECT_EQ(answer.status, 0) << start << size;
      EXPECT_THAT(answer.trouble, HasSubstr("headers have more than 16384 bytes"));
    }
  }
}

TEST(HttpPoster, AnEndlessLineBeforeTheBodyIsNotReadToItsEnd) {
  RawServer server([](const std::string&, int connection) {
    RawServer::Write(connection, "HTTP/1.1 200 OK\r\nX: ");
    const std::string part(1 << 20, 'x');
    while (send(connection, part.data(), part.size(), MSG_NOSIGNAL) > 0) {
    }
  });
  EXPECT_EQ(HttpPoster(OptionsFor(server.url())).Post(kMessage).status, 0);
}

TEST(HttpPoster, ABodyThatNeverComesIsNotWaitedForLong) {
  RawServer server([](const std::string&, int connection) {
    RawServer::Write(connection, "HTTP/1.1 200 OK\r\n\r\n");
    RawServer::AwaitEnd(connection);
  });
  EXPECT_EQ(HttpPoster(OptionsFor(server.url())).Post(kMessage).status, 200);
}

TEST(HttpPoster, ASilentReceiverIsLeftAfterTheWait) {
  RawServer server([](const std::string&, int connection) { RawServer::AwaitEnd(connection); });
  HttpPosterOptions options = OptionsFor(server.url());
  options.answer_wait = absl::Milliseconds(10);
  EXPECT_EQ(HttpPoster(options).Post(kMessage).trouble,
            "the connection ended, or was silent, before an HTTP answer");
}

TEST(HttpPoster, AReceiverThatDripsIsLeftAfterTheLimit) {
  RawServer server([](const std::string&, int connection) {
    while (send(connection, "H", 1, MSG_NOSIGNAL) > 0) {
    }
  });
  HttpPosterOptions options = OptionsFor(server.url());
  options.limit = absl::Milliseconds(50);
  // It may also get too long before.
  EXPECT_EQ(HttpPoster(options).Post(kMessage).status, 0);
}

TEST(HttpPoster, NobodyListens) {
  std::string url;
  {
    url = RawServer([](const std::string&, int) {}).url();
  }
  EXPECT_EQ(HttpPoster(OptionsFor(url)).Post(kMessage).trouble, "no connection");
}

// A host of two addresses, which are asked at the port of the server.
HttpPosterOptions OptionsForTwo(const RawServer& server, const std::string& first,
                                const std::string& second) {
  HttpPosterOptions options =
      OptionsFor(absl::StrReplaceAll(server.url(), {{"127.0.0.1", "two.example"}}));
  options.look_up = [=](const std::string&) { return std::vector<std::string>{first, second}; };
  return options;
}

TEST(HttpPoster, TheNextAddressIsTriedIfThereIsNoConnection) {
  int requests = 0;
  RawServer server([&](const std::string&, int connection) {
    ++requests;
    RawServer::Write(connection, RawServer::Status("200 OK"));
  });
  // Nobody listens at the first one.
  EXPECT_EQ(HttpPoster(OptionsForTwo(server, "127.0.0.2", "127.0.0.1")).Post(kMessage).status, 200);
  EXPECT_EQ(requests, 1);
}

TEST(HttpPoster, AMessageThatWasSentIsNotSentToTheNextAddressToo) {
  std::atomic<int> requests = 0;
  RawServer server([&](const std::string&, int) { ++requests; });
  EXPECT_EQ(HttpPoster(OptionsForTwo(server, "127.0.0.1", "127.0.0.1")).Post(kMessage).status, 0);
  EXPECT_EQ(requests, 1);
}

TEST(HttpPoster, TheNextAddressIsTriedIfThereIsNoTls) {
  std::atomic<int> connections = 0;
  RawServer server([&](const std::string&, int) { ++connections; }, RawServer::Reads::kNothing);
  HttpPosterOptions options = OptionsForTwo(server, "127.0.0.1", "127.0.0.1");
  options.url.tls = true;
  EXPECT_EQ(HttpPoster(options).Post(kMessage).trouble, "no TLS connection");
  EXPECT_EQ(connections, 2);
}

TEST(HttpPoster, AHostThatDoesNotExistIsNamed) {
  const Answer answer = HttpPoster(OptionsFor("http://no-such-host.invalid/")).Post(kMessage);
  EXPECT_EQ(answer.status, 0);
  EXPECT_THAT(answer.trouble, HasSubstr("the host 'no-such-host.invalid' cannot be found"));
}

TEST(HttpPoster, AbortEndsAPostThatWaitsAndAllLaterOnes) {
  absl::Notification arrived;
  RawServer server([&](const std::string&, int connection) {
    arrived.Notify();
    RawServer::AwaitEnd(connection);
  });
  HttpPoster poster(OptionsFor(server.url()));
  std::thread post([&] { EXPECT_EQ(poster.Post(kMessage).status, 0); });
  arrived.WaitForNotification();
  poster.Abort();
  post.join();
  EXPECT_EQ(poster.Post(kMessage).status, 0);
}

}  // namespace
}  // namespace muster::webhook
