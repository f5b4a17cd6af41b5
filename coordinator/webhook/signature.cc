#include "coordinator/webhook/signature.h"

#include "absl/strings/str_cat.h"
#include "common/secret/secret.h"

namespace muster::webhook {

std::string Sign(const std::string& secret, int64_t unix_seconds, const std::string& body) {
  const std::string text = absl::StrCat(unix_seconds, ".", body);
  return absl::StrCat("v1=", secret::ToHex(secret::Hmac(secret, text)));
}

}  // namespace muster::webhook
