#include "common/version/version.h"

namespace muster {

const char* Version() { return MUSTER_VERSION; }

}  // namespace muster
