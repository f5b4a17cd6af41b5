// `muster` as a function, which main and the tests call.
#ifndef MUSTER_CLIENT_CLI_CLI_H_
#define MUSTER_CLIENT_CLI_CLI_H_

#include <string>
#include <vector>

#include "client/cli/terminal/console.h"
#include "client/cli/terminal/exit_code.h"

namespace muster::cli {

// Runs one command line, without the program's name. Blocks until the command is done. All output
// is escaped (escaped_stream.h).
ExitCode RunCommandLine(const std::vector<std::string>& arguments, Console* terminal);

}  // namespace muster::cli

#endif  // MUSTER_CLIENT_CLI_CLI_H_
