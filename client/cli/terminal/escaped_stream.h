// A stream for all text that goes to the terminal. It shows control characters by their codes
// (printable.h), whoever wrote them.
#ifndef MUSTER_CLIENT_CLI_TERMINAL_ESCAPED_STREAM_H_
#define MUSTER_CLIENT_CLI_TERMINAL_ESCAPED_STREAM_H_

#include <ostream>
#include <streambuf>
#include <string>

namespace muster::cli {

// Writes to another stream, which must outlive this stream. This stream becomes bad when the other
// stream does. An incomplete character waits for its rest, also in flush; the destructor writes it.
class EscapedStream : public std::ostream {
 public:
  explicit EscapedStream(std::ostream* to);
  ~EscapedStream() override;

 private:
  friend std::ostream& WriteControl(std::ostream& out, const std::string& control);

  class Buffer : public std::streambuf {
   public:
    explicit Buffer(std::ostream* to) : to_(to) {}
    // Writes control characters of our own unchanged.
    void WriteAsItIs(const std::string& text) { *to_ << text; }
    void WriteRest();

   protected:
    int_type overflow(int_type byte) override;
    std::streamsize xsputn(const char* text, std::streamsize size) override;
    int sync() override;

   private:
    std::ostream* const to_;
    std::string rest_;  // the bytes that depend on the next ones
  };

  Buffer buffer_;
};

// The characters that empty the present line of the terminal and go to its beginning.
inline constexpr char kEraseLine[] = "\r\x1b[K";
// Writes kEraseLine as it is: out << EraseLine << "the new text".
std::ostream& EraseLine(std::ostream& out);
// Begin and end a text in green: out << StartGreen << "the text" << EndGreen.
std::ostream& StartGreen(std::ostream& out);
std::ostream& EndGreen(std::ostream& out);

// Returns the beginning of the line that leaves the last of `columns` columns free. Some terminals
// go to the next line once the last column is written. A line that is redrawn in place must not
// wrap: a wrapped line would be left on the screen. Returns all of the line if `columns` is 0 (not
// known). Counts each character as one column. Pure.
std::string CutToColumns(const std::string& line, int columns);

// The present columns of the terminal of standard error, or else of standard output. 0: there is no
// terminal, or it does not tell.
int TerminalColumns();

// Returns whether the terminal, by the value of $TERM, can erase a line.
bool CanErase(const std::string& term);

}  // namespace muster::cli

#endif  // MUSTER_CLIENT_CLI_TERMINAL_ESCAPED_STREAM_H_
