#include "coordinator/webhook/answer_head.h"

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace muster::webhook {

absl::Status AnswerHead::Take(absl::string_view bytes) {
  absl::StrAppend(&text_, bytes);
  while (!complete_) {
    const size_t end = text_.find('\n', line_);
    if (end == std::string::npos ? text_.size() > kMostBytes : end >= kMostBytes) {
      return absl::InvalidArgumentError(absl::StrCat(
          "no HTTP answer: its status line and headers have more than ", kMostBytes, " bytes"));
    }
    if (end == std::string::npos) return absl::OkStatus();
    absl::string_view line = absl::string_view(text_).substr(line_, end - line_);
    line_ = end + 1;
    if (absl::EndsWith(line, "\r")) line.remove_suffix(1);
    if (status_ == 0) {
      if (const absl::Status status = TakeStatus(line); !status.ok()) return status;
    } else if (!line.empty()) {
      TakeHeader(line);
    } else if (status_ < 200 && status_ != 101) {
      // An interim answer: the real one follows.
      status_ = 0;
      retry_after_.clear();
      content_length_.reset();
    } else {
      complete_ = true;
    }
  }
  return absl::OkStatus();
}

absl::Status AnswerHead::TakeStatus(absl::string_view line) {
  constexpr absl::string_view kForm = "HTTP/1.1 200";
  const auto digit = [&line](size_t at) { return absl::ascii_isdigit(line[at]); };
  const bool valid = line.size() >= kForm.size() && absl::StartsWith(line, "HTTP/1.") && digit(7) &&
                     line[8] == ' ' && line[9] >= '1' && digit(9) && digit(10) && digit(11) &&
                     (line.size() == kForm.size() || line[kForm.size()] == ' ');
  if (!valid || !absl::SimpleAtoi(line.substr(9, 3), &status_)) {
    return absl::InvalidArgumentError(
        "no HTTP answer: its first line is not one of HTTP/1, such as 'HTTP/1.1 200 OK'");
  }
  return absl::OkStatus();
}

void AnswerHead::TakeHeader(absl::string_view line) {
  const size_t colon = line.find(':');
  if (colon == absl::string_view::npos) return;
  const absl::string_view name = line.substr(0, colon);
  const absl::string_view value = absl::StripAsciiWhitespace(line.substr(colon + 1));
  if (absl::EqualsIgnoreCase(name, "Retry-After") && retry_after_.empty()) {
    retry_after_ = std::string(value);
  }
  uint64_t length = 0;
  if (absl::EqualsIgnoreCase(name, "Content-Length") && !content_length_.has_value() &&
      absl::SimpleAtoi(value, &length)) {
    content_length_ = length;
  }
}

std::optional<uint64_t> AnswerHead::content_length() const {
  return status_ == 204 || status_ == 304 ? std::optional<uint64_t>(0) : content_length_;
}

}  // namespace muster::webhook
