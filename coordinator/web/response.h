// A response of HTTP, whole: the connection is closed after it.
#ifndef MUSTER_COORDINATOR_WEB_RESPONSE_H_
#define MUSTER_COORDINATOR_WEB_RESPONSE_H_

#include <memory>
#include <string>

namespace muster::web {

struct Response {
  // The status line and the headers, with the empty line.
  std::string head;
  // Shared by all connections over which this text is being sent. Null: nothing.
  std::shared_ptr<const std::string> body;
};

}  // namespace muster::web

#endif  // MUSTER_COORDINATOR_WEB_RESPONSE_H_
