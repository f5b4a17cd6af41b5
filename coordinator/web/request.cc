#include "coordinator/web/request.h"

#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace muster::web {
namespace {

bool IsNumeric(absl::string_view host) {
  if (absl::StartsWith(host, "[")) return true;  // IPv6: a name has no brackets
  return !host.empty() && std::all_of(host.begin(), host.end(),
                                      [](char c) { return absl::ascii_isdigit(c) || c == '.'; });
}

bool IsLocal(absl::string_view host) {
  if (const size_t colon = host.rfind(':');
      colon != absl::string_view::npos && !absl::EndsWith(host, "]")) {
    host = host.substr(0, colon);
  }
  return absl::EqualsIgnoreCase(host, "localhost") || IsNumeric(host);
}

}  // namespace

bool Request::Take(absl::string_view bytes) {
  // The end may lie across two pieces.
  const size_t from = text_.size() < 3 ? 0 : text_.size() - 3;
  absl::StrAppend(&text_, bytes);
  const size_t end = text_.find("\r\n\r\n", from);
  if (end == std::string::npos ? text_.size() > most_bytes_ : end > most_bytes_) {
    refused_ = 431;
    return true;
  }
  if (end == std::string::npos) return false;
  text_.resize(end);
  Complete();
  return true;
}

void Request::Complete() {
  const std::vector<absl::string_view> lines = absl::StrSplit(text_, "\r\n");
  first_line_ = std::string(lines.front());
  for (size_t i = 1; i < lines.size(); ++i) {
    const std::pair<absl::string_view, absl::string_view> header =
        absl::StrSplit(lines[i], absl::MaxSplits(':', 1));
    const absl::string_view value = absl::StripAsciiWhitespace(header.second);
    const bool host = absl::EqualsIgnoreCase(header.first, "host");
    if (host && hosts_ == Hosts::kLocal && !IsLocal(value)) refused_ = 403;
  }
}

Response Refusal(int status) {
  if (status == 403) {
    return ResponseOf(
        PlainPage(403,
                  "musterd answers only to localhost and to numeric addresses here: ask for "
                  "http://127.0.0.1:PORT, or set the header Host to localhost.\n"));
  }
  if (status == 431) return ResponseOf(PlainPage(431, "The request is too large.\n"));
  return ResponseOf(PlainPage(400, "This is not a request of HTTP.\n"));
}

}  // namespace muster::web
