#include "worker/tensorboard/event.h"

#include "worker/tensorboard/record.h"

namespace muster::tensorboard {
namespace {

constexpr char kVersion[] = "brain.Event:2";

}  // namespace

Event EventAt(int64_t step, double wall_time) {
  Event event;
  event.set_step(step);
  event.set_wall_time(wall_time);
  return event;
}

Event VersionEvent(double wall_time) {
  Event event = EventAt(0, wall_time);
  event.set_file_version(kVersion);
  return event;
}

Event StartEvent(int64_t step, double wall_time) {
  Event event = EventAt(step, wall_time);
  event.mutable_session_log()->set_status(SessionLog::START);
  return event;
}

void AddNumber(const std::string& tag, double number, Event* event) {
  Summary::Value* value = event->mutable_summary()->add_value();
  value->set_tag(tag);
  value->set_simple_value(static_cast<float>(number));
}

void AddNoNumber(const std::string& tag, Event* event) {
  Summary::Value* value = event->mutable_summary()->add_value();
  value->set_tag(tag);
  value->mutable_metadata()->mutable_plugin_data()->set_plugin_name("scalars");
  value->mutable_metadata()->set_data_class(Metadata::DATA_CLASS_SCALAR);
  value->mutable_tensor()->set_dtype(Tensor::DT_STRING);
  value->mutable_tensor()->mutable_tensor_shape();
}

void AddText(const std::string& tag, const std::string& text, Event* event) {
  Summary::Value* value = event->mutable_summary()->add_value();
  value->set_tag(tag);
  value->mutable_metadata()->mutable_plugin_data()->set_plugin_name("text");
  value->mutable_metadata()->set_data_class(Metadata::DATA_CLASS_TENSOR);
  value->mutable_tensor()->set_dtype(Tensor::DT_STRING);
  value->mutable_tensor()->mutable_tensor_shape();
  value->mutable_tensor()->add_string_val(text);
}

std::string RecordOf(const Event& event) { return Record(event.SerializeAsString()); }

}  // namespace muster::tensorboard
