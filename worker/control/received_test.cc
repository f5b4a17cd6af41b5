#include "worker/control/received.h"

#include <gtest/gtest.h>

namespace muster::control {
namespace {

v1::WorkerDirective Welcome(const std::string& job, uint64_t newest_command) {
  v1::WorkerDirective directive;
  directive.mutable_welcome()->mutable_spec()->set_name(job);
  directive.mutable_welcome()->set_newest_command(newest_command);
  return directive;
}

v1::WorkerDirective Command(uint64_t number) {
  v1::WorkerDirective directive;
  directive.mutable_command()->set_number(number);
  return directive;
}

TEST(Received, IsCompleteWithTheWelcomeAndTheCommandsOfItsTime) {
  Received received;
  EXPECT_FALSE(received.complete());
  received.Take(Welcome("first", 2));
  EXPECT_FALSE(received.complete());
  for (uint64_t number : {1, 1, 3, 2}) received.Take(Command(number));
  EXPECT_TRUE(received.complete());
  EXPECT_EQ(received.commands.size(), 2) << "a repeated and an early command are left out";
}

TEST(Received, TheFirstWelcomeStaysAndTheNewestRendezvousCounts) {
  Received received;
  received.Take(Welcome("first", 0));
  EXPECT_FALSE(received.rendezvous.has_value());
  v1::WorkerDirective again = Welcome("second", 7);
  again.mutable_welcome()->mutable_rendezvous()->set_port(5);
  received.Take(again);
  EXPECT_EQ(received.first_welcome->spec().name(), "first");
  EXPECT_TRUE(received.complete()) << "the later welcome does not ask for more commands";
  EXPECT_EQ(received.rendezvous->port(), 5);
  v1::WorkerDirective moved;
  moved.mutable_rendezvous()->set_port(6);
  received.Take(moved);
  EXPECT_EQ(received.rendezvous->port(), 6);
}

}  // namespace
}  // namespace muster::control
