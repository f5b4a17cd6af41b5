// Runs command lines against a JobService and a ClusterService over real gRPC. A test decides the
// answers of the services.
#ifndef MUSTER_CLIENT_CLI_CLI_FIXTURE_H_
#define MUSTER_CLIENT_CLI_CLI_FIXTURE_H_

#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "client/api/fake_job_service.h"
#include "client/cli/cli.h"
#include "common/files/files.h"
#include "common/files/temp_dir.h"
#include "common/rpc/rpc.h"

namespace muster::cli {

inline constexpr char kJobFile[] = R"(name: tiny
world_size: 2
model: {mlp: {inputs: 4, hidden: [8], classes: 2}}
data: {train: {safetensors: {path: rows}}}
optimizer: {sgd: {lr: 0.1}}
batch: {per_rank: 1}
stages: {fit: {steps: 3}}
)";

// $MUSTER_ADDRESS is the address of the services. The folder has kJobFile as job.yaml, and the file
// that kJobFile names.
class CliTest : public testing::Test {
 protected:
  CliTest() : interrupts_([](int) {}) {}

  void SetUp() override {
    server_ = Server::Start(ServerOptions::InsecureLoopback(), {&service_, &cluster_}).value();
    environment_["MUSTER_ADDRESS"] = server_->address();
    environment_["TMPDIR"] = folder_.path();
    Write("job.yaml", kJobFile);
    Write("rows", "x");
  }

  void Write(const std::string& name, const std::string& text) {
    ASSERT_TRUE(files::WriteAtomically(folder_.Path(name), text).ok());
  }

  ExitCode Muster(const std::vector<std::string>& arguments) {
    out_.str("");
    err_.str("");
    Console console{.in = in_,
                    .out = out_,
                    .err = err_,
                    .environment = [this](const std::string& name) { return environment_[name]; },
                    .interrupts = interrupts_};
    return RunCommandLine(arguments, &console);
  }
  std::string out() const { return out_.str(); }
  std::string err() const { return err_.str(); }

  v1::Job Put(const std::string& text) {
    v1::Job job;
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &job));
    service_.Put(job);
    return job;
  }

  files::TempDir folder_;
  client::FakeJobService service_;
  client::FakeClusterService cluster_;
  std::unique_ptr<Server> server_;
  std::map<std::string, std::string> environment_;
  std::istringstream in_;
  std::ostringstream out_;
  std::ostringstream err_;
  Interrupts interrupts_;
};

}  // namespace muster::cli

#endif  // MUSTER_CLIENT_CLI_CLI_FIXTURE_H_
