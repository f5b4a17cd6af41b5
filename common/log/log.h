// The log format of all programs: lines on stderr, UTC, the program's name in each.
#ifndef MUSTER_COMMON_LOG_LOG_H_
#define MUSTER_COMMON_LOG_LOG_H_

#include <string>

namespace muster {

// Makes spdlog's default logger write "2026-11-21T05:00:00.123Z I <program>: text" to stderr,
// flushed at each line. Messages can contain texts of others: control characters are written as
// their codes, and further lines of a message begin with four spaces. So no text looks like a
// separate message. Call once, at the start of main. The level comes from $MUSTER_LOG (trace ...
// error); default info.
void InitLog(const std::string& program);

}  // namespace muster

#endif  // MUSTER_COMMON_LOG_LOG_H_
