// The pages of musterd over HTTP/1.1: a request, which paths there are, and what is answered.
//
// Of a request nothing matters but its first line, so that nothing else of it is within reach of
// strangers: there are no bodies, no ranges, no compression and no files.
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

// Whose names a request may give to the server in its header `Host`.
enum class Hosts {
  kAny,
  // Only localhost and numeric addresses. A web page of a stranger, shown in a browser on this
  // machine, can make its own name point to 127.0.0.1; it must not be able to read from there.
  kLocal,
};

// Collects one request from the pieces in which it arrives, and checks it as far as this is
// possible without knowing the pages. Pure; one thread.
class Request {
 public:
  Request(size_t most_bytes, Hosts hosts) : most_bytes_(most_bytes), hosts_(hosts) {}

  // True once the request is complete: what comes after it is ignored. A body is not read.
  bool Take(absl::string_view bytes);
  // Of a complete request: the status of HTTP with which it must be refused; 0: it may be answered.
  int refused() const { return refused_; }
  // Of a complete request that may be answered: nothing else of it is needed.
  const std::string& first_line() const { return first_line_; }

 private:
  void Complete();

  const size_t most_bytes_;
  const Hosts hosts_;
  std::string text_;
  int refused_ = 0;
  std::string first_line_;
};

// A response to a request that is refused.
Response Refusal(int status);

struct Page {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::shared_ptr<const std::string> text;
};

// A page of plain text.
Page PlainPage(int status, const std::string& text);

// What is answered with `page` to GET.
Response ResponseOf(const Page& page);

// Life cycle: add all pages, then Respond. One thread at a time.
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
