// Workers that are small shell scripts, for tests: the job's id is the script.
#ifndef MUSTER_WORKER_AGENT_SCRIPTED_WORKER_H_
#define MUSTER_WORKER_AGENT_SCRIPTED_WORKER_H_

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "proto/muster/v1/agent_service.pb.h"

namespace muster::agent {

// A "muster-worker" that runs the value of --job as a shell script. As the true one, it first lets
// in the signals that are blocked at its start. Not every shell does this.
inline std::string ScriptedWorker() {
  const std::string path = std::string(getenv("TEST_TMPDIR")) + "/scripted-worker";
  std::ofstream(path) << "#!/bin/sh\nexec perl -MPOSIX=:signal_h -e '"
                         "sigprocmask(SIG_SETMASK, POSIX::SigSet->new); "
                         "exec qw(/bin/sh -c), q(eval \"$4\"), \"sh\", @ARGV' -- \"$@\"\n";
  chmod(path.c_str(), 0755);
  return path;
}

inline v1::WorkerIdentity Worker(const std::string& script, uint32_t rank = 0) {
  v1::WorkerIdentity worker;
  worker.set_job_id(script);
  worker.set_generation(1);
  worker.set_rank(rank);
  worker.set_incarnation("incarnation-" + std::to_string(rank));
  return worker;
}

// Waits for the end of a process that is no child of this process.
class Watched {
 public:
  explicit Watched(int64_t pid) : pidfd_(static_cast<int>(syscall(SYS_pidfd_open, pid, 0))) {
    EXPECT_GE(pidfd_, 0) << "no process " << pid;
  }
  ~Watched() { close(pidfd_); }
  // Waits for its end.
  bool Ends() {
    pollfd poller = {.fd = pidfd_, .events = POLLIN, .revents = 0};
    return poll(&poller, 1, 60'000) == 1;
  }

 private:
  const int pidfd_;
};

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_SCRIPTED_WORKER_H_
