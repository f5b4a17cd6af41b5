// Lines that are redrawn in place must not wrap: a wrapped line would be left over on the screen.
#ifndef MUSTER_CLIENT_CLI_TERMINAL_COLUMNS_H_
#define MUSTER_CLIENT_CLI_TERMINAL_COLUMNS_H_

#include <string>

namespace muster::cli {

// The beginning of the line that leaves the last of `columns` columns free: some terminals go to
// the next line once the last column is written. All of it if `columns` is 0: not known.
// Each character counts as one column. Pure.
std::string CutToColumns(const std::string& line, int columns);

// The columns of the terminal of standard error, or else of standard output, now; 0: there is none,
// or it does not say.
int TerminalColumns();

// Whether the terminal, by the value of $TERM, understands that a line is to be erased.
bool CanErase(const std::string& term);

}  // namespace muster::cli

#endif  // MUSTER_CLIENT_CLI_TERMINAL_COLUMNS_H_
