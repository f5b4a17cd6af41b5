#include "common/log/log.h"

#include <spdlog/cfg/helpers.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <cstdlib>
#include <ctime>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "common/printable/printable.h"

namespace muster {
namespace {

class PrintableMessage : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm&,
              spdlog::memory_buf_t& line) override {
    std::string text;
    AppendPrintable(std::string(message.payload.data(), message.payload.size()), Follows::kNothing,
                    &text);
    for (const char one : text) {
      line.push_back(one);
      if (one == '\n') line.append(kContinues.begin(), kContinues.end());
    }
  }
  std::unique_ptr<custom_flag_formatter> clone() const override {
    return std::make_unique<PrintableMessage>();
  }

 private:
  static constexpr std::string_view kContinues = "    ";
};

}  // namespace

void InitLog(const std::string& program) {
  auto logger =
      std::make_shared<spdlog::logger>(program, std::make_shared<spdlog::sinks::stderr_sink_mt>());
  auto format = std::make_unique<spdlog::pattern_formatter>(spdlog::pattern_time_type::utc);
  format->add_flag<PrintableMessage>('*').set_pattern("%Y-%m-%dT%H:%M:%S.%eZ %L %n: %*");
  logger->set_formatter(std::move(format));
  logger->flush_on(spdlog::level::trace);
  spdlog::set_default_logger(logger);
  if (const char* level = std::getenv("MUSTER_LOG")) spdlog::cfg::helpers::load_levels(level);
}

}  // namespace muster
