// All methods of all services, from the services' descriptors: each refusal has a complete
// ErrorInfo. A new method is tested here without further code.
#include <gmock/gmock.h>
#include <google/protobuf/message.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>

#include <functional>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/rpc/deadline.h"
#include "common/rpc/error.h"
#include "coordinator/limits/limits.h"
#include "coordinator/service/coordinator_fixture.h"
#include "coordinator/service/wire.h"
#include "coordinator/service/message_limits.h"
#include "proto/muster/v1/control_service.pb.h"
#include "proto/muster/v1/operation_service.pb.h"

namespace muster::service {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::MethodDescriptor;

std::vector<const MethodDescriptor*> Methods() {
  std::vector<const MethodDescriptor*> methods;
  for (const auto* file :
       {v1::GetJobRequest::descriptor()->file(), v1::RefreshRequest::descriptor()->file(),
        v1::GetOperationRequest::descriptor()->file(), v1::ListNodesRequest::descriptor()->file(),
        v1::AgentHello::descriptor()->file(), v1::WorkerHello::descriptor()->file()}) {
    EXPECT_EQ(file->service_count(), 1);
    for (int i = 0; i < file->service(0)->method_count(); ++i) {
      methods.push_back(file->service(0)->method(i));
    }
  }
  return methods;
}

// One message, and then the end of the client's stream. On the wire, a call with one request is the
// same.
class Call : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  Call(grpc::GenericStub* stub, const MethodDescriptor& method, const std::string& bytes) {
    context_.set_deadline(DeadlineAfter(kTestBound));
    const grpc::Slice slice(bytes);
    request_ = grpc::ByteBuffer(&slice, 1);
    stub->PrepareBidiStreamingCall(
        &context_, absl::StrCat("/", method.service()->full_name(), "/", method.name()), {}, this);
    StartWriteLast(&request_, {});
    StartRead(&answer_);
    StartCall();
  }
  void OnReadDone(bool ok) override {
    if (ok) StartRead(&answer_);
  }
  void OnDone(const grpc::Status& status) override { end_.set_value(status); }
  // The call's deadline bounds the wait.
  absl::Status Await() { return FromGrpc(end_.get_future().get()); }

 private:
  grpc::ClientContext context_;
  grpc::ByteBuffer request_;
  grpc::ByteBuffer answer_;
  // std::promise, because ThreadSanitizer does not see absl's Notification.
  std::promise<grpc::Status> end_;
};

class Errors : public CoordinatorTest {
 protected:
  void SetUp() override {
    CoordinatorTest::SetUp();
    stub_ = std::make_unique<grpc::GenericStub>(OpenChannel(address()));
  }

  // Calls the method, which must fail, and checks the parts that all errors have.
  absl::Status Refused(const MethodDescriptor& method, const std::string& bytes) {
    const absl::Status status = Call(stub_.get(), method, bytes).Await();
    const std::string where = absl::StrCat(method.full_name(), ": ", status.ToString());
    EXPECT_FALSE(status.ok()) << where;
    EXPECT_EQ(ErrorDomain(status), "muster") << where;
    EXPECT_TRUE(NextSteps().contains(ErrorReason(status))) << where;
    EXPECT_EQ(ErrorMetadata(status)["next"], NextStep(ErrorReason(status))) << where;
    return status;
  }

  std::unique_ptr<Message> NewRequest(const MethodDescriptor& method) {
    const auto* prototype =
        google::protobuf::MessageFactory::generated_factory()->GetPrototype(method.input_type());
    return std::unique_ptr<Message>(prototype->New());
  }

  std::unique_ptr<grpc::GenericStub> stub_;
};

// Agents and workers have the streams of requests.
bool IsOfClients(const MethodDescriptor& method) { return !method.client_streaming(); }

// Returns field 1000 of type bytes, which no message has.
std::string UnknownField(size_t bytes) {
  v1::FilePiece piece;
  auto* unknown = v1::FilePiece::GetReflection()->MutableUnknownFields(&piece);
  unknown->AddLengthDelimited(1000, std::string(bytes, '\0'));
  return piece.SerializeAsString();
}

TEST_F(Errors, ARequestThatIsTooLargeIsRefusedBeforeItIsParsed) {
  for (const MethodDescriptor* method : Methods()) {
    if (!IsOfClients(*method)) continue;
    // The request cannot be parsed either: its size is checked first.
    const std::string bytes = UnknownField(kLimits.request_bytes) + "\xff";
    const absl::Status status = Refused(*method, bytes);
    EXPECT_EQ(ErrorReason(status), "REQUEST_TOO_LARGE") << method->full_name();
    EXPECT_EQ(ErrorMetadata(status)["limit"], absl::StrCat(kLimits.request_bytes));
    EXPECT_EQ(ErrorMetadata(status)["found"], absl::StrCat(bytes.size()));
  }
}

TEST_F(Errors, ARequestThatIsNoMessageIsRefused) {
  for (const MethodDescriptor* method : Methods()) {
    if (!IsOfClients(*method)) continue;
    const absl::Status status = Refused(*method, "\xff\xff\xff");
    EXPECT_EQ(ErrorReason(status), "REQUEST_UNREADABLE") << method->full_name();
  }
}

// Calls `visit` for each text field of the request and of the messages in it. Arguments: the
// message with the field, the field, and its path.
using VisitText = std::function<void(Message*, const FieldDescriptor&, const std::string& path)>;
void ForEachText(Message* message, const std::string& parent, const VisitText& visit) {
  const auto& type = *message->GetDescriptor();
  const auto& reflection = *message->GetReflection();
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    const std::string path = absl::StrCat(parent, field.name(), field.is_repeated() ? "[0]" : "");
    if (field.type() == FieldDescriptor::TYPE_STRING) visit(message, field, path);
    const bool child = field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
    if (!child || field.message_type()->name() == "JobSpec") continue;
    Message* in = field.is_repeated() ? reflection.AddMessage(message, &field)
                                      : reflection.MutableMessage(message, &field);
    ForEachText(in, path + ".", visit);
    reflection.ClearField(message, &field);
  }
}

TEST_F(Errors, EachTextThatIsTooLongIsRefusedByName) {
  size_t texts = 0;
  for (const MethodDescriptor* method : Methods()) {
    if (!IsOfClients(*method)) continue;
    const auto request = NewRequest(*method);
    ForEachText(
        request.get(), "", [&](Message* in, const FieldDescriptor& field, const std::string& path) {
          // Only the size of the request limits these fields.
          const size_t longest = LongestTextOf(field);
          if (longest >= kLimits.request_bytes) return;
          const auto& reflection = *in->GetReflection();
          const std::string text(longest + 1, 'x');
          field.is_repeated() ? reflection.AddString(in, &field, text)
                              : reflection.SetString(in, &field, text);
          const absl::Status status = Refused(*method, request->SerializeAsString());
          const bool id = field.name() == "request_id";
          EXPECT_EQ(ErrorReason(status), id ? "REQUEST_ID_INVALID" : "FIELD_TOO_LONG")
              << method->full_name();
          EXPECT_EQ(ErrorMetadata(status)["field"], path) << method->full_name();
          EXPECT_EQ(ErrorMetadata(status)["limit"], id ? "" : absl::StrCat(longest)) << path;
          reflection.ClearField(in, &field);
          ++texts;
        });
  }
  EXPECT_GT(texts, 60u);
}

TEST_F(Errors, ARequestIdThatIsNoUuidIsRefused) {
  for (const MethodDescriptor* method : Methods()) {
    const FieldDescriptor* id = method->input_type()->FindFieldByName("request_id");
    if (id == nullptr) continue;
    const auto request = NewRequest(*method);
    for (const char* text :
         {"1", "123e4567-e89b-42d3-a456-42661417400", "123e4567-e89b-42d3-a456-42661417400g",
          "123e4567e89b-42d3-a456-4266141740000", "{23e4567-e89b-42d3-a456-42661417400}"}) {
      request->GetReflection()->SetString(request.get(), id, text);
      const absl::Status status = Refused(*method, request->SerializeAsString());
      EXPECT_EQ(ErrorReason(status), "REQUEST_ID_INVALID") << method->full_name();
    }
  }
}

TEST_F(Errors, AJobThatIsNotThereIsNamedInTheMetadata) {
  size_t calls = 0;
  for (const MethodDescriptor* method : Methods()) {
    const FieldDescriptor* job = method->input_type()->FindFieldByName("job_id");
    const FieldDescriptor* operation = method->input_type()->FindFieldByName("name");
    if (!IsOfClients(*method) || (job == nullptr && operation == nullptr)) continue;
    const auto request = NewRequest(*method);
    const bool of_job = job != nullptr;
    request->GetReflection()->SetString(request.get(), of_job ? job : operation,
                                        of_job ? "nobody" : "nobody/1");
    // Some calls are refused for another reason, because the request's other fields are empty.
    const absl::Status status = Refused(*method, request->SerializeAsString());
    EXPECT_EQ(ErrorMetadata(status)["job"], "nobody")
        << method->full_name() << ": " << status.ToString();
    ++calls;
  }
  EXPECT_GE(calls, 24u);
}

TEST_F(Errors, ANodeThatIsNotThereIsNamedInTheMetadata) {
  for (const MethodDescriptor* method : Methods()) {
    const FieldDescriptor* node = method->input_type()->FindFieldByName("node");
    if (node == nullptr) continue;
    const auto request = NewRequest(*method);
    request->GetReflection()->SetString(request.get(), node, "nowhere");
    const absl::Status status = Refused(*method, request->SerializeAsString());
    EXPECT_EQ(ErrorReason(status), "NODE_NOT_FOUND");
    EXPECT_EQ(ErrorMetadata(status)["node"], "nowhere");
  }
}

TEST_F(Errors, AnEmptyFirstMessageOfAStreamIsRefused) {
  for (const MethodDescriptor* method : Methods()) {
    if (IsOfClients(*method)) continue;
    const std::string reason = ErrorReason(Refused(*method, ""));
    EXPECT_THAT(reason, testing::AnyOf("HELLO_INVALID", "TRANSFER_NOT_FOUND"));
  }
}

TEST_F(Errors, AStoppedCoordinatorSaysSo) {
  // A stream is open when the coordinator stops.
  v1::Job job;
  ASSERT_TRUE(Submit(Spec(), "a", &job).ok());
  grpc::ClientContext context;
  v1::WatchJobRequest request;
  request.set_job_id("a");
  const auto watch = jobs_->WatchJob(&context, request);
  ASSERT_TRUE(watch->Read(&job));
  StopCoordinator();
  while (watch->Read(&job)) {
  }
  const absl::Status status = FromGrpc(watch->Finish());
  EXPECT_EQ(ErrorReason(status), "COORDINATOR_STOPPING");
  EXPECT_EQ(ErrorMetadata(status)["job"], "a");
}

}  // namespace
}  // namespace muster::service
