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

// Lines that are redrawn in place must not wrap: a wrapped line would be left over on the screen.
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

#endif  // MUSTER_CLIENT_CLI_TERMINAL_ESCAPED_STREAM_H_
