// A server for tests that answers with any bytes, or not at all.
#ifndef MUSTER_COORDINATOR_WEBHOOK_RAW_SERVER_H_
#define MUSTER_COORDINATOR_WEBHOOK_RAW_SERVER_H_

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace muster::webhook {

// One connection at a time.
class RawServer {
 public:
  // Gets each request, as it was read, and the connection, which is closed afterwards.
  using Handler = std::function<void(const std::string& request, int connection)>;

  // Whether the handler gets a request: without one, it is called for each connection.
  enum class Reads { kRequests, kNothing };

  explicit RawServer(Handler handler, Reads reads = Reads::kRequests)
      : handler_(std::move(handler)), reads_(reads) {
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof(address);
    EXPECT_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(listen(listener_, 10), 0);
    EXPECT_EQ(getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { Loop(); });
  }
  ~RawServer() {
    shutdown(listener_, SHUT_RDWR);
    thread_.join();
    close(listener_);
  }

  std::string url() const { return absl::StrCat("http://127.0.0.1:", port_, "/hook?a=b"); }

  static void Write(int connection, const std::string& bytes) {
    // The other side may have gone.
    (void)send(connection, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  // Until the other side closes.
  static void AwaitEnd(int connection) {
    std::array<char, 1000> buffer;
    while (recv(connection, buffer.data(), buffer.size(), 0) > 0) {
    }
  }
  static std::string Status(const std::string& status, const std::string& headers = "") {
    return absl::StrCat("HTTP/1.1 ", status, "\r\nContent-Length: 0\r\n", headers, "\r\n");
  }

 private:
  void Loop() {
    while (true) {
      const int connection = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (connection < 0) return;
      handler_(reads_ == Reads::kRequests ? Read(connection) : "", connection);
      close(connection);
    }
  }

  static std::string Read(int connection) {
    std::string request;
    std::array<char, 1000> buffer;
    size_t whole = std::string::npos;
    while (request.size() < whole) {
      const ssize_t size = recv(connection, buffer.data(), buffer.size(), 0);
      if (size <= 0) break;
      request.append(buffer.data(), size);
      const size_t body = request.find("\r\n\r\n");
      const size_t length = request.find("Content-Length: ");
      uint64_t bytes = 0;
      if (body == std::string::npos || length == std::string::npos) continue;
      const size_t digits = length + std::string("Content-Length: ").size();
      EXPECT_TRUE(
          absl::SimpleAtoi(request.substr(digits, request.find('\r', digits) - digits), &bytes));
      whole = body + 4 + bytes;
    }
    return request;
  }

  const Handler handler_;
  const Reads reads_;
  int listener_ = -1;
  uint16_t port_ = 0;
  std::thread thread_;
};

}  // namespace muster::webhook

#endif  // MUSTER_COORDINATOR_WEBHOOK_RAW_SERVER_H_
