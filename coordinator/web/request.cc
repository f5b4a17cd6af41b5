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

// In lower case.
constexpr absl::string_view kForwarded[] = {"accept", "accept-encoding", "host"};

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
  forwarded_ = absl::StrCat(lines.front(), "\r\n");
  for (size_t i = 1; i < lines.size(); ++i) {
    const std::pair<absl::string_view, absl::string_view> header =
        absl::StrSplit(lines[i], absl::MaxSplits(':', 1));
    const std::string name = absl::AsciiStrToLower(header.first);
    const absl::string_view value = absl::StripAsciiWhitespace(header.second);
    if (name == "host" && hosts_ == Hosts::kLocal && !IsLocal(value)) refused_ = 403;
    if (std::find(std::begin(kForwarded), std::end(kForwarded), name) != std::end(kForwarded)) {
      absl::StrAppend(&forwarded_, name, ": ", value, "\r\n");
    }
  }
  absl::StrAppend(&forwarded_, "\r\n");
}

std::string Refusal(int status) {
  std::string reason = "400 Bad Request";
  std::string text = "This is not a request of HTTP.\n";
  if (status == 403) {
    reason = "403 Forbidden";
    text =
        "musterd answers only to localhost and to numeric addresses here: ask for "
        "http://127.0.0.1:PORT, or set the header Host to localhost.\n";
  } else if (status == 431) {
    reason = "431 Request Header Fields Too Large";
    text = "The request is too large.\n";
  }
  return absl::StrCat("HTTP/1.1 ", reason, "\r\nConnection: close\r\nContent-Length: ", text.size(),
                      "\r\nContent-Type: text/plain; charset=utf-8\r\n\r\n", text);
}

}  // namespace muster::web
