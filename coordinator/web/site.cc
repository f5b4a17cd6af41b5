#include "coordinator/web/site.h"

#include <httplib.h>
#include <signal.h>

#include <algorithm>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace muster::web {
namespace {

constexpr char kPlain[] = "text/plain; charset=utf-8";

// A request that is there already, and the response to it.
class Exchange : public httplib::Stream {
 public:
  explicit Exchange(const std::string& request) : request_(request) {}

  bool is_readable() const override { return true; }
  bool is_writable() const override { return true; }
  ssize_t read(char* out, size_t size) override {
    const size_t count = std::min(size, request_.size() - read_);
    std::copy_n(request_.data() + read_, count, out);
    read_ += count;
    return static_cast<ssize_t>(count);
  }
  ssize_t write(const char* data, size_t size) override {
    response_.append(data, size);
    return static_cast<ssize_t>(size);
  }
  void get_remote_ip_and_port(std::string&, int&) const override {}
  void get_local_ip_and_port(std::string&, int&) const override {}
  socket_t socket() const override { return 0; }

  std::string response() && { return std::move(response_); }

 private:
  const std::string& request_;
  size_t read_ = 0;
  std::string response_;
};

}  // namespace

class Site::Impl : public httplib::Server {
 public:
  Impl() {
    set_pre_routing_handler([](const httplib::Request& request, httplib::Response& response) {
      if (request.method == "GET" || request.method == "HEAD") {
        return HandlerResponse::Unhandled;
      }
      response.status = 405;
      response.set_header("Allow", "GET, HEAD");
      response.set_content("These pages can only be read: use GET.\n", kPlain);
      return HandlerResponse::Handled;
    });
    set_error_handler([this](const httplib::Request&, httplib::Response& response) {
      if (!response.body.empty()) return;
      response.set_content(
          response.status == 404
              ? absl::StrCat("There is no such page. There are: ", absl::StrJoin(paths_, ", "),
                             ".\n")
              : absl::StrCat("This request cannot be answered (", response.status, ").\n"),
          kPlain);
    });
    set_exception_handler(
        [](const httplib::Request&, httplib::Response& response, std::exception_ptr) {
          response.status = 500;
          response.set_content("An error of musterd: this page could not be made.\n", kPlain);
        });
    set_default_headers({{"Cache-Control", "no-store"}, {"X-Content-Type-Options", "nosniff"}});
  }

  void Add(const std::string& path, std::function<Page()> page) {
    paths_.push_back(path);
    // A regular expression, of which a path without special characters is one.
    Get(path, [page = std::move(page)](const httplib::Request&, httplib::Response& response) {
      Page made = page();
      response.status = made.status;
      response.set_content(made.text, made.content_type);
    });
  }

  std::string Respond(const std::string& request) {
    Exchange exchange(request);
    bool closed = false;
    process_request(exchange, /*close_connection=*/true, closed, nullptr);
    return std::move(exchange).response();
  }

 private:
  std::vector<std::string> paths_;
};

Site::Site() {
  // The constructor of httplib::Server ignores SIGPIPE for the whole process, and every program
  // that it starts would inherit this.
  struct sigaction before = {};
  sigaction(SIGPIPE, nullptr, &before);
  impl_ = std::make_unique<Impl>();
  sigaction(SIGPIPE, &before, nullptr);
}

Site::~Site() = default;

void Site::Add(const std::string& path, std::function<Page()> page) {
  impl_->Add(path, std::move(page));
}

std::string Site::Respond(const std::string& request) { return impl_->Respond(request); }

}  // namespace muster::web
