#include "common/rpc/reflection.h"

#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "common/rpc/deadline.h"
#include "common/rpc/rpc.h"
#include "common/rpc/test_server.h"
#include "common/steady/test_bound.h"
#include "proto/muster/v1/job_service.grpc.pb.h"

namespace muster {
namespace {

// Asks a server for its services. Debian has no header for the messages of the reflection service.
// So the request is written as bytes: `list_services: ""` (field 7). The test looks only for names
// in the answer.
class ListServices : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  explicit ListServices(const std::shared_ptr<grpc::Channel>& channel) : stub_(channel) {
    context_.set_deadline(DeadlineAfter(kTestBound));
    const grpc::Slice slice(std::string("\x3a\x00", 2));
    request_ = grpc::ByteBuffer(&slice, 1);
    stub_.PrepareBidiStreamingCall(
        &context_, "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", {}, this);
    StartWriteLast(&request_, {});
    StartRead(&answer_);
    StartCall();
    done_.WaitForNotification();
  }
  const grpc::Status& status() const { return status_; }
  const std::string& answer() const { return text_; }

  void OnReadDone(bool ok) override {
    if (!ok) return;
    std::vector<grpc::Slice> slices;
    if (answer_.Dump(&slices).ok()) {
      for (const grpc::Slice& slice : slices) {
        text_.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
      }
    }
    StartRead(&answer_);
  }
  void OnDone(const grpc::Status& status) override {
    status_ = status;
    done_.Notify();
  }

 private:
  grpc::GenericStub stub_;
  grpc::ClientContext context_;
  grpc::ByteBuffer request_;
  grpc::ByteBuffer answer_;
  std::string text_;
  grpc::Status status_;
  absl::Notification done_;
};

// Repeats a call while the server counts too many. The server notices the end of a call later than
// the client, and must notice it within the bound.
template <typename F>
grpc::Status OnceThereIsRoom(F call) {
  const absl::Time end = absl::Now() + kTestBound;
  while (true) {
    const grpc::Status status = call();
    if (status.error_code() != grpc::StatusCode::RESOURCE_EXHAUSTED || absl::Now() > end) {
      return status;
    }
  }
}

TEST(Reflection, AServerTellsItsServicesOnlyIfItIsAskedTo) {
  LinkReflection();
  v1::JobService::CallbackService service;
  ServerOptions options = ServerOptions::InsecureLoopback();
  options.reflection = true;
  options.calls.per_connection = 20;
  auto open = Server::Start(options, {&service});
  ASSERT_TRUE(open.ok()) << open.status();
  const auto channel = OpenChannel((*open)->address());
  const ListServices of_open(channel);
  EXPECT_TRUE(of_open.status().ok()) << of_open.status().error_message();
  EXPECT_THAT(of_open.answer(), testing::HasSubstr("muster.v1.JobService"));
  EXPECT_THAT(of_open.answer(), testing::HasSubstr("grpc.health.v1.Health"));
  // The server notices the end of a call, also of a method that does not exist.
  for (int i = 0; i < 3 * options.calls.per_connection; ++i) {
    const grpc::Status status = OnceThereIsRoom([&] { return Call(channel, "/nowhere"); });
    ASSERT_EQ(status.error_code(), grpc::StatusCode::UNIMPLEMENTED) << i;
  }
  for (int i = 0; i < 3 * options.calls.per_connection; ++i) {
    const grpc::Status status = OnceThereIsRoom([&] { return ListServices(channel).status(); });
    ASSERT_TRUE(status.ok()) << i << ": " << status.error_message();
  }

  options.reflection = false;
  auto closed = Server::Start(options, {&service});
  ASSERT_TRUE(closed.ok()) << closed.status();
  EXPECT_EQ(ListServices(OpenChannel((*closed)->address())).status().error_code(),
            grpc::StatusCode::UNIMPLEMENTED);
}

}  // namespace
}  // namespace muster
