// Splits the bytes of a program's output into lines that fit into a message.
#ifndef MUSTER_WORKER_AGENT_LINE_SPLITTER_H_
#define MUSTER_WORKER_AGENT_LINE_SPLITTER_H_

#include <cstddef>
#include <string>
#include <vector>

namespace muster::agent {

// The lines are returned without their end ("\n" or "\r\n"). They are valid UTF-8, as protobuf
// strings must be (other bytes become U+FFFD), and at most kMaxLineBytes long: the rest of a longer
// line is left out, and the line says how many bytes that is.
class LineSplitter {
 public:
  static constexpr size_t kMaxLineBytes = 16 << 10;

  // Returns the lines that these bytes complete.
  std::vector<std::string> Feed(const char* bytes, size_t count);
  // Returns the bytes after the last line end as a line; nothing if there are none.
  std::vector<std::string> Finish();

 private:
  std::string TakeLine();

  std::string line_;
  size_t left_out_ = 0;
};

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_LINE_SPLITTER_H_
