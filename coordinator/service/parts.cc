#include "coordinator/service/parts.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>

#include "absl/strings/str_cat.h"
#include "coordinator/membership/refusal.h"

namespace muster::service {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::internal::WireFormatLite;

// As deep as protobuf parses.
constexpr int kDeepest = 100;

class Counter {
 public:
  Counter(google::protobuf::io::ZeroCopyInputStream* bytes, const MostParts& most)
      : input_(bytes), most_(most) {}

  // Counts to the end of the message, or until there are too many parts or something is no encoded
  // message.
  bool Count(const Descriptor& type, int depth) {
    while (const uint32_t tag = input_.ReadTag()) {
      const auto* field = type.FindFieldByNumber(WireFormatLite::GetTagFieldNumber(tag));
      if (field == nullptr && ++texts_ > most_.texts) return false;
      if (WireFormatLite::GetTagWireType(tag) != WireFormatLite::WIRETYPE_LENGTH_DELIMITED) {
        if (!WireFormatLite::SkipField(&input_, tag)) return false;
        continue;
      }
      uint32_t size = 0;
      if (!input_.ReadVarint32(&size)) return false;
      if (field == nullptr || field->type() != FieldDescriptor::TYPE_MESSAGE) {
        if (field != nullptr && !field->is_packable() && ++texts_ > most_.texts) return false;
        if (!input_.Skip(static_cast<int>(size))) return false;
        continue;
      }
      if (++messages_ > most_.messages || depth == kDeepest) return false;
      const auto outer = input_.PushLimit(static_cast<int>(size));
      if (!Count(*field->message_type(), depth + 1)) return false;
      if (input_.BytesUntilLimit() != 0) return false;
      input_.PopLimit(outer);
    }
    return true;
  }

  bool too_many() const { return messages_ > most_.messages || texts_ > most_.texts; }

 private:
  google::protobuf::io::CodedInputStream input_;
  const MostParts most_;
  size_t messages_ = 0;
  size_t texts_ = 0;
};

}  // namespace

absl::Status CheckParts(google::protobuf::io::ZeroCopyInputStream* bytes, const Descriptor& type,
                        const MostParts& most) {
  Counter counter(bytes, most);
  counter.Count(type, 1);
  if (!counter.too_many()) return absl::OkStatus();
  return Refuse(absl::StatusCode::kResourceExhausted, "TOO_MANY_PARTS",
                absl::StrCat("a message of the type ", type.full_name(), " has more than ",
                             most.messages, " messages or ", most.texts,
                             " texts within it; long lists can be given as files"),
                {{"limit", absl::StrCat(most.messages)}, {"type", type.full_name()}});
}

}  // namespace muster::service
