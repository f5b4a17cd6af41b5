// A sender and a server over real connections.
#include "coordinator/webhook/sender.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "coordinator/webhook/http_poster.h"
#include "coordinator/webhook/raw_server.h"

namespace muster::webhook {
namespace {

using testing::ElementsAre;

// A time longer than any test.
constexpr absl::Duration kEver = absl::Hours(1);

// A record of what a server and a sender have done.
class Record {
 public:
  void Add(std::vector<std::string> names) {
    absl::MutexLock lock(&mutex_);
    for (std::string& name : names) names_.push_back(std::move(name));
  }
  std::vector<std::string> Await(size_t size) {
    absl::MutexLock lock(&mutex_);
    const auto enough = [this, size]()
                            ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return names_.size() >= size; };
    mutex_.Await(absl::Condition(&enough));
    return names_;
  }
  size_t size() {
    absl::MutexLock lock(&mutex_);
    return names_.size();
  }

 private:
  absl::Mutex mutex_;
  std::vector<std::string> names_ ABSL_GUARDED_BY(mutex_);
};

class SenderTest : public testing::Test {
 protected:
  std::unique_ptr<Sender> SenderTo(const std::string& url) {
    SenderOptions options = {
        .receiver = "test",
        .retries = {.first = absl::Milliseconds(1), .longest = absl::Milliseconds(4)},
        .clock = absl::Now,
        .random = [] { return 0.5; },
        .settled =
            [this](const std::vector<uint64_t>& numbers) {
              std::vector<std::string> names;
              for (const uint64_t number : numbers) names.push_back(absl::StrCat(number));
              settled_.Add(std::move(names));
            }};
    return *Sender::Start(
        std::move(options),
        std::make_unique<HttpPoster>(HttpPosterOptions{
            .url = *ParseUrl(url), .connect_wait = kEver, .answer_wait = kEver, .limit = kEver}));
  }
  static store::DeliveryRow Message(uint64_t number, const std::string& job) {
    return {.number = number,
            .id = absl::StrCat("id-", number),
            .job_id = job,
            .create_time = absl::Now(),
            .body = absl::StrCat(number)};
  }
  static std::string BodyOf(const std::string& request) {
    return request.substr(request.find("\r\n\r\n") + 4);
  }
  Record received_, settled_;
};

TEST_F(SenderTest, MessagesArriveInOrderAndAreSettled) {
  RawServer server([&](const std::string& request, int connection) {
    received_.Add({BodyOf(request)});
    RawServer::Write(connection, RawServer::Status("204 No Content"));
  });
  const auto sender = SenderTo(server.url());
  for (uint64_t number = 1; number <= 3; ++number) sender->Add(Message(number, "j"));
  EXPECT_THAT(settled_.Await(3), ElementsAre("1", "2", "3"));
  EXPECT_THAT(received_.Await(3), ElementsAre("1", "2", "3"));
}

TEST_F(SenderTest, WhatFailsIsSentAgainBeforeItsSuccessor) {
  int requests = 0;
  RawServer server([&](const std::string& request, int connection) {
    received_.Add({BodyOf(request)});
    switch (++requests) {
      case 1:
        return RawServer::Write(connection, RawServer::Status("500 Oh"));
      case 2:
        return;  // closes without an answer
      case 3:
        return RawServer::Write(connection, "garbage\n\n\n");
      case 4:
        return RawServer::Write(connection, RawServer::Status("302 Found", "Location: /x\r\n"));
      default:
        return RawServer::Write(connection, RawServer::Status("200 OK"));
    }
  });
  const auto sender = SenderTo(server.url());
  sender->Add(Message(1, "j"));
  sender->Add(Message(2, "j"));
  EXPECT_THAT(settled_.Await(2), ElementsAre("1", "2"));
  EXPECT_THAT(received_.Await(6), ElementsAre("1", "1", "1", "1", "1", "2"));
}

TEST_F(SenderTest, WhatIsRefusedIsSettledToo) {
  RawServer server([&](const std::string& request, int connection) {
    received_.Add({BodyOf(request)});
    RawServer::Write(connection, RawServer::Status("410 Gone"));
  });
  const auto sender = SenderTo(server.url());
  sender->Add(Message(1, "j"));
  EXPECT_THAT(settled_.Await(1), ElementsAre("1"));
  EXPECT_EQ(received_.size(), 1);
}

TEST_F(SenderTest, StopDoesNotWaitForAReceiverThatIsSilent) {
  absl::Notification arrived;
  RawServer server([&](const std::string&, int connection) {
    arrived.Notify();
    RawServer::AwaitEnd(connection);
  });
  const auto sender = SenderTo(server.url());
  sender->Add(Message(1, "j"));
  arrived.WaitForNotification();
  sender->Stop();
  EXPECT_EQ(settled_.size(), 0);
  sender->Add(Message(2, "j"));
}

TEST_F(SenderTest, StopDoesNotWaitForTheNextTry) {
  RawServer server([&](const std::string&, int connection) {
    received_.Add({"request"});
    RawServer::Write(connection, RawServer::Status("503 Later", "Retry-After: 3600\r\n"));
  });
  auto sender = SenderTo(server.url());
  sender->Add(Message(1, "j"));
  received_.Await(1);
  sender.reset();
  EXPECT_EQ(settled_.size(), 0);
}

TEST(Sender, WithoutAThreadThereIsNoSender) {
  const auto sender = Sender::Start(
      {.receiver = "http://a",
       .start_thread = [](const auto&) -> std::thread {
         throw std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again));
       }},
      std::make_unique<HttpPoster>(HttpPosterOptions{.url = *ParseUrl("http://a/")}));
  EXPECT_TRUE(absl::IsResourceExhausted(sender.status())) << sender.status();
  EXPECT_THAT(sender.status().message(),
              testing::HasSubstr("webhook http://a: there is no thread"));
}

TEST_F(SenderTest, AWithdrawnMessageIsNotSent) {
  absl::Notification withdrawn;
  RawServer server([&](const std::string& request, int connection) {
    received_.Add({BodyOf(request)});
    withdrawn.WaitForNotification();
    RawServer::Write(connection, RawServer::Status("200 OK"));
  });
  const auto sender = SenderTo(server.url());
  sender->Add(Message(1, "j"));
  received_.Await(1);
  sender->Add(Message(2, "j"));
  sender->Add(Message(3, "j"));
  sender->Withdraw(1);
  sender->Withdraw(2);
  withdrawn.Notify();
  EXPECT_THAT(settled_.Await(1), ElementsAre("3"));
  EXPECT_THAT(received_.Await(2), ElementsAre("1", "3"));
}

}  // namespace
}  // namespace muster::webhook
