// Times and durations in messages.
#ifndef MUSTER_COMMON_RPC_PROTO_TIME_H_
#define MUSTER_COMMON_RPC_PROTO_TIME_H_

#include <google/protobuf/duration.pb.h>
#include <google/protobuf/timestamp.pb.h>

#include <cstdint>

#include "absl/time/time.h"

namespace muster {

inline absl::Duration FromProto(const google::protobuf::Duration& duration) {
  return absl::Seconds(duration.seconds()) + absl::Nanoseconds(duration.nanos());
}

inline absl::Time FromProto(const google::protobuf::Timestamp& time) {
  return absl::FromUnixSeconds(time.seconds()) + absl::Nanoseconds(time.nanos());
}

// Exact to the nanosecond. A duration that is too long for a message becomes the largest number of
// seconds of an int64, which every receiver refuses.
inline google::protobuf::Duration ToProto(absl::Duration duration) {
  google::protobuf::Duration out;
  absl::Duration rest;
  out.set_seconds(absl::IDivDuration(duration, absl::Seconds(1), &rest));
  const bool finite = rest < absl::Seconds(1) && rest > -absl::Seconds(1);
  out.set_nanos(finite ? static_cast<int32_t>(absl::ToInt64Nanoseconds(rest)) : 0);
  return out;
}

// Exact to the microsecond, as times are stored.
inline google::protobuf::Timestamp ToProto(absl::Time time) {
  google::protobuf::Timestamp out;
  const int64_t micros = absl::ToUnixMicros(time);
  out.set_seconds(micros / 1000000);
  out.set_nanos(static_cast<int32_t>(micros % 1000000) * 1000);
  return out;
}

}  // namespace muster

#endif  // MUSTER_COMMON_RPC_PROTO_TIME_H_
