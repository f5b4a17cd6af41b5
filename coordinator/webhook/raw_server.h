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

// A server with one connection at a time.
class RawServer {
 public:
  // Gets each request as it was read, and its connection, which is closed afterwards.
  using Handler = std::function<void(const std::string& request, int connection)>;

  // Whether the handler gets requests. With kNothing it is called for each connection without
  // reading.
  enum class Reads { kRequests, kNothing };
  // The address of this machine at which the server listens: 127.0.0.1 or ::1.
  enum class Listens { kIpv4, kIpv6 };

  explicit RawServer(Handler handler, Reads reads = Reads::kRequests,
                     Listens listens = Listens::kIpv4)
      : handler_(std::move(handler)),
        reads_(reads),
        host_(listens == Listens::kIpv4 ? "127.0.0.1" : "[::1]") {
    if (listens == Listens::kIpv4) {
      sockaddr_in address{.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
      EXPECT_TRUE(Listen(&address));
      port_ = ntohs(address.sin_port);
    } else {
      sockaddr_in6 address{.sin6_family = AF_INET6, .sin6_addr = in6addr_loopback};
      EXPECT_TRUE(Listen(&address));
      port_ = ntohs(address.sin6_port);
    }
    thread_ = std::thread([this] { Loop(); });
  }
  ~RawServer() {
    shutdown(listener_, SHUT_RDWR);
    thread_.join();
    close(listener_);
  }

  std::string url() const { return absl::StrCat("http://", host_, ":", port_, "/hook?a=b"); }

  static bool MachineHasIpv6() {
    const sockaddr_in6 address{.sin6_family = AF_INET6, .sin6_addr = in6addr_loopback};
    const int probe = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const bool bound =
        bind(probe, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
    close(probe);
    return bound;
  }

  static void Write(int connection, const std::string& bytes) {
    // The other side may have gone.
    (void)send(connection, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  // Returns the bytes that the other side sent until it closed the connection.
  static std::string AwaitEnd(int connection) {
    std::string read;
    std::array<char, 1000> buffer;
    for (ssize_t size; (size = recv(connection, buffer.data(), buffer.size(), 0)) > 0;) {
      read.append(buffer.data(), size);
    }
    return read;
  }
  static std::string Status(const std::string& status, const std::string& headers = "") {
    return absl::StrCat("HTTP/1.1 ", status, "\r\nContent-Length: 0\r\n", headers, "\r\n");
  }

 private:
  // Listens at a port that the kernel chooses, and sets it in *address.
  template <typename Address>
  bool Listen(Address* address) {
    auto* const general = reinterpret_cast<sockaddr*>(address);
    socklen_t size = sizeof(*address);
    listener_ = socket(general->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    return bind(listener_, general, size) == 0 && listen(listener_, 10) == 0 &&
           getsockname(listener_, general, &size) == 0;
  }

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
  const std::string host_;
  int listener_ = -1;
  uint16_t port_ = 0;
  std::thread thread_;
};

}  // namespace muster::webhook

#endif  // MUSTER_COORDINATOR_WEBHOOK_RAW_SERVER_H_
