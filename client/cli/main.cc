// muster: the command line.
#include <unistd.h>

#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "client/cli/cli.h"
#include "client/cli/terminal/escaped_stream.h"

int main(int argc, char** argv) {
  // The object exists until the process ends, because a signal may come at any time.
  static auto& interrupts = *new muster::cli::Interrupts();
  const muster::cli::SignalThread signals(&interrupts);
  const char* const term = std::getenv("TERM");
  const bool can_erase = muster::cli::CanErase(term != nullptr ? term : "");
  muster::cli::Console console{
      .in = std::cin,
      .out = std::cout,
      .err = std::cerr,
      .person_answers = isatty(STDIN_FILENO) == 1 && isatty(STDERR_FILENO) == 1,
      .out_is_terminal = can_erase && isatty(STDOUT_FILENO) == 1,
      .err_is_terminal = can_erase && isatty(STDERR_FILENO) == 1,
      .columns = muster::cli::TerminalColumns,
      .environment =
          [](const std::string& name) {
            const char* value = std::getenv(name.c_str());
            return std::string(value != nullptr ? value : "");
          },
      .command_line = std::vector<std::string>(argv, argv + argc),
      .interrupts = interrupts,
  };
  return muster::cli::RunCommandLine(std::vector<std::string>(argv + 1, argv + argc), &console);
}
