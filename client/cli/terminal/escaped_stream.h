// Where all text goes to the terminal: control characters in it are shown by their codes
// (printable.h), whoever made them.
#ifndef MUSTER_CLIENT_CLI_TERMINAL_ESCAPED_STREAM_H_
#define MUSTER_CLIENT_CLI_TERMINAL_ESCAPED_STREAM_H_

#include <ostream>
#include <streambuf>
#include <string>

namespace muster::cli {

// Writes to another stream, which must outlive it. It becomes bad when that one does. A character
// that was written only in part waits for the rest, also in flush; the destructor writes it.
class EscapedStream : public std::ostream {
 public:
  explicit EscapedStream(std::ostream* to);
  ~EscapedStream() override;

 private:
  friend std::ostream& EraseLine(std::ostream& out);

  class Buffer : public std::streambuf {
   public:
    explicit Buffer(std::ostream* to) : to_(to) {}
    // Control characters of our own.
    void WriteAsItIs(const std::string& text) { *to_ << text; }
    void WriteRest();

   protected:
    int_type overflow(int_type byte) override;
    std::streamsize xsputn(const char* text, std::streamsize size) override;
    int sync() override;

   private:
    std::ostream* const to_;
    std::string rest_;  // what depends on what follows
  };

  Buffer buffer_;
};

// What empties the line of the terminal and begins it anew.
inline constexpr char kEraseLine[] = "\r\x1b[K";
// Writes kEraseLine as it is: out << EraseLine << "the new text".
std::ostream& EraseLine(std::ostream& out);

}  // namespace muster::cli

#endif  // MUSTER_CLIENT_CLI_TERMINAL_ESCAPED_STREAM_H_
