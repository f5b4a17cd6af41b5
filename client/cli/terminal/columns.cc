#include "client/cli/terminal/columns.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>

#include "common/utf8/utf8.h"

namespace muster::cli {

std::string CutToColumns(const std::string& line, int columns) {
  if (columns <= 0) return line;
  size_t at = 0;
  for (int column = 1; column < columns && at < line.size(); ++column) {
    at += std::max<size_t>(1, Utf8CharacterLength(line, at));
  }
  return line.substr(0, at);
}

int TerminalColumns() {
  for (const int terminal : {STDERR_FILENO, STDOUT_FILENO}) {
    winsize size = {};
    if (ioctl(terminal, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  }
  return 0;
}

bool CanErase(const std::string& term) { return !term.empty() && term != "dumb"; }

}  // namespace muster::cli
