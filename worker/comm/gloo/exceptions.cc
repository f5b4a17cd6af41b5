#include "worker/comm/gloo/exceptions.h"

#include <exception>

#include "c10/util/Exception.h"

namespace muster::comm {
namespace {

// Shortens "[/pytorch/third_party/gloo/.../pair.cc:538] Connection closed by peer [127.0.0.1]:4711"
// to "Connection closed by peer [127.0.0.1]:4711".
std::string Clean(std::string text) {
  text = text.substr(0, text.find('\n'));
  text = text.substr(0, text.find(". This is typically caused by"));
  if (text.rfind("[/", 0) == 0) {
    if (const size_t end = text.find("] "); end != std::string::npos) text = text.substr(end + 2);
  }
  return text;
}

absl::Status ToStatus(const std::string& text) {
  const bool timed_out =
      text.find("imed out") != std::string::npos || text.find("imeout") != std::string::npos;
  return timed_out ? absl::DeadlineExceededError(text) : absl::UnavailableError(text);
}

}  // namespace

absl::Status CurrentExceptionAsStatus() {
  try {
    throw;
  } catch (const c10::Error& error) {
    return ToStatus(Clean(error.what_without_backtrace()));
  } catch (const std::exception& error) {
    return ToStatus(Clean(error.what()));
  } catch (...) {
    return absl::UnavailableError("unknown exception");
  }
}

}  // namespace muster::comm
