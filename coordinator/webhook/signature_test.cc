#include "coordinator/webhook/http_poster.h"

#include <gtest/gtest.h>

namespace muster::webhook {
namespace {

// Python: hmac.new(b"sixteen bytes...", b'1700000000.{"id": 1}', "sha256").hexdigest()
TEST(Sign, IsHmacSha256OfTheTimeAndTheBody) {
  EXPECT_EQ(Sign("sixteen bytes...", 1700000000, R"({"id": 1})"),
            "v1=4d7b3cae1d1c3f78007d43face436d6d39ab4ff8f818df0c566b5aa41269edc9");
}

}  // namespace
}  // namespace muster::webhook
