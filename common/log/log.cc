#include "common/log/log.h"

#include <spdlog/cfg/helpers.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <cstdlib>
#include <memory>

namespace muster {

void InitLog(const std::string& program) {
  auto logger =
      std::make_shared<spdlog::logger>(program, std::make_shared<spdlog::sinks::stderr_sink_mt>());
  logger->set_pattern("%Y-%m-%dT%H:%M:%S.%eZ %L %n: %v", spdlog::pattern_time_type::utc);
  logger->flush_on(spdlog::level::trace);
  spdlog::set_default_logger(logger);
  if (const char* level = std::getenv("MUSTER_LOG")) spdlog::cfg::helpers::load_levels(level);
}

}  // namespace muster
