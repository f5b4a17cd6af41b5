// The environment of a command of `muster`: its input and output, environment variables, and
// Ctrl-C.
#ifndef MUSTER_CLIENT_CLI_TERMINAL_CONSOLE_H_
#define MUSTER_CLIENT_CLI_TERMINAL_CONSOLE_H_

#include <functional>
#include <istream>
#include <ostream>
#include <string>

#include "client/cli/terminal/interrupts.h"

namespace muster::cli {

struct Console {
  // Standard input.
  std::istream& in;
  // Results.
  std::ostream& out;
  // Everything else.
  std::ostream& err;
  bool in_is_terminal = false;
  bool out_is_terminal = false;
  bool err_is_terminal = false;
  // The value of a variable; empty if it is not set.
  std::function<std::string(const std::string&)> environment;
  Interrupts& interrupts;
};

}  // namespace muster::cli

#endif  // MUSTER_CLIENT_CLI_TERMINAL_CONSOLE_H_
