// `muster` as a function: what main and the tests call.
#ifndef MUSTER_CLIENT_CLI_CLI_H_
#define MUSTER_CLIENT_CLI_CLI_H_

#include <string>
#include <vector>

#include "client/cli/terminal/console.h"
#include "client/cli/terminal/exit_code.h"

namespace muster::cli {

// Runs one command line, without the program's name. Blocks until it is done.
ExitCode RunCommandLine(const std::vector<std::string>& arguments, Console* console);

}  // namespace muster::cli

#endif  // MUSTER_CLIENT_CLI_CLI_H_
