// A poster and servers over real connections.
#include "coordinator/webhook/http_poster.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/synchronization/notification.h"
#include "coordinator/webhook/raw_server.h"

namespace muster::webhook {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

// A time longer than any test.
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

// Returns the answer of a server that writes these bytes.
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

TEST(HttpPoster, TheAnswerFollowsInterimOnes) {
  const Answer answer = AnswerOf(
      "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\nRetry-After: 1\r\n\r\n"
      "HTTP/1.1 503 Later\r\nRETRY-AFTER:  7 \r\nRetry-After: 8\r\n\r\n");
  EXPECT_EQ(answer.status, 503);
  EXPECT_EQ(answer.retry_after, absl::Seconds(7)) << "the first of the answer itself";
}

TEST(HttpPoster, AnAnswerNeedsNeitherAReasonNorHeadersNorCarriageReturns) {
  for (const char* head :
       {"HTTP/1.0 200\r\n\r\n", "HTTP/1.1 200 \n\n", "HTTP/1.1 200 A: b\n\r\n"}) {
    EXPECT_EQ(AnswerOf(head).status, 200) << head;
  }
}

TEST(HttpPoster, AnAddressOfIpv6IsAsked) {
  if (!RawServer::MachineHasIpv6()) GTEST_SKIP() << "the machine has no IPv6";
  std::string request;
  RawServer server(
      [&](const std::string& read, int connection) {
        request = read;
        RawServer::Write(connection, RawServer::Status("200 OK"));
      },
      RawServer::Reads::kRequests, RawServer::Listens::kIpv6);
  EXPECT_EQ(HttpPoster(OptionsFor(server.url())).Post(kMessage).status, 200);
  EXPECT_THAT(request, HasSubstr("\r\nHost: [::1]:"));
  HttpPosterOptions options =
      OptionsFor(absl::StrReplaceAll(server.url(), {{"[::1]", "six.example"}}));
  options.look_up = [](const std::string&) { return std::vector<std::string>{"::1"}; };
  EXPECT_EQ(HttpPoster(options).Post(kMessage).status, 200);
  EXPECT_THAT(request, HasSubstr("\r\nHost: six.example:"));
}

TEST(HttpPoster, AProxyOfTheEnvironmentIsNotUsed) {
  unsetenv("no_proxy");
  unsetenv("NO_PROXY");
  for (const char* name : {"http_proxy", "all_proxy"}) setenv(name, "http://127.0.0.1:1", 1);
  EXPECT_EQ(AnswerOf(RawServer::Status("200 OK")).status, 200);
  for (const char* name : {"http_proxy", "all_proxy"}) unsetenv(name);
}

TEST(HttpPoster, ThePathIsSentAsItWasGiven) {
  std::string request;
  RawServer server([&](const std::string& read, int connection) {
    request = read;
    RawServer::Write(connection, RawServer::Status("200 OK"));
  });
  HttpPosterOptions options = OptionsFor(
      absl::StrReplaceAll(server.url(), {{"/hook?a=b", "/a/../b//%7e{1,2}[3-4]?x=|&y"}}));
  EXPECT_EQ(HttpPoster(options).Post(kMessage).status, 200);
  EXPECT_THAT(request, StartsWith("POST /a/../b//%7e{1,2}[3-4]?x=|&y HTTP/1.1\r\n"));
}

TEST(HttpPoster, ARedirectIsNotFollowed) {
  for (const int status : {302, 307}) {
    std::atomic<int> requests = 0;
    std::string url;
    RawServer server([&](const std::string&, int connection) {
      ++requests;
      RawServer::Write(connection, RawServer::Status(absl::StrCat(status, " There"),
                                                     "Location: " + url + "\r\n"));
    });
    url = server.url();
    EXPECT_EQ(HttpPoster(OptionsFor(url)).Post(kMessage).status, status);
    EXPECT_EQ(requests, 1);
  }
}

TEST(HttpPoster, GarbageIsNoAnswer) {
  for (const std::string bytes :
       {std::string(), std::string("\0\xff\n\r\n\r\n", 7), std::string("220 smtp ready\r\n"),
        std::string("HTTP/1.1 20x OK\r\n\r\n"), std::string("HTTP/1.1 099 OK\r\n\r\n"),
        std::string("HTTP/1.1 200"), std::string("HTTP/1.1 200 OK\r\nContent-Le"),
        std::string(100000, 'x')}) {
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

TEST(HttpPoster, WhatAReceiverAsksForIsNotDone) {
  for (const char* asks :
       {"Transfer-Encoding: gzip, x\r\n", "Transfer-Encoding: br\r\n",
        "Transfer-Encoding: zstd\r\n", "Upgrade: h2c\r\nConnection: upgrade\r\n",
        "Alt-Svc: h2=\":1\"\r\n", "Set-Cookie: a=b; Domain=127.0.0.1\r\n",
        "WWW-Authenticate: Negotiate\r\nWWW-Authenticate: NTLM\r\n",
        "WWW-Authenticate: Basic\r\n", "Connection: keep-alive\r\n"}) {
    for (const int status : {101, 200, 401, 407}) {
      std::atomic<int> connections = 0;
      std::string more;
      {
        RawServer server([&](const std::string&, int connection) {
          ++connections;
          RawServer::Write(connection, absl::StrCat("HTTP/1.1 ", status, " X\r\n", asks, "\r\nx"));
          shutdown(connection, SHUT_WR);
          more += RawServer::AwaitEnd(connection);
        });
        HttpPoster poster(OptionsFor(server.url()));
        const Answer answer = poster.Post(kMessage);
        EXPECT_EQ(answer.status, status) << asks << answer.trouble;
      }
      EXPECT_EQ(connections, 1) << status << asks;
      EXPECT_EQ(more, "") << status << asks;
    }
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
      // libcurl refuses bytes that do not begin like an answer, with its own text.
      EXPECT_THAT(answer.trouble, HasSubstr(*start == 0 ? "Received HTTP/0.9 when not allowed"
                                                        : "headers have more than 16384 bytes"));
    }
  }
}

TEST(HttpPoster, AHeadOfExactlyTheLimitIsAnAnswer) {
  const std::string start = "HTTP/1.1 200 OK\r\nX: ", end = "\r\n\r\n";
  const std::string most((16 << 10) - start.size() - end.size(), 'x');
  EXPECT_EQ(AnswerOf(start + most + end).status, 200);
  EXPECT_EQ(AnswerOf(start + most + "x" + end).status, 0);
  // Many short lines are too long, too.
  std::string lines = "HTTP/1.1 200 OK\r\n";
  for (int i = 0; i < 4000; ++i) lines += "X: y\r\n";
  EXPECT_EQ(AnswerOf(lines + "\r\n").status, 0);
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
  // The head may also become too long before the time is over.
  EXPECT_EQ(HttpPoster(options).Post(kMessage).status, 0);
}

TEST(HttpPoster, NobodyListens) {
  std::string url;
  {
    url = RawServer([](const std::string&, int) {}).url();
  }
  EXPECT_EQ(HttpPoster(OptionsFor(url)).Post(kMessage).trouble, "no connection");
}

// Returns options for a host of two addresses, which are asked at the port of the server.
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
  // No server listens at the first address.
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

TEST(HttpPoster, AProcessWithoutFileDescriptorsSaysSo) {
  RawServer server([](const std::string&, int) {});
  HttpPoster poster(OptionsFor(server.url()));
  rlimit former;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &former), 0);
  const int lowest_free = dup(STDIN_FILENO);
  ASSERT_GE(lowest_free, 0);
  close(lowest_free);
  const rlimit none = {.rlim_cur = static_cast<rlim_t>(lowest_free), .rlim_max = former.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const Answer answer = poster.Post(kMessage);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &former), 0);
  EXPECT_EQ(answer.trouble, "there is no socket: Too many open files");
}

// Returns whether a thread of this process is in a poll(2) of a minute or more. libcurl has short
// ones in the first moments of a connection. True if the kernel gives no answer.
bool PollsLong(pid_t thread) {
  std::ifstream file(absl::StrCat("/proc/self/task/", thread, "/syscall"));
  if (!file) return true;
  long number = 0, list = 0, size = 0, timeout = 0;
  // The file of a thread that waits for nothing has the word "running".
  file >> std::dec >> number >> std::hex >> list >> size >> timeout;
  return file && number == SYS_poll && timeout >= 60'000;
}

// Only Abort() can end the wait before the test has taken too long.
TEST(HttpPoster, AbortEndsAPostThatWaitsAndAllLaterOnes) {
  absl::Notification arrived;
  RawServer server([&](const std::string&, int connection) {
    arrived.Notify();
    RawServer::AwaitEnd(connection);
  });
  HttpPosterOptions options = OptionsFor(server.url());
  options.longest_poll = kEver;
  HttpPoster poster(options);
  std::atomic<pid_t> poster_thread = 0;
  std::thread post([&] {
    poster_thread = gettid();
    EXPECT_EQ(poster.Post(kMessage).status, 0);
  });
  arrived.WaitForNotification();
  while (!PollsLong(poster_thread)) std::this_thread::yield();
  poster.Abort();
  post.join();
  EXPECT_EQ(poster.Post(kMessage).status, 0);
}

}  // namespace
}  // namespace muster::webhook
