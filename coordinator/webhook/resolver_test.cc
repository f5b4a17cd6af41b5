#include "coordinator/webhook/resolver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"

namespace muster::webhook {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Addresses = std::vector<std::string>;

// A time longer than any test.
constexpr absl::Duration kEver = absl::Hours(1);

TEST(Resolver, AsksForTheHostEachTime) {
  Addresses asked;
  Resolver resolver("host", {.look_up = [&asked](const std::string& host) {
                      asked.push_back(host);
                      return Addresses{"1.2.3.4", "::1"};
                    }});
  for (int i = 0; i < 2; ++i) EXPECT_THAT(*resolver.Resolve(kEver), ElementsAre("1.2.3.4", "::1"));
  EXPECT_THAT(asked, ElementsAre("host", "host"));
}

TEST(Resolver, AnAddressNeedsNoLookUp) {
  const ResolverOptions never = {.start_thread = [](const auto&) -> std::thread {
    throw std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again));
  }};
  for (const char* host : {"127.0.0.1", "::1"}) {
    EXPECT_THAT(*Resolver(host, never).Resolve(kEver), ElementsAre(host));
  }
}

TEST(Resolver, WithoutAThreadItSaysSoAndTriesAgainNextTime) {
  bool fails = true;
  Resolver resolver("host", {.look_up = [](const std::string&) { return Addresses{"1.2.3.4"}; },
                             .start_thread =
                                 [&fails](std::function<void()> run) {
                                   if (!fails) return std::thread(std::move(run));
                                   throw std::system_error(std::make_error_code(
                                       std::errc::resource_unavailable_try_again));
                                 }});
  const auto found = resolver.Resolve(kEver);
  EXPECT_TRUE(absl::IsResourceExhausted(found.status())) << found.status();
  EXPECT_THAT(found.status().message(),
              HasSubstr("'host' cannot be looked up: there is no thread"));
  fails = false;
  EXPECT_THAT(*resolver.Resolve(kEver), ElementsAre("1.2.3.4"));
}

TEST(Resolver, ALookUpThatHangsIsLeftAloneAndThereIsNoSecondOneMeanwhile) {
  absl::Notification go;
  std::atomic<int> lookups = 0;
  Resolver resolver("host", {.look_up = [&](const std::string&) {
                      ++lookups;
                      go.WaitForNotification();
                      return Addresses{"1.2.3.4"};
                    }});
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(absl::IsDeadlineExceeded(resolver.Resolve(absl::Milliseconds(1)).status()));
  }
  EXPECT_LE(lookups, 1) << "one at a time";
  go.Notify();
  EXPECT_THAT(*resolver.Resolve(kEver), ElementsAre("1.2.3.4"));
}

TEST(Resolver, AbortEndsTheLookUpThatIsUnderWayAndAllLaterOnes) {
  absl::Notification begun, go, done;
  Resolver resolver("host", {.look_up =
                                 [&](const std::string&) {
                                   begun.Notify();
                                   go.WaitForNotification();
                                   return Addresses{};
                                 },
                             .start_thread =
                                 [&done](std::function<void()> run) {
                                   return std::thread([&done, run = std::move(run)] {
                                     run();
                                     done.Notify();
                                   });
                                 }});
  std::thread waits([&] { EXPECT_TRUE(absl::IsCancelled(resolver.Resolve(kEver).status())); });
  begun.WaitForNotification();
  resolver.Abort();
  waits.join();
  EXPECT_TRUE(absl::IsCancelled(resolver.Resolve(kEver).status()));
  EXPECT_TRUE(absl::IsCancelled([] {
    Resolver address("127.0.0.1");
    address.Abort();
    return address.Resolve(kEver).status();
  }()));
  // The lookup's thread must not outlive the objects that it uses here.
  go.Notify();
  done.WaitForNotification();
}

}  // namespace
}  // namespace muster::webhook
