#include "coordinator/service/peer_stream.h"

#include <grpcpp/impl/codegen/proto_utils.h>

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status/status.h"
#include "coordinator/service/message_limits.h"

namespace muster::service {

absl::Status Parse(const grpc::ByteBuffer& bytes, size_t most, google::protobuf::Message* message) {
  const std::string& type = message->GetDescriptor()->full_name();
  const size_t size = bytes.Valid() ? bytes.Length() : 0;
  if (size > most) {
    return Refuse(absl::StatusCode::kInvalidArgument, "MESSAGE_TOO_LARGE",
                  absl::StrCat("a ", type, " has ", size, " bytes; expected at most ", most),
                  {{"found", absl::StrCat(size)}, {"limit", absl::StrCat(most)}, {"type", type}});
  }
  // The readers only look at the buffer, but their constructors are not const.
  grpc::ByteBuffer whole = bytes;
  if (bytes.Valid()) {
    grpc::ProtoBufferReader counted(&whole);
    RETURN_IF_ERROR(CheckParts(&counted, *message->GetDescriptor(), kLimits.peer_message_parts));
  }
  grpc::ProtoBufferReader reader(&whole);
  if (!bytes.Valid() || !reader.status().ok() || !message->ParseFromZeroCopyStream(&reader)) {
    return Refuse(absl::StatusCode::kInvalidArgument, "MESSAGE_UNREADABLE",
                  absl::StrCat(size, " bytes are no message of the type ", type,
                               " (texts must be valid UTF-8)"),
                  {{"type", type}});
  }
  return LimitTexts(message);
}

grpc::ByteBuffer ToBytes(const google::protobuf::Message& message) {
  grpc::ByteBuffer bytes;
  bool own = false;
  // GenericSerialize only fails for messages of more than 2 GiB.
  (void)grpc::GenericSerialize<grpc::ProtoBufferWriter, google::protobuf::Message>(message, &bytes,
                                                                                   &own);
  return bytes;
}

bool PeerOutbox::Add(grpc::ByteBuffer bytes) {
  bytes_ += bytes.Length();
  if (bytes_ > kLimits.outbox_bytes) return false;
  waiting_.push_back(std::move(bytes));
  return true;
}

grpc::ByteBuffer* PeerOutbox::Next() {
  if (waiting_.empty()) return nullptr;
  writing_ = std::move(waiting_.front());
  waiting_.pop_front();
  bytes_ -= writing_.Length();
  return &writing_;
}

void PeerOutbox::Clear() {
  waiting_.clear();
  bytes_ = 0;
}

absl::Status TooManyMessages(About limit) {
  return Refuse(absl::StatusCode::kUnavailable, "TOO_MANY_MESSAGES",
                "more messages wait for the coordinator's store than it keeps; attach again and "
                "repeat what was not acknowledged",
                std::move(limit));
}

bool PeerStreams::Reserve(size_t bytes) {
  if (bytes_in_line_.fetch_add(bytes) + bytes <= most_bytes_) return true;
  bytes_in_line_ -= bytes;
  return false;
}

PeerStream* PeerStreams::Find(cluster::PeerStreamId id) const {
  const auto found = streams_.find(id);
  return found == streams_.end() ? nullptr : found->second;
}

absl::Status PeerStreams::Add(cluster::PeerStreamId id, PeerStream* stream, absl::Time now) {
  streams_[id] = stream;
  opened_[id] = now;
  unanswered_.insert(id);
  if (unanswered_.size() <= kLimits.unanswered_streams) return absl::OkStatus();
  return Refuse(absl::StatusCode::kUnavailable, "TOO_MANY_STREAMS",
                absl::StrCat(unanswered_.size(),
                             " agents and workers attach at the same time; try again in a moment"),
                LimitOf(kLimits.unanswered_streams));
}

void PeerStreams::Remove(cluster::PeerStreamId id) {
  streams_.erase(id);
  opened_.erase(id);
  unanswered_.erase(id);
}

void PeerStreams::EndAll(const absl::Status& why) {
  ended_ = why;
  unanswered_.clear();
  const auto all = std::exchange(streams_, {});
  opened_.clear();
  for (const auto& [id, stream] : all) stream->End(why);
}

void PeerStreams::EndUnanswered(const absl::Status& why) {
  std::vector<PeerStream*> unanswered;
  for (const cluster::PeerStreamId id : unanswered_) unanswered.push_back(streams_.at(id));
  for (PeerStream* stream : unanswered) stream->End(why);
}

void PeerStreams::EndSilent(absl::Time now) {
  const absl::Duration most = absl::Seconds(kLimits.first_message_seconds);
  std::vector<PeerStream*> silent;
  for (auto one = opened_.begin(); one != opened_.end();) {
    PeerStream* stream = streams_.at(one->first);
    if (!stream->Heard() && now < one->second + most) {
      ++one;
      continue;
    }
    if (!stream->Heard()) silent.push_back(stream);
    one = opened_.erase(one);
  }
  for (PeerStream* stream : silent) {
    stream->End(Refuse(absl::StatusCode::kDeadlineExceeded, "HELLO_MISSING",
                       absl::StrCat("no message has come over this stream in ",
                                    absl::FormatDuration(most), "; expected a Hello"),
                       LimitOf(kLimits.first_message_seconds)));
  }
}

void PeerStreams::EndRefused() {
  std::vector<std::pair<PeerStream*, absl::Status>> refused;
  for (const auto& [id, stream] : streams_) {
    if (absl::Status why = stream->MayGoOn(); !why.ok()) refused.emplace_back(stream, why);
  }
  for (const auto& [stream, why] : refused) stream->End(why);
}

void PeerStreams::SendNotices(const Engine& engine, const cluster::Cluster& cluster,
                              const std::string& node, const std::string& reason) const {
  const auto store =
      engine.trouble().has_value() ? cluster::StoreState::kInTrouble : cluster::StoreState::kWorks;
  for (const auto& notice : cluster.overview().PreemptionNotices(node, reason, store)) {
    if (PeerStream* stream = Find(notice.stream)) stream->Send(notice.order);
  }
}

}  // namespace muster::service
