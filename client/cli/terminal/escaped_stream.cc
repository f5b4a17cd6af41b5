#include "client/cli/terminal/escaped_stream.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>

#include "common/printable/printable.h"
#include "common/utf8/utf8.h"

namespace muster::cli {

EscapedStream::EscapedStream(std::ostream* to) : std::ostream(nullptr), buffer_(to) {
  rdbuf(&buffer_);
}

EscapedStream::~EscapedStream() { buffer_.WriteRest(); }

void EscapedStream::Buffer::WriteRest() {
  std::string out;
  AppendPrintable(rest_, Follows::kNothing, &out);
  rest_.clear();
  *to_ << out;
}

EscapedStream::Buffer::int_type EscapedStream::Buffer::overflow(int_type byte) {
  if (traits_type::eq_int_type(byte, traits_type::eof())) return traits_type::not_eof(byte);
  const char text = traits_type::to_char_type(byte);
  return xsputn(&text, 1) == 1 ? byte : traits_type::eof();
}

std::streamsize EscapedStream::Buffer::xsputn(const char* text, std::streamsize size) {
  rest_.append(text, size);
  std::string out;
  rest_.erase(0, AppendPrintable(rest_, Follows::kMore, &out));
  to_->write(out.data(), static_cast<std::streamsize>(out.size()));
  return to_->good() ? size : 0;
}

int EscapedStream::Buffer::sync() {
  to_->flush();
  return to_->good() ? 0 : -1;
}

// Writes control characters of our own to a stream that may escape all others.
std::ostream& WriteControl(std::ostream& out, const std::string& control) {
  auto* const escaped = dynamic_cast<EscapedStream*>(&out);
  if (escaped == nullptr) return out << control;
  escaped->buffer_.WriteRest();
  escaped->buffer_.WriteAsItIs(control);
  return out;
}

std::ostream& EraseLine(std::ostream& out) { return WriteControl(out, kEraseLine); }
std::ostream& StartGreen(std::ostream& out) { return WriteControl(out, "\x1b[32m"); }
std::ostream& EndGreen(std::ostream& out) { return WriteControl(out, "\x1b[0m"); }

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
