// Bytes of a program's output -> lines that fit into a message.
#ifndef MUSTER_WORKER_AGENT_LINE_SPLITTER_H_
#define MUSTER_WORKER_AGENT_LINE_SPLITTER_H_

#include <cstddef>
#include <string>
#include <vector>

namespace muster::agent {

// Lines come without their end ("\n" or "\r\n"), valid UTF-8 (anything else becomes U+FFFD, as
// protobuf strings must be valid), and at most kMaxLineBytes long: the rest of a longer one is left
// out, and the line says how much.
class LineSplitter {
 public:
  static constexpr size_t kMaxLineBytes = 16 << 10;

  // The lines that `bytes` complete.
  std::vector<std::string> Feed(const char* bytes, size_t count);
  // What is left without a line end; nothing when there is none.
  std::vector<std::string> Finish();

 private:
  std::string TakeLine();

  std::string line_;
  size_t left_out_ = 0;
};

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_LINE_SPLITTER_H_
