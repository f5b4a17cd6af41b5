#include "worker/agent/worker_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <string>

#include "common/files/temp_dir.h"
#include "common/status/status.h"

namespace muster::agent {
namespace {

using ::testing::HasSubstr;

class WorkerDevices : public testing::Test {
 protected:
  // Returns a worker that runs this script when it is asked for its devices.
  std::string Worker(const std::string& script) {
    const std::string path = folder_.Path("worker");
    std::ofstream(path) << "#!/bin/sh\n[ \"$1\" = --devices ] || exit 9\n" << script << "\n";
    chmod(path.c_str(), 0755);
    return path;
  }

  files::TempDir folder_;
};

TEST_F(WorkerDevices, AWorkerThatIsBuiltForGpusTakesThem) {
  EXPECT_EQ(CheckTakesGpus(Worker("echo cpu cuda")), absl::OkStatus());
}

TEST_F(WorkerDevices, AWorkerForTheCpuIsNamed) {
  const std::string worker = Worker("echo cpu");
  EXPECT_EQ(CheckTakesGpus(worker),
            absl::FailedPreconditionError(worker + " is built for the CPU only"));
}

TEST_F(WorkerDevices, AWorkerThatDoesNotTellIsNamedWithWhatItSays) {
  const absl::Status status = CheckTakesGpus(Worker("echo no library; exit 2"));
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Message(status), HasSubstr("ended with exit code 2: no library"));
  EXPECT_EQ(CheckTakesGpus(folder_.Path("absent")).code(), absl::StatusCode::kNotFound);
}

TEST_F(WorkerDevices, AWorkerThatHangsIsNotAwaitedForEver) {
  const absl::Status status = CheckTakesGpus(Worker("sleep 1000"), absl::Milliseconds(100));
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(Message(status), HasSubstr("did not end within 100ms"));
}

}  // namespace
}  // namespace muster::agent
