// The pages of musterd: which paths there are, and what is answered to a request, as HTTP/1.1.
//
// cpp-httplib reads requests, chooses the page and writes responses; it never sees a socket. What
// it gets of a request is the first line and the few headers that the pages need (request.h), so
// that nothing else of it is within reach of strangers: no bodies, no ranges, no files, no threads.
//
// Life cycle: add all pages, then Respond. One thread at a time.
#ifndef MUSTER_COORDINATOR_WEB_SITE_H_
#define MUSTER_COORDINATOR_WEB_SITE_H_

#include <functional>
#include <memory>
#include <string>

namespace muster::web {

struct Page {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string text;
};

class Site {
 public:
  Site();
  ~Site();

  // `path` begins with '/' and consists of letters, digits, '_' and '/'.
  void Add(const std::string& path, std::function<Page()> page);
  // The whole response, after which the connection is closed. `request`: as Request::forwarded.
  // Empty: it is no request of HTTP.
  std::string Respond(const std::string& request);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace muster::web

#endif  // MUSTER_COORDINATOR_WEB_SITE_H_
