#include "worker/agents_signals.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

#include "common/process/stop_signals.h"

namespace muster {
namespace {

// Returns the signal that ends a child, or 0. The child obeys `agent` and lives until a signal ends
// it.
int EndOf(pid_t agent, const std::function<void(pid_t child)>& act) {
  int ready[2];
  EXPECT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    ObeySignalsOfAgentOnly(agent);
    (void)!write(ready[1], "x", 1);
    while (true) pause();
  }
  char byte = 0;
  EXPECT_EQ(read(ready[0], &byte, 1), 1);
  act(child);
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  close(ready[0]);
  close(ready[1]);
  return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

TEST(AgentsSignals, ItsAgentEndsIt) {
  EXPECT_EQ(EndOf(getpid(), [](pid_t child) { kill(child, SIGTERM); }), SIGTERM);
  EXPECT_EQ(EndOf(getpid(), [](pid_t child) { kill(child, SIGINT); }), SIGINT);
}

TEST(AgentsSignals, NobodyElseDoesExceptByForce) {
  const pid_t another = getppid();
  // SIGXFSZ has the highest number of these signals, so it is delivered last of all waiting ones.
  EXPECT_EQ(EndOf(another,
                  [](pid_t child) {
                    kill(child, SIGINT);
                    for (const int signal : process::PreemptionSignals()) kill(child, signal);
                    kill(child, SIGXFSZ);
                  }),
            SIGXFSZ);
}

}  // namespace
}  // namespace muster
