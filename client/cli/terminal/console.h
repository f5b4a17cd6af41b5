// The environment of a command of `muster`: its input and output, environment variables, and
// Ctrl-C.
#ifndef MUSTER_CLIENT_CLI_TERMINAL_CONSOLE_H_
#define MUSTER_CLIENT_CLI_TERMINAL_CONSOLE_H_

#include <functional>
#include <istream>
#include <ostream>
#include <string>
#include <vector>

#include "client/cli/terminal/interrupts.h"

namespace muster::cli {

struct Console {
  // Standard input.
  std::istream& in;
  // Results.
  std::ostream& out;
  // Everything else.
  std::ostream& err;
  // Whether a person sees `err` and can answer on `in`, also in a terminal that cannot erase.
  bool person_answers = false;
  // Whether `out` and `err` are terminals in which a line can be erased and written anew.
  bool out_is_terminal = false;
  bool err_is_terminal = false;
  // The number of columns of the terminal at present; 0: not known.
  std::function<int()> columns = [] { return 0; };
  // The value of a variable; empty if it is not set.
  std::function<std::string(const std::string&)> environment;
  // All words, beginning with the program; empty in tests.
  std::vector<std::string> command_line = {};
  Interrupts& interrupts;
};

}  // namespace muster::cli

#endif  // MUSTER_CLIENT_CLI_TERMINAL_CONSOLE_H_
