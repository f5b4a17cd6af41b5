// The texts of a request. If one of them is not UTF-8, the receiver cannot read the message at all,
// and cannot say which text it was.
#ifndef MUSTER_CLIENT_API_UTF8_TEXTS_H_
#define MUSTER_CLIENT_API_UTF8_TEXTS_H_

#include <google/protobuf/message.h>

#include "absl/status/status.h"

namespace muster::client {

// INVALID_ARGUMENT: a text of the message is not UTF-8; the error names the field and the text.
// Maps are not looked at. Pure.
absl::Status CheckTexts(const google::protobuf::Message& request);

}  // namespace muster::client

#endif  // MUSTER_CLIENT_API_UTF8_TEXTS_H_
