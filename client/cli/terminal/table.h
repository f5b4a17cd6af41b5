// Text tables: left-aligned columns, two spaces between them.
#ifndef MUSTER_CLIENT_CLI_TERMINAL_TABLE_H_
#define MUSTER_CLIENT_CLI_TERMINAL_TABLE_H_

#include <string>
#include <vector>

namespace muster::cli {

class Table {
 public:
  // No header is printed if it is empty.
  explicit Table(std::vector<std::string> header = {});
  // Cells are shown in one line each (printable.h).
  void Add(std::vector<std::string> row);
  bool empty() const;
  // Every line ends with a newline and has no spaces before it.
  std::string Text() const;

 private:
  std::vector<std::vector<std::string>> rows_;
  const bool has_header_;
};

}  // namespace muster::cli

#endif  // MUSTER_CLIENT_CLI_TERMINAL_TABLE_H_
