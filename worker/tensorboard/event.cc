#include "worker/tensorboard/event.h"

#include "worker/tensorboard/event.pb.h"
#include "worker/tensorboard/record.h"

namespace muster::tensorboard {
namespace {

constexpr char kVersion[] = "brain.Event:2";

Event EventAt(int64_t step, double wall_time) {
  Event event;
  event.set_step(step);
  event.set_wall_time(wall_time);
  return event;
}

std::string RecordOf(const Event& event) { return Record(event.SerializeAsString()); }

void Set(Summary::Value* value, const Entry& entry) {
  value->set_tag(entry.tag);
  value->mutable_tensor()->mutable_tensor_shape();
  if (const auto* number = std::get_if<double>(&entry.value)) {
    value->mutable_metadata()->mutable_plugin_data()->set_plugin_name("scalars");
    value->mutable_metadata()->set_data_class(Metadata::DATA_CLASS_SCALAR);
    value->mutable_tensor()->set_dtype(Tensor::DT_FLOAT);
    value->mutable_tensor()->add_float_val(static_cast<float>(*number));
    value->mutable_tensor()->add_double_val(*number);
  } else {
    value->mutable_metadata()->mutable_plugin_data()->set_plugin_name("text");
    value->mutable_metadata()->set_data_class(Metadata::DATA_CLASS_TENSOR);
    value->mutable_tensor()->set_dtype(Tensor::DT_STRING);
    value->mutable_tensor()->add_string_val(std::get<std::string>(entry.value));
  }
}

}  // namespace

std::string VersionRecord(double wall_time) {
  Event event = EventAt(0, wall_time);
  event.set_file_version(kVersion);
  return RecordOf(event);
}

std::string StartRecord(int64_t step, double wall_time) {
  Event event = EventAt(step, wall_time);
  event.mutable_session_log()->set_status(SessionLog::START);
  return RecordOf(event);
}

std::string EntryRecords(const std::vector<Entry>& entries) {
  std::string records;
  for (size_t begin = 0; begin < entries.size();) {
    Event event = EventAt(entries[begin].step, entries[begin].wall_time);
    size_t end = begin;
    for (; end < entries.size() && entries[end].step == event.step() &&
           entries[end].wall_time == event.wall_time();
         ++end) {
      Set(event.mutable_summary()->add_value(), entries[end]);
    }
    records += RecordOf(event);
    begin = end;
  }
  return records;
}

std::optional<ParsedEvent> ParseEvent(const std::string& data) {
  Event event;
  if (!event.ParseFromString(data)) return std::nullopt;
  ParsedEvent parsed;
  if (event.session_log().status() == SessionLog::START) parsed.start = event.step();
  for (const Summary::Value& value : event.summary().value()) {
    Entry entry{
        .step = event.step(), .wall_time = event.wall_time(), .tag = value.tag(), .value = {}};
    if (value.tensor().double_val_size() == 1) {
      entry.value = value.tensor().double_val(0);
    } else if (value.tensor().string_val_size() == 1) {
      entry.value = value.tensor().string_val(0);
    } else {
      continue;
    }
    parsed.entries.push_back(std::move(entry));
  }
  return parsed;
}

}  // namespace muster::tensorboard
