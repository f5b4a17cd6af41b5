// The control streams of peers, which are agents and workers. gRPC's threads read and parse the
// messages; everything else runs on the engine's thread. Messages are applied to the cluster in the
// order of their arrival, except heartbeats, which are applied at once. Orders are sent in the
// order in which they were given. A `stream` in this file is such a stream, not a worker's training
// session.
//
// gRPC gives the messages as bytes, so that a message above the size limit is refused before
// parsing. A parsed message may take 25 times as much memory as its bytes on the wire.
#ifndef MUSTER_COORDINATOR_SERVICE_PEER_STREAM_H_
#define MUSTER_COORDINATOR_SERVICE_PEER_STREAM_H_

#include <google/protobuf/message.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "coordinator/cluster/effect.h"
#include "coordinator/limits/limits.h"
#include "coordinator/membership/refusal.h"
#include "coordinator/service/engine.h"
#include "coordinator/service/permit.h"
#include "coordinator/service/wire.h"

namespace muster::service {

// The receiver of orders to one peer. Only used on the engine's thread.
class PeerStream {
 public:
  virtual ~PeerStream() = default;
  virtual void Send(const cluster::AgentOrder&) {}
  virtual void Send(const cluster::WorkerOrder&) {}
  virtual void End(const absl::Status& why) = 0;
  // True if a message of the peer has come.
  virtual bool Heard() const = 0;
  // Returns OK, or why the caller may not use the stream any more.
  virtual absl::Status MayGoOn() const = 0;
};

// Parses the bytes into the message, and limits its texts (LimitTexts). INVALID_ARGUMENT
// MESSAGE_TOO_LARGE: there are more than `most` bytes; MESSAGE_UNREADABLE: the bytes are no message
// of its type; FIELD_TOO_LONG. RESOURCE_EXHAUSTED TOO_MANY_PARTS (CheckParts). Pure.
absl::Status Parse(const grpc::ByteBuffer& bytes, size_t most, google::protobuf::Message* message);
grpc::ByteBuffer ToBytes(const google::protobuf::Message& message);

// The open streams by their numbers. Used on the engine's thread only, except NextId, Reserve and
// Release.
class PeerStreams {
 public:
  // `most_bytes`: the bytes of all messages that may wait to be applied.
  explicit PeerStreams(size_t most_bytes = kLimits.all_bytes_in_line) : most_bytes_(most_bytes) {}

  // Returns the number of a new stream. Thread-safe.
  cluster::PeerStreamId NextId() { return ++last_id_; }
  // Null if the stream has ended.
  PeerStream* Find(cluster::PeerStreamId id) const;
  // Adds the stream, even if this returns an error; Remove() must be called. UNAVAILABLE
  // TOO_MANY_STREAMS if too many streams have not been answered yet.
  absl::Status Add(cluster::PeerStreamId id, PeerStream* stream, absl::Time now);
  // Records that something was sent to the peer.
  void Answered(cluster::PeerStreamId id) { unanswered_.erase(id); }
  void Remove(cluster::PeerStreamId id);
  // Ends all streams, and at once every stream that is added later.
  void EndAll(const absl::Status& why);
  // Ends the streams to which nothing was sent yet.
  void EndUnanswered(const absl::Status& why);
  // Ends the streams that have not received a message within kLimits.first_message_seconds.
  void EndSilent(absl::Time now);
  // Ends the streams whose callers may not use them any more.
  void EndRefused();
  const absl::Status& ended() const { return ended_; }
  // Tells the jobs of a node that is being emptied to save and to end, without waiting for the
  // store.
  void SendNotices(const Engine& engine, const cluster::Cluster& cluster, const std::string& node,
                   const std::string& reason) const;

  // Reserves room for a message of this size, which waits. False if there is no room. Thread-safe.
  bool Reserve(size_t bytes);
  // Releases the room of a message that does not wait any more. Thread-safe.
  void Release(size_t bytes) { bytes_in_line_ -= bytes; }

 private:
  const size_t most_bytes_;
  std::atomic<cluster::PeerStreamId> last_id_ = 0;
  std::atomic<size_t> bytes_in_line_ = 0;
  std::map<cluster::PeerStreamId, PeerStream*> streams_;
  // The opening times of the streams without a message.
  std::map<cluster::PeerStreamId, absl::Time> opened_;
  std::set<cluster::PeerStreamId> unanswered_;
  absl::Status ended_;
};

// The messages for one peer, in their order.
class PeerOutbox {
 public:
  // Adds a message. False if more than kLimits.outbox_bytes would wait: then the message is
  // dropped.
  bool Add(grpc::ByteBuffer bytes);
  // Returns the next message to be written, valid until the next call; null if none waits.
  grpc::ByteBuffer* Next();
  void Clear();

 private:
  std::deque<grpc::ByteBuffer> waiting_;
  size_t bytes_ = 0;
  grpc::ByteBuffer writing_;
};

// Returns UNAVAILABLE TOO_MANY_MESSAGES. The peer still has all its messages and repeats them on
// its next stream.
absl::Status TooManyMessages(About limit);

// One stream of a peer, which sends In and receives Out. AgentStream and WorkerStream
// (peer_services.cc) make events from In.
template <typename In, typename Out>
class PeerStreamReactor : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
                          public PeerStream,
                          public std::enable_shared_from_this<PeerStreamReactor<In, Out>> {
 public:
  PeerStreamReactor(Engine* engine, PeerStreams* streams, cluster::PeerStreamId id, Permit permit)
      : engine_(engine), streams_(streams), id_(id), permit_(std::move(permit)) {}

  // Starts the stream. Called once, right after construction.
  void Begin() {
    self_ = this->shared_from_this();
    engine_->Aside([self = self_](cluster::Cluster&, absl::Time now) {
      const absl::Status full = self->streams_->Add(self->id_, self.get(), now);
      if (const absl::Status refused = self->permit_(); !refused.ok()) return self->End(refused);
      if (!full.ok()) return self->End(full);
      if (!self->streams_->ended().ok()) return self->End(self->streams_->ended());
      // The stream ends before its first read, so none of its messages waits for the store.
      const auto& trouble = self->engine_->trouble();
      if (trouble.has_value()) return self->End(RefusalOf(*trouble));
      self->StartRead(&self->incoming_);
    });
  }

  void End(const absl::Status& why) override {
    if (ended_.has_value()) return;
    // Orders that were given before are sent first, so that no acknowledgement is lost.
    ended_ = why;
    streams_->Remove(id_);
    if (!writing_) this->Finish(ToWire(*ended_));
  }

  bool Heard() const override { return heard_; }
  absl::Status MayGoOn() const override { return permit_(); }

  // ---- Called by gRPC, on its threads.
  void OnReadDone(bool ok) override {
    if (!ok) return Broken();
    heard_ = true;
    const bool goes_on = Receive(incoming_);
    incoming_.Clear();
    // The next message is read at once, so that heartbeats do not wait behind messages that wait
    // for the store.
    if (goes_on) this->StartRead(&incoming_);
  }
  void OnWriteDone(bool ok) override {
    engine_->Aside([self = self_, ok](cluster::Cluster&, absl::Time) { self->Written(ok); });
  }
  void OnCancel() override { Broken(); }
  void OnDone() override { self_.reset(); }

 protected:
  // Takes a message that gRPC has read. False if nothing more is read from this peer.
  bool Receive(const grpc::ByteBuffer& bytes) {
    auto message = std::make_shared<In>();
    const size_t most = accepted_ ? kLimits.peer_message_bytes : kLimits.first_message_bytes;
    if (const absl::Status refused = Parse(bytes, most, message.get()); !refused.ok()) {
      EndReading(refused);
      return false;
    }
    if (IsBeat(*message) || IsUrgent(*message)) Beat(message);
    if (!IsBeat(*message)) Queue(std::move(message));
    return true;
  }

  // Applies one message. After an error the stream ends with this error.
  virtual absl::Status Take(const In& message, cluster::Cluster& cluster, absl::Time now) = 0;
  // Returns whether the message is a heartbeat. Heartbeats are handled before all other messages,
  // but not before the peer's Hello is accepted. `came` is the time of arrival.
  virtual bool IsBeat(const In& message) const = 0;
  virtual void TakeBeat(const In& message, cluster::Cluster& cluster, absl::Time came) = 0;
  // Returns whether a part of this message does not wait for the store. Then TakeBeat gets the
  // message, too, before Take.
  virtual bool IsUrgent(const In&) const { return false; }
  // Returns the number of log lines in the message; 0 for other messages. Log lines may be dropped
  // if the coordinator cannot keep up. Called by gRPC.
  virtual uint64_t LogLinesOf(const In&) const { return 0; }
  // Records that log lines were dropped before this message, which has log lines itself.
  virtual void LinesLeftOut(uint64_t, const In&, cluster::Cluster&, absl::Time) {}

  void Put(const Out& message) {
    if (ended_.has_value()) return;
    if (!outbox_.Add(ToBytes(message))) {
      return End(Refuse(absl::StatusCode::kResourceExhausted, "STREAM_NOT_READ",
                        "the peer does not read its stream", LimitOf(kLimits.outbox_bytes)));
    }
    // The first message to the peer means that the peer was accepted.
    if (!std::exchange(answered_, true)) streams_->Answered(id_);
    WriteNext();
  }
  cluster::PeerStreamId id() const { return id_; }

 private:
  // Ends the stream after the messages that came before. Messages that come later are dropped.
  // Called by gRPC.
  void EndReading(const absl::Status& why) {
    if (std::exchange(reading_ended_, true)) return;
    engine_->Post(nullptr, [self = self_, why](const absl::Status&) { self->End(why); });
  }

  // Gives the heartbeat to the engine, which applies it at once.
  void Beat(std::shared_ptr<In> message) {
    // Without a Hello there is no lease. A dropped heartbeat is followed by another one.
    if (!accepted_) return;
    if (backlog_.beats.fetch_add(1) >= kLimits.heartbeats_in_line) {
      --backlog_.beats;
      return;
    }
    engine_->Aside(
        [self = self_, message = std::move(message)](cluster::Cluster& cluster, absl::Time came) {
          --self->backlog_.beats;
          if (!self->ended_.has_value() && self->refused_.ok())
            self->TakeBeat(*message, cluster, came);
        });
  }

  // Gives the message to the engine, which applies it when the store works.
  void Queue(std::shared_ptr<In> message) {
    if (reading_ended_) return;
    const int most = accepted_ ? kLimits.messages_in_line : kLimits.first_messages_in_line;
    const int backlog = backlog_.messages.fetch_add(1) + 1;
    if (backlog > most) return EndReading(TooManyMessages(LimitOf(most)));
    const size_t bytes = message->SpaceUsedLong() + kTaskBytes;
    const size_t all = backlog_.bytes.fetch_add(bytes) + bytes;
    const uint64_t lines = LogLinesOf(*message);
    const bool logs_full =
        backlog > kLimits.log_messages_in_line || all > kLimits.log_bytes_in_line;
    if (lines > 0 && (logs_full || !streams_->Reserve(bytes))) {
      backlog_.left_out += lines;
      --backlog_.messages;
      backlog_.bytes -= bytes;
      return;
    }
    if (lines == 0) {
      // The limit of a stream does not apply to a single message: after a refusal the peer would
      // only send it again.
      if (backlog > 1 && all > kLimits.bytes_in_line) {
        return EndReading(TooManyMessages(LimitOf(kLimits.bytes_in_line)));
      }
      if (!streams_->Reserve(bytes)) {
        return EndReading(TooManyMessages(LimitOf(kLimits.all_bytes_in_line)));
      }
    }
    const uint64_t left_out = lines > 0 ? std::exchange(backlog_.left_out, 0) : 0;
    engine_->Post(
        [self = self_, message = std::move(message), left_out](cluster::Cluster& cluster,
                                                               absl::Time now) {
          if (self->ended_.has_value() || !self->refused_.ok()) return;
          if (left_out > 0) self->LinesLeftOut(left_out, *message, cluster, now);
          self->refused_ = self->Take(*message, cluster, now);
          if (self->refused_.ok()) self->accepted_ = true;
        },
        [self = self_, bytes](const absl::Status& committed) { self->Taken(committed, bytes); });
  }

  void Taken(const absl::Status& committed, size_t bytes) {
    --backlog_.messages;
    backlog_.bytes -= bytes;
    streams_->Release(bytes);
    if (!committed.ok()) return End(committed);
    if (!refused_.ok()) return End(refused_);
  }

  void Broken() {
    engine_->Post([self = self_](cluster::Cluster& cluster,
                                 absl::Time now) { cluster.Detached(self->id_, now); },
                  [self = self_](const absl::Status& committed) { self->End(committed); });
  }

  void WriteNext() {
    if (writing_) return;
    const grpc::ByteBuffer* next = outbox_.Next();
    if (next == nullptr) return;
    writing_ = true;
    this->StartWrite(next);
  }

  void Written(bool ok) {
    writing_ = false;
    if (!ok) outbox_.Clear();
    WriteNext();
    if (!writing_ && ended_.has_value()) this->Finish(ToWire(*ended_));
  }

  // The approximate size of the engine's task for a message, in bytes.
  static constexpr size_t kTaskBytes = 256;
  // The messages that the engine has not applied yet.
  struct Backlog {
    std::atomic<int> messages = 0;
    // The bytes of the messages in memory.
    std::atomic<size_t> bytes = 0;
    // The number of heartbeats, which are not counted as messages.
    std::atomic<int> beats = 0;
    // The log lines that were dropped since the last message with log lines. Used by gRPC only.
    uint64_t left_out = 0;
  };

  Engine* const engine_;
  PeerStreams* const streams_;
  const cluster::PeerStreamId id_;
  const Permit permit_;
  // A reference to this object until gRPC is done with it.
  std::shared_ptr<PeerStreamReactor> self_;

  // ---- Used by gRPC only, which reads one message at a time.
  grpc::ByteBuffer incoming_;
  bool reading_ended_ = false;

  Backlog backlog_;
  std::atomic<bool> heard_ = false;
  // Whether the Hello was accepted.
  std::atomic<bool> accepted_ = false;

  // ---- Used on the engine's thread only.
  absl::Status refused_;
  PeerOutbox outbox_;
  bool answered_ = false;
  bool writing_ = false;
  // The status with which the stream ends; absent while it continues.
  std::optional<absl::Status> ended_;
};

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_PEER_STREAM_H_
