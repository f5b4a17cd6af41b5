// Collects one HTTP request from the pieces in which it arrives, and checks it as far as this is
// possible without knowing the pages. Pure; one thread.
#ifndef MUSTER_COORDINATOR_WEB_REQUEST_H_
#define MUSTER_COORDINATOR_WEB_REQUEST_H_

#include <string>

#include "absl/strings/string_view.h"
#include "coordinator/web/site.h"

namespace muster::web {

// Whose names a request may give to the server in its header `Host`.
enum class Hosts {
  kAny,
  // Only localhost and numeric addresses. A web page of a stranger, shown in a browser on this
  // machine, can make its own name point to 127.0.0.1; it must not be able to read from there.
  kLocal,
};

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

}  // namespace muster::web

#endif  // MUSTER_COORDINATOR_WEB_REQUEST_H_
