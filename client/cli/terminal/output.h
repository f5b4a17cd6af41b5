// The forms in which results are printed. All forms but the table give the same document, as JSON
// or as YAML. The document is the protobuf JSON of the API message, with the names of the proto
// files (snake_case).
#ifndef MUSTER_CLIENT_CLI_TERMINAL_OUTPUT_H_
#define MUSTER_CLIENT_CLI_TERMINAL_OUTPUT_H_

#include <google/protobuf/message.h>

#include <string>
#include <vector>

namespace muster::cli {

enum class JsonForm {
  kPretty,  // over several lines
  kLine,    // for streams: one object per line
};

// Returns JSON that ends with a newline. Contains numbers that are zero and texts that are empty,
// too, but fields with presence (`optional`, messages) only if they are set.
std::string Json(const google::protobuf::Message& message, JsonForm form);

enum class Output { kTable, kJson, kYaml, kCsv };

// Returns whether a result is printed as a document (JSON or YAML) and not for people.
inline bool IsDocument(Output output) { return output == Output::kJson || output == Output::kYaml; }

// A result as one document that ends with a newline; `output` is JSON or YAML.
std::string Document(const google::protobuf::Message& message, Output output);
// The document for a text that is already JSON.
std::string Document(const std::string& json, Output output);

// One of many results: JSON on its own line, or a YAML document that begins with "---".
std::string StreamItem(const google::protobuf::Message& message, Output output);

// The same document in YAML, with the keys in the same order. Readers of YAML 1.1 and 1.2 get the
// same values. A text that a reader might take for a number, a truth value, a date or null is
// quoted. `json` is valid JSON. The result ends with a newline.
std::string YamlOfJson(const std::string& json);

// A text table: left-aligned columns, two spaces between them.
class Table {
 public:
  // No header is printed if `header` is empty.
  explicit Table(std::vector<std::string> header = {});
  // Adds a row. Each cell is shown in one line (printable.h).
  void Add(std::vector<std::string> row);
  bool empty() const;
  // The table. Every line ends with a newline and has no spaces before it.
  std::string Text() const;

 private:
  std::vector<std::vector<std::string>> rows_;
  const bool has_header_;
};

}  // namespace muster::cli

#endif  // MUSTER_CLIENT_CLI_TERMINAL_OUTPUT_H_
