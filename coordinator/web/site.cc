#include "coordinator/web/site.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace muster::web {
namespace {

const char* ReasonOf(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 431:
      return "Request Header Fields Too Large";
    case 503:
      return "Service Unavailable";
    default:
      return "Internal Server Error";
  }
}

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

Page PlainPage(int status, const std::string& text) {
  return {.status = status, .text = std::make_shared<const std::string>(text)};
}

Response ResponseOf(const Page& page) {
  return {.head = absl::StrCat(
              "HTTP/1.1 ", page.status, " ", ReasonOf(page.status), "\r\n", "Connection: close\r\n",
              "Cache-Control: no-store\r\n", "X-Content-Type-Options: nosniff\r\n",
              page.status == 405 ? "Allow: GET, HEAD\r\n" : "", "Content-Type: ", page.content_type,
              "\r\n", "Content-Length: ", page.text->size(), "\r\n\r\n"),
          .body = page.text};
}

void Site::Add(const std::string& path, std::function<Page()> page) {
  paths_.push_back(path);
  pages_[path] = std::move(page);
}

Response Site::Respond(absl::string_view first_line) const {
  const std::vector<absl::string_view> words = absl::StrSplit(first_line, ' ');
  if (words.size() != 3 || !absl::StartsWith(words[2], "HTTP/1.") || words[2].size() != 8 ||
      !absl::StartsWith(words[1], "/")) {
    return ResponseOf(PlainPage(400, "This is not a request of HTTP.\n"));
  }
  const bool head = words[0] == "HEAD";
  if (words[0] != "GET" && !head) {
    return ResponseOf(PlainPage(405, "These pages can only be read: use GET.\n"));
  }
  Response response = ResponseOf(PageFor(words[1]));
  if (head) response.body = nullptr;
  return response;
}

Page Site::PageFor(absl::string_view target) const {
  const auto page = pages_.find(target.substr(0, target.find('?')));
  if (page == pages_.end()) {
    return PlainPage(
        404,
        absl::StrCat("There is no such page. There are: ", absl::StrJoin(paths_, ", "), ".\n"));
  }
  try {
    return page->second();
  } catch (const std::exception&) {
    return PlainPage(500, "An error of musterd: this page could not be made.\n");
  }
}

}  // namespace muster::web
