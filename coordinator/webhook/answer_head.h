// Reads the head of an answer of HTTP/1 (RFC 9112) from the pieces in which it arrives. Pure.
//
// Receivers may send anything: the head is kept up to a limit, whatever its lines are, and only
// what is needed of it is looked at.
#ifndef MUSTER_COORDINATOR_WEBHOOK_ANSWER_HEAD_H_
#define MUSTER_COORDINATOR_WEBHOOK_ANSWER_HEAD_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace muster::webhook {

class AnswerHead {
 public:
  // Of the status line and all headers, with those of interim answers before it.
  static constexpr size_t kMostBytes = 16 << 10;

  // The next bytes, until the head is complete. INVALID_ARGUMENT: it is no answer of HTTP/1, or it
  // is too long; nothing more may be given then.
  absl::Status Take(absl::string_view bytes);

  // ---- Of a complete head.
  bool complete() const { return complete_; }
  int status() const { return status_; }
  // The values of these headers. The first one counts; empty or absent: there is none.
  const std::string& retry_after() const { return retry_after_; }
  // What the body has; 0 also for answers that never have one.
  std::optional<uint64_t> content_length() const;
  // How many bytes of the body were among those that were taken.
  size_t taken_of_body() const { return text_.size() - line_; }

 private:
  absl::Status TakeStatus(absl::string_view line);
  void TakeHeader(absl::string_view line);

  std::string text_;
  // Where the first line begins that has not been looked at.
  size_t line_ = 0;
  bool complete_ = false;
  // 0: the next line is the status line.
  int status_ = 0;
  std::string retry_after_;
  std::optional<uint64_t> content_length_;
};

}  // namespace muster::webhook

#endif  // MUSTER_COORDINATOR_WEBHOOK_ANSWER_HEAD_H_
