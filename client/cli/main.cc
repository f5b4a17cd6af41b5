// muster: the command line.
#include <unistd.h>

#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "client/cli/cli.h"

int main(int argc, char** argv) {
  // It exists until the process ends, because a signal may come at any time.
  static auto& interrupts = *new muster::cli::Interrupts();
  const muster::cli::SignalThread signals(&interrupts);
  muster::cli::Console console{
      .in = std::cin,
      .out = std::cout,
      .err = std::cerr,
      .in_is_terminal = isatty(STDIN_FILENO) == 1,
      .out_is_terminal = isatty(STDOUT_FILENO) == 1,
      .err_is_terminal = isatty(STDERR_FILENO) == 1,
      .environment =
          [](const std::string& name) {
            const char* value = std::getenv(name.c_str());
            return std::string(value != nullptr ? value : "");
          },
      .interrupts = interrupts,
  };
  return muster::cli::RunCommandLine(std::vector<std::string>(argv + 1, argv + argc), &console);
}
