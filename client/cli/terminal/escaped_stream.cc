#include "client/cli/terminal/escaped_stream.h"

#include "common/printable/printable.h"

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

std::ostream& EraseLine(std::ostream& out) {
  auto* const escaped = dynamic_cast<EscapedStream*>(&out);
  if (escaped == nullptr) return out << kEraseLine;
  escaped->buffer_.WriteRest();
  escaped->buffer_.WriteAsItIs(kEraseLine);
  return out;
}

}  // namespace muster::cli
