// The pages of a running coordinator.
#include "coordinator/web/watched.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "common/process/fd.h"
#include "common/steady/now.h"
#include "common/steady/test_bound.h"
#include "coordinator/service/coordinator_fixture.h"
#include "coordinator/store/faulty_store.h"

namespace muster::web {
namespace {

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

class WatchedTest : public service::CoordinatorTest {
 protected:
  std::unique_ptr<store::Store> Wrap(std::unique_ptr<store::SqliteStore> store) override {
    auto faulty = std::make_unique<store::FaultyStore>(std::move(store));
    faulty_ = faulty.get();
    return faulty;
  }
  void Configure(service::CoordinatorOptions* options) override {
    options->observed = true;
    // The engine's thread waits in on_failure until a test lets it continue.
    options->on_failure = [this](const absl::Status&) {
      if (blocks_) go_on_.WaitForNotification();
    };
  }
  void TearDown() override {
    if (blocks_ && !go_on_.HasBeenNotified()) go_on_.Notify();
    faulty_->Fail(absl::OkStatus());
    faulty_->Hang(false);
    watched_.reset();
  }

  void StartWatched() {
    auto watched = Watched::Start({.address = "127.0.0.1:0",
                                   .state_directory = dir_.path(),
                                   .patience = absl::Hours(1),
                                   .observe_timeout = blocks_ ? absl::Milliseconds(1) : kTestBound,
                                   .clock = [this] { return frozen_ ? Later() : SteadyNow(); }});
    ASSERT_TRUE(watched.ok()) << watched.status();
    watched_ = *std::move(watched);
  }
  std::string Get(const std::string& path) {
    sockaddr_in name{};
    name.sin_family = AF_INET;
    name.sin_port = htons(static_cast<uint16_t>(watched_->address().port));
    name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const process::Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(connect(fd.get(), reinterpret_cast<const sockaddr*>(&name), sizeof(name)), 0);
    const std::string request = absl::StrCat("GET ", path, " HTTP/1.1\r\nHost: localhost\r\n\r\n");
    EXPECT_EQ(send(fd.get(), request.data(), request.size(), MSG_NOSIGNAL), request.size());
    std::string all;
    char bytes[4096];
    for (ssize_t count; (count = recv(fd.get(), bytes, sizeof(bytes), 0)) > 0;) {
      all.append(bytes, static_cast<size_t>(count));
    }
    return all;
  }
  // Asks until the page has this text.
  void Await(const std::string& path, const std::string& said) {
    std::string page;
    for (const absl::Time end = absl::Now() + kTestBound; absl::Now() < end;) {
      page = Get(path);
      if (Has(page, said)) return;
    }
    ADD_FAILURE() << path << " never said '" << said << "': " << page;
  }

  absl::Time Later() const { return begin_ + absl::Seconds(later_.load()); }

  std::atomic<bool> blocks_ = false;
  absl::Notification go_on_;
  // The clock of the pages, which a test can stop and advance.
  std::atomic<bool> frozen_ = false;
  std::atomic<int> later_ = 0;
  const absl::Time begin_ = SteadyNow();
  store::FaultyStore* faulty_ = nullptr;
  std::unique_ptr<Watched> watched_;
};

TEST_F(WatchedTest, IsNotReadyBeforeTheCoordinatorHasStartedAndWhenItStops) {
  StartWatched();
  for (const char* path : {"/readyz", "/metrics"}) {
    const std::string page = Get(path);
    EXPECT_TRUE(Has(page, "HTTP/1.1 503 ")) << page;
    EXPECT_TRUE(Has(page, "musterd is starting\n")) << page;
  }
  EXPECT_TRUE(Has(Get("/healthz"), "HTTP/1.1 200 "));
  watched_->Watch(coordinator_.get());
  Await("/readyz", "HTTP/1.1 200 ");
  EXPECT_TRUE(Has(Get("/metrics"), "\nmuster_jobs{state=\"QUEUED\"} 0\n"));
  watched_->Stopping();
  const std::string page = Get("/readyz");
  EXPECT_TRUE(Has(page, "HTTP/1.1 503 ")) << page;
  EXPECT_TRUE(Has(page, "musterd is stopping\n")) << page;
}

TEST_F(WatchedTest, CountsJobsAsTheyComeChangeAndGo) {
  StartWatched();
  watched_->Watch(coordinator_.get());
  v1::Job job;
  ASSERT_TRUE(Submit(service::Spec(), "a", &job).ok());
  Await("/metrics", "\nmuster_jobs{state=\"QUEUED\"} 1\n");
  Await("/metrics", "\nmuster_job_state{job_id=\"a\",state=\"QUEUED\"} 1\n");
  ASSERT_TRUE(Stop("a", &job).ok());
  Await("/metrics", "\nmuster_job_state{job_id=\"a\",state=\"CANCELLED\"} 1\n");
  Await("/metrics", "\nmuster_jobs{state=\"QUEUED\"} 0\n");
  v1::DeleteJobResponse deleted;
  ASSERT_TRUE(Delete("a", &deleted).ok());
  Await("/metrics", "\nmuster_jobs{state=\"CANCELLED\"} 0\n");
}

TEST_F(WatchedTest, JobsOfBeforeAreCountedToo) {
  v1::Job job;
  ASSERT_TRUE(Submit(service::Spec(), "a", &job).ok());
  StopCoordinator();
  StartCoordinator();
  StartWatched();
  watched_->Watch(coordinator_.get());
  Await("/metrics", "\nmuster_jobs{state=\"QUEUED\"} 1\n");
}

TEST_F(WatchedTest, AStoreThatCannotBeWrittenMakesItNotReadyAndMetricsSaySo) {
  StartWatched();
  watched_->Watch(coordinator_.get());
  Await("/readyz", "HTTP/1.1 200 ");
  faulty_->Fail(absl::UnavailableError("disk I/O error"));
  v1::Job job;
  EXPECT_FALSE(Submit(service::Spec(), "a", &job).ok());
  const std::string page = Get("/readyz");
  EXPECT_TRUE(Has(page, "HTTP/1.1 503 ")) << page;
  EXPECT_TRUE(Has(page, "the store cannot be written: disk I/O error; running jobs continue\n"))
      << page;
  EXPECT_TRUE(Has(Get("/healthz"), "HTTP/1.1 200 "));
  Await("/metrics", "\nmuster_store_writable 0\n");
  faulty_->Fail(absl::OkStatus());
  Await("/readyz", "HTTP/1.1 200 ");
  Await("/metrics", "\nmuster_store_writable 1\n");
}

TEST_F(WatchedTest, AnEngineThatStandsStillIsUnhealthyAndNotAskedForEachScrape) {
  blocks_ = frozen_ = true;
  StartWatched();
  watched_->Watch(coordinator_.get());
  EXPECT_TRUE(Has(Get("/healthz"), "HTTP/1.1 200 "));
  faulty_->Fail(absl::DataLossError("page 7"));
  std::thread call([this] {
    v1::Job job;
    EXPECT_FALSE(Submit(service::Spec(), "a", &job).ok());
  });
  Await("/readyz", "the coordinator's store failed: page 7\n");
  later_ = 2 * 3600;
  std::string page = Get("/healthz");
  EXPECT_TRUE(Has(page, "HTTP/1.1 503 ")) << page;
  EXPECT_TRUE(Has(page, "the coordinator's thread has done nothing for ")) << page;
  page = Get("/metrics");
  EXPECT_TRUE(Has(page, "HTTP/1.1 503 ")) << page;
  EXPECT_TRUE(Has(page, "the coordinator has not answered for 1ms\n")) << page;
  // The engine answers again. The error is served for a second in all.
  go_on_.Notify();
  call.join();
  EXPECT_TRUE(Has(Get("/metrics"), "the coordinator has not answered for 1ms\n"));
  for (std::string told; !Has(told, "\nmuster_store_writable "); told = Get("/metrics")) ++later_;
}

TEST_F(WatchedTest, AStoreWithDamagedDataIsNeverReadyAgain) {
  StartWatched();
  watched_->Watch(coordinator_.get());
  faulty_->Fail(absl::DataLossError("page 7"));
  v1::Job job;
  EXPECT_FALSE(Submit(service::Spec(), "a", &job).ok());
  Await("/readyz", "the coordinator's store failed: page 7\n");
  faulty_->Fail(absl::OkStatus());
  EXPECT_TRUE(Has(Get("/readyz"), "HTTP/1.1 503 "));
}

TEST_F(WatchedTest, AnAddressThatOtherHostsReachIsRefused) {
  for (const char* address : {"0.0.0.0:0", "[::]:0", "10.0.0.1:7071", "example.com:7071"}) {
    const auto watched = Watched::Start({.address = address});
    EXPECT_TRUE(absl::IsInvalidArgument(watched.status())) << watched.status();
    EXPECT_TRUE(Has(std::string(watched.status().message()), "--http-insecure"));
  }
  EXPECT_TRUE(Watched::Start({.address = "0.0.0.0:0", .insecure = true}).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(Watched::Start({.address = "nonsense"}).status()));
}

}  // namespace
}  // namespace muster::web
