#include "common/certs/signing.h"

#include <arpa/inet.h>
#include <openssl/ec.h>
#include <openssl/pem.h>
#include <openssl/rand.h>

#include <algorithm>
#include <cctype>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/status/status.h"

namespace muster::certs {
namespace {

constexpr size_t kMaxHost = 253;
constexpr long kVersion3 = 2;  // NOLINT: OpenSSL's type
constexpr int kSerialBytes = 16;

absl::Status Failed(const std::string& what) {
  return absl::InternalError(absl::StrCat("OpenSSL: ", what, ": ", OpenSslError()));
}

bool IsAddress(const std::string& host) {
  in6_addr address;
  return inet_pton(AF_INET, host.c_str(), &address) == 1 ||
         inet_pton(AF_INET6, host.c_str(), &address) == 1;
}

bool IsLabel(const std::string& label) {
  return !label.empty() && label.size() <= 63 && label.front() != '-' && label.back() != '-' &&
         std::all_of(label.begin(), label.end(), [](char c) {
           return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-';
         });
}

// Sets a random serial number, never 0, which is not valid.
absl::Status SetSerial(X509* certificate) {
  unsigned char bytes[kSerialBytes];
  if (RAND_bytes(bytes, sizeof(bytes)) != 1) return Failed("random numbers");
  bytes[0] |= 1;
  const Owned<BIGNUM> number(BN_bin2bn(bytes, sizeof(bytes), nullptr));
  if (number == nullptr ||
      BN_to_ASN1_INTEGER(number.get(), X509_get_serialNumber(certificate)) == nullptr) {
    return Failed("serial number");
  }
  return absl::OkStatus();
}

absl::Status SetName(X509* certificate, const std::string& common_name) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(common_name.data());
  if (X509_NAME_add_entry_by_NID(X509_get_subject_name(certificate), NID_commonName, MBSTRING_UTF8,
                                 bytes, static_cast<int>(common_name.size()), -1, 0) != 1) {
    return Failed(absl::StrCat("common name '", common_name, "'"));
  }
  return absl::OkStatus();
}

absl::Status Extend(X509* certificate, X509* issuer, int id, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  const Owned<X509_EXTENSION> extension(X509V3_EXT_conf_nid(nullptr, &context, id, value.c_str()));
  if (extension == nullptr || X509_add_ext(certificate, extension.get(), -1) != 1) {
    return Failed(absl::StrCat(OBJ_nid2ln(id), " '", value, "'"));
  }
  return absl::OkStatus();
}

absl::Status ExtendAll(X509* certificate, X509* issuer, const ToSign& what) {
  const bool authority = what.use == Use::kAuthority;
  RETURN_IF_ERROR(Extend(certificate, issuer, NID_basic_constraints,
                         authority ? "critical,CA:TRUE,pathlen:0" : "critical,CA:FALSE"));
  RETURN_IF_ERROR(Extend(certificate, issuer, NID_key_usage,
                         authority ? "critical,keyCertSign,cRLSign" : "critical,digitalSignature"));
  RETURN_IF_ERROR(Extend(certificate, issuer, NID_subject_key_identifier, "hash"));
  if (authority) return absl::OkStatus();
  RETURN_IF_ERROR(Extend(certificate, issuer, NID_authority_key_identifier, "keyid:always"));
  RETURN_IF_ERROR(Extend(certificate, issuer, NID_ext_key_usage,
                         what.use == Use::kServer ? "serverAuth" : "clientAuth"));
  if (what.hosts.empty()) return absl::OkStatus();
  std::vector<std::string> names;
  for (const std::string& host : what.hosts) {
    names.push_back(absl::StrCat(IsAddress(host) ? "IP:" : "DNS:", host));
  }
  return Extend(certificate, issuer, NID_subject_alt_name, absl::StrJoin(names, ","));
}

}  // namespace

absl::StatusOr<Identity> Sign(const ToSign& what, const Identity* issuer) {
  for (const std::string& host : what.hosts) RETURN_IF_ERROR(CheckHost(host));
  Identity made{Owned<X509>(X509_new()), Owned<EVP_PKEY>(EVP_EC_gen("P-256"))};
  X509* certificate = made.certificate.get();
  if (certificate == nullptr || made.key == nullptr) return Failed("a new key");
  X509* signer = issuer == nullptr ? certificate : issuer->certificate.get();
  EVP_PKEY* signing_key = issuer == nullptr ? made.key.get() : issuer->key.get();
  RETURN_IF_ERROR(SetSerial(certificate));
  RETURN_IF_ERROR(SetName(certificate, what.common_name));
  if (X509_set_version(certificate, kVersion3) != 1 ||
      X509_set_issuer_name(certificate, X509_get_subject_name(signer)) != 1 ||
      ASN1_TIME_set(X509_getm_notBefore(certificate), absl::ToTimeT(what.from)) == nullptr ||
      ASN1_TIME_set(X509_getm_notAfter(certificate), absl::ToTimeT(what.until)) == nullptr ||
      X509_set_pubkey(certificate, made.key.get()) != 1) {
    return Failed("a new certificate");
  }
  RETURN_IF_ERROR(ExtendAll(certificate, signer, what));
  if (X509_sign(certificate, signing_key, EVP_sha256()) == 0) return Failed("signature");
  return made;
}

absl::Status CheckHost(const std::string& host) {
  if (IsAddress(host)) return absl::OkStatus();
  std::vector<std::string> labels = absl::StrSplit(host, '.');
  if (labels.size() > 1 && labels.front() == "*") labels.erase(labels.begin());
  if (host.size() <= kMaxHost && std::all_of(labels.begin(), labels.end(), IsLabel)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("'", absl::CHexEscape(host),
                   "' is neither the name nor the address of a host; expected, without a port, "
                   "such as gpu1.example.com, 10.0.0.7 or fd00::7"));
}

std::string Pem(const X509& certificate) {
  const Owned<BIO> bio(BIO_new(BIO_s_mem()));
  PEM_write_bio_X509(bio.get(), &certificate);
  return Contents(bio.get());
}

std::string Pem(const EVP_PKEY& key) {
  const Owned<BIO> bio(BIO_new(BIO_s_mem()));
  PEM_write_bio_PrivateKey(bio.get(), &key, nullptr, nullptr, 0, nullptr, nullptr);
  return Contents(bio.get());
}

}  // namespace muster::certs
