// The options that say how records become documents, for all commands that make documents. The
// Python package `muster.data` has options of the same names.
#ifndef MUSTER_CLIENT_CLI_DATA_RECORD_OPTIONS_H_
#define MUSTER_CLIENT_CLI_DATA_RECORD_OPTIONS_H_

#include <CLI/CLI.hpp>
#include <map>
#include <string>
#include <vector>

namespace muster::cli {

class RecordOptions {
 public:
  // Adds the options to a command. This object must outlive the command.
  void AddTo(CLI::App* command);
  // Adds an option that only this command has.
  void Add(CLI::App* command, const std::string& name, const std::string& help,
           const std::string& type);

  // The first option that was given, such as "shape"; empty: none.
  std::string First() const;
  // The options as arguments of `python -m muster.data documents`.
  std::vector<std::string> Arguments() const;

 private:
  // The values of each option, as they were given.
  std::map<std::string, std::vector<std::string>> given_;
};

}  // namespace muster::cli

#endif  // MUSTER_CLIENT_CLI_DATA_RECORD_OPTIONS_H_
