// The pages of musterd over HTTP/1.1: requests, paths, and responses.
//
// Only the first line and the header `Host` of a request matter, so that strangers can use nothing
// else. There are no bodies, no ranges, no compression and no files.
#ifndef MUSTER_COORDINATOR_WEB_SITE_H_
#define MUSTER_COORDINATOR_WEB_SITE_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace muster::web {

// A complete HTTP response. The connection is closed after it.
struct Response {
  // The status line and the headers, with the empty line.
  std::string head;
  // The body, shared by all connections over which this text is being sent; null for none.
  std::shared_ptr<const std::string> body;
};

// The server names that are allowed in a request's header `Host`.
enum class Hosts {
  kAny,
  // Only localhost and numeric addresses. A stranger's web page in a browser on this machine can
  // make its own name point to 127.0.0.1. Such a page must not be able to read from there.
  kLocal,
};

// Collects one request from the pieces in which it arrives. Checks everything that does not depend
// on the pages. Pure; one thread.
class Request {
 public:
  Request(size_t most_bytes, Hosts hosts) : most_bytes_(most_bytes), hosts_(hosts) {}

  // Takes bytes. True when the request is complete: later bytes are ignored. A body is not read.
  bool Take(absl::string_view bytes);
  // The HTTP status with which a complete request must be refused; 0 if it may be answered.
  int refused() const { return refused_; }
  // The first line of a complete request that may be answered.
  const std::string& first_line() const { return first_line_; }

 private:
  void Complete();

  const size_t most_bytes_;
  const Hosts hosts_;
  std::string text_;
  int refused_ = 0;
  std::string first_line_;
};

// Returns a response that refuses a request.
Response Refusal(int status);

struct Page {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::shared_ptr<const std::string> text;
};

// Makes a page of plain text.
Page PlainPage(int status, const std::string& text);

// Returns the response with `page` to a GET.
Response ResponseOf(const Page& page);

// All pages by their paths. Life cycle: add all pages, then Respond. One thread at a time.
class Site {
 public:
  // Adds a page. `path` begins with '/'.
  void Add(const std::string& path, std::function<Page()> page);
  // Returns the response to a request. `first_line`: from Request::first_line, such as "GET
  // /metrics HTTP/1.1". Errors are responses, too: 400 (no HTTP/1 request), 404, 405, and 500 if
  // the page throws.
  Response Respond(absl::string_view first_line) const;

 private:
  Page PageFor(absl::string_view target) const;

  // The paths in the order in which they were added, for people.
  std::vector<std::string> paths_;
  std::map<std::string, std::function<Page()>, std::less<>> pages_;
};

}  // namespace muster::web

#endif  // MUSTER_COORDINATOR_WEB_SITE_H_
