#include "worker/tensorboard/event.h"

#include <array>
#include <cstddef>

#include "absl/time/time.h"

namespace muster::tensorboard {
namespace {

constexpr uint32_t kReversedPolynomial = 0x82f63b78;

constexpr std::array<uint32_t, 256> Table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < table.size(); ++byte) {
    uint32_t remainder = byte;
    for (int bit = 0; bit < 8; ++bit) {
      remainder = (remainder >> 1) ^ ((remainder & 1) != 0 ? kReversedPolynomial : 0);
    }
    table[byte] = remainder;
  }
  return table;
}

constexpr std::array<uint32_t, 256> kTable = Table();

// The largest record; longer records are never written.
constexpr uint64_t kLongest = uint64_t{64} << 20;

template <typename Number>
std::string Bytes(Number number) {
  std::string bytes;
  for (size_t i = 0; i < sizeof(Number); ++i) bytes += static_cast<char>(number >> (8 * i));
  return bytes;
}

std::optional<std::string> Read(std::istream& file, size_t size) {
  std::string bytes(size, '\0');
  if (!file.read(bytes.data(), static_cast<std::streamsize>(size))) return std::nullopt;
  return bytes;
}

uint64_t NumberOf(std::string_view bytes) {
  uint64_t number = 0;
  for (size_t i = 0; i < bytes.size(); ++i) {
    number |= static_cast<uint64_t>(static_cast<uint8_t>(bytes[i])) << (8 * i);
  }
  return number;
}

// Reads `size` bytes and their checksum.
std::optional<std::string> ReadChecked(std::istream& file, size_t size) {
  const auto bytes = Read(file, size);
  if (!bytes.has_value()) return std::nullopt;
  const auto checksum = Read(file, sizeof(uint32_t));
  if (!checksum.has_value() || NumberOf(*checksum) != MaskedCrc32c(*bytes)) return std::nullopt;
  return bytes;
}

constexpr char kVersion[] = "brain.Event:2";

void AddIf(bool there, const std::string& tag, double number, Event* event) {
  if (there) AddNumber(tag, number, event);
}

void AddPass(const v1::Evaluation& pass, const std::string& stage, Event* event) {
  AddNumber(stage + "/loss", pass.loss(), event);
  AddIf(pass.has_accuracy(), stage + "/accuracy", pass.accuracy(), event);
  AddIf(pass.has_top_k_accuracy(), stage + "/top_k_accuracy", pass.top_k_accuracy(), event);
  AddIf(pass.has_perplexity(), stage + "/perplexity", pass.perplexity(), event);
  AddNumber(stage + "/samples", static_cast<double>(pass.samples()), event);
}

double SecondsOf(const v1::StepMetrics& metrics) {
  return absl::ToDoubleSeconds(absl::Seconds(metrics.duration().seconds()) +
                               absl::Nanoseconds(metrics.duration().nanos()));
}

}  // namespace

uint32_t Crc32c(std::string_view bytes) {
  uint32_t remainder = ~uint32_t{0};
  for (const char byte : bytes) {
    remainder = (remainder >> 8) ^ kTable[(remainder ^ static_cast<uint8_t>(byte)) & 0xff];
  }
  return ~remainder;
}

uint32_t MaskedCrc32c(std::string_view bytes) {
  const uint32_t crc = Crc32c(bytes);
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

std::string Record(std::string_view data) {
  const std::string length = Bytes<uint64_t>(data.size());
  std::string record = length + Bytes(MaskedCrc32c(length));
  record += data;
  return record + Bytes(MaskedCrc32c(data));
}

std::optional<std::string> ReadRecord(std::istream& file) {
  const auto length = ReadChecked(file, sizeof(uint64_t));
  if (!length.has_value() || NumberOf(*length) > kLongest) return std::nullopt;
  return ReadChecked(file, NumberOf(*length));
}

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

Event ScalarsOf(const v1::StepMetrics& metrics, double wall_time) {
  Event event = EventAt(static_cast<int64_t>(metrics.step()), wall_time);
  if (metrics.has_validation()) {
    AddPass(metrics.validation(), "validation", &event);
    return event;
  }
  if (metrics.has_test()) {
    AddPass(metrics.test(), "test", &event);
    return event;
  }
  AddIf(metrics.has_loss(), "train/loss", metrics.loss(), &event);
  AddIf(metrics.has_perplexity(), "train/perplexity", metrics.perplexity(), &event);
  AddIf(metrics.has_learning_rate(), "train/learning_rate", metrics.learning_rate(), &event);
  AddIf(metrics.has_grad_norm(), "train/grad_norm", metrics.grad_norm(), &event);
  AddIf(metrics.has_loss_scale(), "train/loss_scale", metrics.loss_scale(), &event);
  AddIf(metrics.skipped(), "train/skipped", 1, &event);
  AddNumber("speed/samples", static_cast<double>(metrics.samples()), &event);
  AddIf(metrics.has_model_flops_per_second(), "speed/model_flops_per_second",
        metrics.model_flops_per_second(), &event);
  AddIf(metrics.has_model_flops_utilization(), "speed/model_flops_utilization",
        metrics.model_flops_utilization(), &event);
  const double seconds = SecondsOf(metrics);
  if (seconds <= 0) return event;
  AddNumber("speed/seconds", seconds, &event);
  AddNumber("speed/samples_per_second", static_cast<double>(metrics.samples()) / seconds, &event);
  AddIf(metrics.has_tokens(), "speed/tokens_per_second",
        static_cast<double>(metrics.tokens()) / seconds, &event);
  return event;
}

}  // namespace muster::tensorboard
