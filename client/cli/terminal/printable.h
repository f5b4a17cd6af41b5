// Text that a program or a model has made, for a terminal: it can contain control characters, which
// could move the cursor, change colours, or type on behalf of the user.
#ifndef MUSTER_CLIENT_CLI_TERMINAL_PRINTABLE_H_
#define MUSTER_CLIENT_CLI_TERMINAL_PRINTABLE_H_

#include <string>

namespace muster::cli {

// `text`, which is UTF-8, with each control character but tabs and ends of lines as its code:
// "\x1b", "\u009b". Pure.
std::string Printable(const std::string& text);
// The same in one line: also tabs and ends of lines are written, as "\t" and "\n".
std::string PrintableLine(const std::string& text);

}  // namespace muster::cli

#endif  // MUSTER_CLIENT_CLI_TERMINAL_PRINTABLE_H_
