#include "tests/gpu/rank_device.h"

namespace muster {

void ForbidWaiting(bool) {}
void BeginTrace() {}
void EndTrace(const std::string&) {}

}  // namespace muster
