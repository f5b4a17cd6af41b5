#include "common/process/stop_signals.h"

#include <gtest/gtest.h>
#include <string.h>

#include <utility>
#include <vector>

namespace muster::process {
namespace {

TEST(StopSequence, OnlyAPersonWhoInsistsEndsAProgramAtOnce) {
  using enum StopOrder;
  const std::vector<std::vector<std::pair<int, StopOrder>>> cases = {
      {{SIGTERM, kInOrder}, {SIGTERM, kNone}, {SIGUSR1, kNone}, {SIGHUP, kNone}},
      {{SIGUSR1, kInOrder}, {SIGTERM, kNone}},
      {{SIGHUP, kInOrder}, {SIGQUIT, kAtOnce}},
      {{SIGUSR2, kInOrder}, {SIGINT, kNone}, {SIGINT, kAtOnce}},
      {{SIGINT, kInOrder}, {SIGTERM, kNone}, {SIGINT, kAtOnce}},
      {{SIGQUIT, kAtOnce}, {SIGQUIT, kAtOnce}},
  };
  for (const auto& signals : cases) {
    StopSequence sequence;
    for (const auto& [signal, order] : signals) {
      EXPECT_EQ(sequence.Take(signal), order) << strsignal(signal);
    }
  }
}

TEST(BlockStopSignals, AnIgnoredOneStaysSoExceptThoseThatMustEndAProgram) {
  sigset_t before;
  pthread_sigmask(SIG_SETMASK, nullptr, &before);
  for (const int ignored : {SIGHUP, SIGINT}) signal(ignored, SIG_IGN);
  const sigset_t signals = BlockStopSignals();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  for (const int ignored : {SIGHUP, SIGINT}) signal(ignored, SIG_DFL);
  EXPECT_FALSE(sigismember(&signals, SIGHUP));
  for (const int taken : {SIGTERM, SIGINT, SIGUSR1, SIGUSR2, SIGQUIT}) {
    EXPECT_TRUE(sigismember(&signals, taken)) << strsignal(taken);
  }
}

}  // namespace
}  // namespace muster::process
