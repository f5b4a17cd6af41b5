// The pages of musterd: which paths there are, and what is answered to a request, as HTTP/1.1.
//
// Of a request nothing matters but its first line, so that nothing else of it is within reach of
// strangers: there are no bodies, no ranges, no compression and no files.
//
// Life cycle: add all pages, then Respond. One thread at a time.
#ifndef MUSTER_COORDINATOR_WEB_SITE_H_
#define MUSTER_COORDINATOR_WEB_SITE_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace muster::web {

// A response of HTTP, whole: the connection is closed after it.
struct Response {
  // The status line and the headers, with the empty line.
  std::string head;
  // Shared by all connections over which this text is being sent. Null: nothing.
  std::shared_ptr<const std::string> body;
};

struct Page {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::shared_ptr<const std::string> text;
};

// A page of plain text.
Page PlainPage(int status, const std::string& text);

// What is answered with `page` to GET.
Response ResponseOf(const Page& page);

class Site {
 public:
  // `path` begins with '/'.
  void Add(const std::string& path, std::function<Page()> page);
  // `first_line`: of the request (Request::first_line), such as "GET /metrics HTTP/1.1". Errors are
  // answered, too: 400 (it is no request of HTTP/1), 404, 405, and 500 if the page throws.
  Response Respond(absl::string_view first_line) const;

 private:
  Page PageFor(absl::string_view target) const;

  // In the order in which they were added, for people.
  std::vector<std::string> paths_;
  std::map<std::string, std::function<Page()>, std::less<>> pages_;
};

}  // namespace muster::web

#endif  // MUSTER_COORDINATOR_WEB_SITE_H_
