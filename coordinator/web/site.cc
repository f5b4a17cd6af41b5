#include "coordinator/web/site.h"

#include <exception>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

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

}  // namespace

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
